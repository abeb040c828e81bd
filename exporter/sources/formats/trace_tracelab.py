"""TraceLab rounds: requests of coding agents with the provider's own cache counters.

Who publishes them: TraceLab, made from Claude Code and Codex transcripts. `input_tokens_total` is
inclusive, `prefix_tokens` is what the provider read from its cache. A round begins with the last
thing that was put in before the answer's first sign; the times are of the client's transcript, so
there is no first-token time. Versions read: TraceLab 0b8a262.
"""

from collections.abc import Iterable

from exporter.sources.formats.documents import objects
from exporter.sources.formats.mapping import LogFormat, Row, text, time, tokens
from exporter.sources.formats.reshape import one_object

_PUT_IN = ("user_message", "tool_result")
_LISTS = ("timing_events", "tools")


def _rounds(line: str) -> Iterable[Row]:
    row = one_object(line)
    events = objects(row, "timing_events")
    start = events[0].get("timestamp") if events else None
    for event in events:
        if event.get("event_type") not in _PUT_IN:
            break
        start = event.get("timestamp")
    index = row.get("round_index")
    turn = index + 1 if isinstance(index, int) else None
    kept = {name: value for name, value in row.items() if name not in _LISTS}
    return [kept | {"start": start, "turn": turn}]


FORMAT = LogFormat(
    name="tracelab",
    title="TraceLab rounds",
    versions="TraceLab 0b8a262",
    basis="inclusive",
    signature=(("input_tokens_total",), ("prefix_tokens",), ("round_id", "round_index")),
    fields=(
        time("ts", "start"),
        text("request_id", "round_id"),
        text("session", "session_id"),
        tokens("turn", "turn"),
        text("provider", "provider"),
        text("model", "model"),
        tokens("prompt_tokens", "input_tokens_total"),
        tokens("cached_tokens", "prefix_tokens"),
        tokens("cache_write_tokens", "claude_cache_creation_input_tokens"),
        tokens("output_tokens", "output_tokens"),
    ),
    reshape=_rounds,
)
