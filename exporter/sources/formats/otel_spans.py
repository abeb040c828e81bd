"""Spans -> flat rows: which spans are calls of a model, and what a row says of them."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from exporter.sources.formats import otel_attributes as names
from exporter.sources.formats.mapping import Row
from exporter.sources.formats.otel_attributes import Scalar
from exporter.sources.formats.reshape import LEFT_OUT

SpanId = tuple[str | None, str | None]

_CALLS = {
    names.OPENINFERENCE: ("llm",),
    names.OPERATION: ("chat", "text_completion", "generate_content"),
    names.REQUEST_TYPE: ("chat", "completion"),
}
_PARENTS = {
    names.OPENINFERENCE: ("chain", "agent"),
    names.OPERATION: ("invoke_agent", "create_agent", "execute_tool", "invoke_workflow"),
    names.TRACELOOP: ("workflow", "agent", "task", "tool"),
}
_OTHERS = {
    names.OPENINFERENCE: ("tool", "retriever", "embedding", "reranker", "guardrail", "evaluator",
                     "prompt"),
    names.OPERATION: ("embeddings", "retrieval", "rerank"),
    names.REQUEST_TYPE: ("embedding", "rerank"),
}  # fmt: skip
_ENGINE_SPAN = "llm_request"
_SGLANG_SCOPE = "sglang server"
_CLIENT_KIND = 3
_CANCELLED = ("abort", "cancel")

_COUNTED = ("call", "maybe")
NOT_A_CALL = "not_an_llm_call"
PARENT = "parent_span"
UNREADABLE = "unreadable_span"


@dataclass(slots=True)
class Span:
    """What is kept of a span. Ids are hex in lower case; times are as sent, in nanoseconds.

    `failed` is its status. `attributes` has those of the span over those of its resource.
    """

    name: str
    scope: str
    kind: int
    trace_id: str | None
    span_id: str | None
    parent_id: str | None
    start: Scalar | None
    end: Scalar | None
    failed: bool
    attributes: Mapping[str, Scalar]
    readable: bool = True

    @property
    def id(self) -> SpanId:
        """Ids of spans are unique inside their trace."""
        return self.trace_id, self.span_id


def rows_of(spans: list[Span]) -> Iterator[tuple[str | None, Row]]:
    """The rows of one export request, each with the service it comes from.

    Every span is a row, or a row that says why it is none of ours (`skip`), or is counted in a
    row `left_out`: ordinary spans outnumber calls, and one by one they would fill the store.
    """
    roles = [role_of(span) for span in spans]
    parents = _wrappers(spans, roles)
    others: Counter[str | None] = Counter()
    for span, own_role in zip(spans, roles, strict=True):
        service = _text(span.attributes.get(names.SERVICE))
        role = PARENT if span.id in parents else own_role
        if role == NOT_A_CALL:
            others[service] += 1
        else:
            yield service, _row(span) if role in _COUNTED else {"skip": role}
    for service, count in others.items():
        yield service, {LEFT_OUT: NOT_A_CALL, "rows": count}


def role_of(span: Span) -> str:
    """`call`, `maybe` (usage on a span that does not say what it is), or why it is neither."""
    if not span.readable:
        return UNREADABLE
    known = span.attributes
    usage = any(name in known for name in (*names.PROMPT_TOKENS, *names.CACHED_TOKENS))
    for words, role in (
        (_CALLS, "call"),
        (_PARENTS, PARENT if usage else NOT_A_CALL),
        (_OTHERS, NOT_A_CALL),
    ):
        if any(str(known.get(name, "")).lower() in listed for name, listed in words.items()):
            return role
    if usage:
        engine = span.name == _ENGINE_SPAN or "gen_ai.request.id" in known
        return "call" if engine else "maybe"
    return NOT_A_CALL


def _wrappers(spans: list[Span], roles_in_order: list[str]) -> set[SpanId]:
    """Spans with usage that only repeat the calls inside them.

    A call right inside a call is one call seen by two libraries: the inner one, nearer to the
    model, counts. A span that does not say what it is repeats whatever calls lie below it.
    """
    named = [(span, role) for span, role in zip(spans, roles_in_order, strict=True) if span.span_id]
    by_id = {span.id: span for span, _ in named}
    roles = {span.id: role for span, role in named}
    wrappers: set[SpanId] = set()
    passed: set[SpanId] = set()
    for key, span in by_id.items():
        if roles[key] not in _COUNTED:
            continue
        above = (span.trace_id, span.parent_id)
        if roles.get(above) == "call" and above != key:
            wrappers.add(above)
        while above in by_id and above not in passed:
            passed.add(above)
            if roles[above] == "maybe" and above != key:
                wrappers.add(above)
            above = (span.trace_id, by_id[above].parent_id)
    return wrappers


def _row(span: Span) -> Row:
    """The flat row of a call: its attributes under their own names, and what follows from them."""
    known = span.attributes
    start, end = _nanoseconds(span.start), _nanoseconds(span.end)
    row: dict[str, object] = {
        # In microseconds, since a floating-point number cannot hold nanoseconds since 1970.
        "start": _text(span.start) if start is None else start // 1000 or None,
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "side": "engine" if _of_engine(span) else "gateway",
        "replica": _replica(span),
        "replica_role": _role(span),
        "e2e_seconds": (end - start) / 1e9 if start and end and end >= start else None,
        "prefill_seconds": _prefill(span),
        "ttft_point": "client" if names.CLIENT_TTFT in known else "engine_arrival",
        "status": _status(span),
        "convention": _convention(span),
        "headers": {
            name.removeprefix(names.HEADER): _finite(value)
            for name, value in known.items()
            if name.startswith(names.HEADER)
        },
        "attributes": {
            name: _finite(value) for name, value in known.items() if not names.may_list(name)
        },
    }
    return {name: value for name, value in row.items() if value is not None}


def _nanoseconds(value: Scalar | None) -> int | None:
    """A time in whole nanoseconds; None where there is none that 64 bits can hold."""
    text = str(value)
    return int(text) if len(text) <= 20 and text.isascii() and text.isdecimal() else None


def _replica(span: Span) -> str | None:
    """Where the call was served. The resource of a client span is the caller, so there the
    address that was called comes first."""
    places = [_text(span.attributes.get(name)) for name in names.PLACE]
    address, port = (_text(span.attributes.get(name)) for name in names.SERVER)
    server = f"{address}:{port}" if address and port else address
    ordered = [server, *places] if span.kind == _CLIENT_KIND else [*places, server]
    return next((place for place in ordered if place), None)


def _role(span: Span) -> str | None:
    """SGLang writes the role of a split replica before the name of its root span."""
    if span.scope != _SGLANG_SCOPE:
        return None
    word = span.name.split(" ", 1)[0]
    return word if word in ("prefill", "decode") else None


def _prefill(span: Span) -> Scalar | None:
    """SGLang's prefill time includes the queue, vLLM's does not."""
    prefill, queue = span.attributes.get(names.PREFILL), span.attributes.get(names.QUEUE)
    if span.scope != _SGLANG_SCOPE or prefill is None:
        return None if prefill is None else _finite(prefill)
    if not isinstance(prefill, int | float) or not isinstance(queue, int | float):
        return None
    return _finite(prefill - queue) if prefill >= queue else None


def _status(span: Span) -> str:
    """How the call ended: an abandoned one is no error."""
    reasons = str(span.attributes.get(names.FINISH_REASONS, "")).lower()
    error = str(span.attributes.get(names.ERROR, "")).lower()
    if error == "499" or any(word in text for word in _CANCELLED for text in (reasons, error)):
        return "cancelled"
    return "error" if span.failed or error or reasons == "error" else "ok"


def _of_engine(span: Span) -> bool:
    """Whether the engine itself wrote the span: it knows what happened inside."""
    inside = (names.ENGINE_TTFT, names.QUEUE, names.PREFILL)
    by_name = span.name == _ENGINE_SPAN or span.scope == _SGLANG_SCOPE
    return by_name or any(name in span.attributes for name in inside)


def _convention(span: Span) -> str | None:
    """Says so where the names used are defined as parts of the prompt, or an engine counted."""
    defined = any(name in span.attributes for name in names.INCLUDED_CACHED)
    return "inclusive" if defined or _of_engine(span) else None


def _text(value: Scalar | None) -> str | None:
    text = "" if value is None else str(value)[: names.TEXT_LIMIT]
    return text or None


def _finite(value: Scalar) -> Scalar:
    """A value as it may stand in a line: JSON has no number that is not finite."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def is_tally(row: Row) -> bool:
    """Whether a row that was sent counts spans as ours do: any other text may be a prompt."""
    count = row.get("rows")
    return row.get(LEFT_OUT) == NOT_A_CALL and isinstance(count, int) and 0 <= count < 1_000_000
