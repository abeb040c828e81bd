"""What the tap is told, by environment variables only: an engine has no settings file of ours.

A misspelt or impossible setting stops the start with a message, because a tap that silently
records nothing is found out weeks later. Once it runs, nothing that happens to it is raised.
"""

import difflib
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, fields

TAP_PREFIX = "PREFIXSCOPE_TAP_"
# Fields of a request that hold the prompt; no label may be taken from them.
PROMPT_FIELDS = frozenset(
    {"messages", "prompt", "input", "system", "instructions", "tools", "suffix", "prompt_embeds"}
)
# Kubernetes puts these into every container beside a Service called prefixscope-tap.
_TAP_SERVICE_LINK = re.compile(
    r"PREFIXSCOPE_TAP_(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"
)
_SECRET_HEADERS = frozenset({"authorization", "cookie", "x-api-key", "api-key"})


class BadTapSettings(Exception):
    """A setting of the tap is unknown or impossible; the message names it and the remedy."""


@dataclass(frozen=True)
class Pick:
    """Where a label is taken from: a header, a field of the request's body, or fixed text.

    `keyed` writes a keyed hash instead of the value, for values that are secrets.
    """

    place: str
    name: str
    keyed: bool = False


@dataclass(frozen=True)
class TapSettings:
    """All settings. Each is the environment variable PREFIXSCOPE_TAP_ + its name in capitals."""

    file: str = ""
    file_bytes: int = 100_000_000
    files_kept: int = 10
    post: str = ""
    post_token: str = ""
    post_token_file: str = ""
    key_file: str = ""
    replica: str = ""
    request_id: tuple[Pick, ...] = (Pick("header", "x-request-id"),)
    route: tuple[Pick, ...] = (Pick("header", "x-prefixscope-route"),)
    template: tuple[Pick, ...] = (Pick("header", "x-prefixscope-template"),)
    template_version: tuple[Pick, ...] = (Pick("header", "x-prefixscope-template-version"),)
    tenant: tuple[Pick, ...] = (Pick("header", "x-prefixscope-tenant"),)
    session: tuple[Pick, ...] = (Pick("header", "x-prefixscope-session"),)
    adapters: tuple[str, ...] = ()
    fingerprint: str = ""
    hashes: str = "off"
    tokenize: bool = True
    include_usage: bool = False
    null_usage: str = "hide"
    sample: str = ""
    queue_rows: int = 10_000
    body_bytes: int = 16_000_000


_WORDS = {"hashes": ("off", "chain", "all"), "null_usage": ("hide", "keep")}
_LEAST = {"file_bytes": 1000, "files_kept": 1, "queue_rows": 1, "body_bytes": 0}
_SWITCH = {"on": True, "1": True, "true": True, "off": False, "0": False, "false": False}


def tap_settings(environment: Mapping[str, str] | None = None) -> TapSettings:
    """Settings from the environment; BadTapSettings names what is wrong with them."""
    environment = os.environ if environment is None else environment
    known = {TAP_PREFIX + entry.name.upper(): entry.name for entry in fields(TapSettings)}
    given: dict[str, object] = {}
    for variable in sorted(environment):
        if not variable.startswith(TAP_PREFIX) or _TAP_SERVICE_LINK.fullmatch(variable):
            continue
        if variable not in known:
            near = difflib.get_close_matches(variable, known, 1)
            hint = f"; do you mean {near[0]}?" if near else ""
            raise BadTapSettings(f"environment variable {variable} is no setting of the tap{hint}")
        given[known[variable]] = _value(variable, known[variable], environment[variable].strip())
    settings = TapSettings(**given)  # type: ignore[arg-type]
    if not settings.file and not settings.post:
        raise BadTapSettings(
            f"the tap has nowhere to write: set {TAP_PREFIX}FILE to a path or {TAP_PREFIX}POST to "
            "the address of an exporter's /v1/requests"
        )
    if settings.post and not settings.post.startswith(("http://", "https://")):
        raise BadTapSettings(f"{TAP_PREFIX}POST must begin with http:// or https://")
    return settings


def _value(variable: str, name: str, text: str) -> object:
    default = getattr(TapSettings, name)
    if name == "adapters":
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if isinstance(default, tuple):
        return _picks(variable, text)
    if isinstance(default, bool):
        if text.lower() not in _SWITCH:
            raise BadTapSettings(f"{variable} must be on or off")
        return _SWITCH[text.lower()]
    if isinstance(default, int):
        if not text.isdecimal() or int(text) < _LEAST[name]:
            raise BadTapSettings(f"{variable} must be a whole number, {_LEAST[name]} or more")
        return int(text)
    if name in _WORDS and text not in _WORDS[name]:
        raise BadTapSettings(f"{variable} must be one of: {', '.join(_WORDS[name])}")
    return text


def _picks(variable: str, text: str) -> tuple[Pick, ...]:
    """`hash:header:authorization, body:metadata.team` -> alternatives in order."""
    return tuple(_pick(variable, part.strip()) for part in text.split(",") if part.strip())


def _pick(variable: str, text: str) -> Pick:
    keyed = text.startswith("hash:")
    place, _, name = text.removeprefix("hash:").partition(":")
    name = name.strip()
    if place not in ("header", "body", "text") or not name:
        raise BadTapSettings(
            f"{variable}: expected header:NAME, body:FIELD.FIELD or text:VALUE, perhaps with "
            "hash: in front, several separated by commas"
        )
    if place == "header":
        name = name.lower()
        if name in _SECRET_HEADERS and not keyed:
            raise BadTapSettings(f"{variable}: {name} is a secret; write hash:header:{name}")
    if place == "body" and name.split(".")[0] in PROMPT_FIELDS:
        raise BadTapSettings(f"{variable}: the field {name} holds the prompt, which is not written")
    return Pick(place, name, keyed)


def replica_name(settings: TapSettings) -> str:
    """The configured name, else the host's, which in Kubernetes is the pod's."""
    return settings.replica or socket.gethostname()
