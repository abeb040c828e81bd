"""vLLM production-stack router: which replica a request was sent to. No tokens.

Who emits it: the router's log at level info, as text or JSON (`--log-format json`). A row gives
request id, session, replica and attempt; joined with the engine's own row of the request it
names the replica. The first attempt carries the time as an epoch; the line of a further attempt
has only the local time of the log, which is not UTC, so that row counts as without a time.
Versions read: production-stack a6c01db (source).
"""

import re
from collections.abc import Iterable

from exporter.sources.formats.mapping import LogFormat, Row, text, time, tokens

_ROUTED = re.compile(
    r"Routing request (?P<id>\S+)"
    r"(?: with session id (?P<session>\S+))?"
    r"(?: for model '(?P<model>[^']*)')?"
    r" to (?:external provider '(?P<provider>[^']*)'|(?P<replica>https?://[^\s\"]+))"
    r"(?: at (?P<ts>[0-9.]+), process time)?"
    r"(?: \(attempt (?P<attempt>[0-9]+)/[0-9]+\))?"
)
# A line of the log itself, not one that a prompt quotes.
_DECIDED = re.compile(
    r'^(?:[^{"\n]*|\{.*(?<!\\)"message"\s*:\s*")(?P<decision>Routing request )', re.MULTILINE
)


def _rows(line: str) -> Iterable[Row]:
    """The decision a line tells of; every other line of the router's log tells of none."""
    found = _ROUTED.search(line)
    if not found:
        return []
    decision = {name: value for name, value in found.groupdict().items() if value is not None}
    if decision.get("session") == "None":
        del decision["session"]
    return [decision]


def _sniff(head: str) -> str | None:
    found = _DECIDED.search(head)
    is_router = found and _ROUTED.match(head, found.start("decision"))
    return "lines say 'Routing request … to …'" if is_router else None


FORMAT = LogFormat(
    name="production_stack",
    title="vLLM production-stack router log",
    versions="production-stack a6c01db",
    basis="inclusive",
    signature=(("Routing request",),),  # no JSON row has it: `sniff` tells the format
    fields=(
        time("ts", "ts"),
        text("request_id", "id"),
        tokens("attempt", "attempt"),
        text("session", "session"),
        text("replica", "replica"),
        text("provider", "provider"),
        text("model", "model"),
    ),
    reshape=_rows,
    sniff=_sniff,
)
