"""Which fields of a row say whose and when it is: by the typed tables of the log formats."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

from exporter.sources.formats import litellm, litellm_spend_logs, ndjson, openai, trace_lmcache
from exporter.sources.formats.mapping import LogFormat, parts_of

_TABLES = (
    ndjson.FORMAT, openai.FORMAT, litellm.FORMAT, litellm_spend_logs.FORMAT, trace_lmcache.FORMAT,
)  # fmt: skip
# What requests themselves say of their user and session, which no log of counts has.
_MORE: dict[str, tuple[str, ...]] = {
    "ts": ("startTime", "created_at", "created"),
    "tenant": ("user", "user_id", "end_user", "metadata.user_id"),
    "session": ("conversation_id", "thread_id", "metadata.session_id", "prompt_cache_key"),
    "template": ("prompt_id", "metadata.template"),
}
_EPOCH_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))

Row = Mapping[str, object]


@dataclass(frozen=True)
class Facts:
    """Whose a row is and when it came; None or '' where it does not say."""

    at: float | None
    session: str | None
    user: str | None
    label: str
    prompt_tokens: int | None


def facts_of(row: Row) -> Facts:
    """What a row says beside its text."""
    tokens = first(row, _paths("prompt_tokens"))
    return Facts(
        _moment(first(row, _paths("ts"))),
        _text(first(row, _paths("session"))),
        _text(first(row, ("user", *_paths("tenant")))),
        _text(first(row, _paths("template"))) or "",
        tokens if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0 else None,
    )


def first(row: Row, paths: tuple[str, ...]) -> object:
    """The first value there is at any of the paths."""
    for path in paths:
        value: object = row
        for part in parts_of(path):
            value = opened(value).get(part)
        if value is not None and value != "":
            return value
    return None


def opened(value: object) -> dict[str, object]:
    """The object a value is, or is the JSON text of; an empty one for anything else."""
    if isinstance(value, str) and value[:1] == "{":
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return dict(value) if isinstance(value, Mapping) else {}


@cache
def _paths(name: str) -> tuple[str, ...]:
    """Every path any of the tables names for a field, sums left out."""
    told = [path for table in _TABLES for path in _of(table, name)]
    return tuple(dict.fromkeys([*told, *_MORE.get(name, ())]))


def _of(table: LogFormat, name: str) -> list[str]:
    return [path for field in table.fields if field.name == name
            for path in field.paths if " " not in path]  # fmt: skip


def _text(value: object) -> str | None:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


def _moment(value: object) -> float | None:
    """Seconds since the epoch of an epoch in any unit or an ISO time."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return next((value / unit for least, unit in _EPOCH_UNITS if value >= least), float(value))
