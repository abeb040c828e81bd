"""Sets whose order changes: tools, and keys of JSON objects."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from replay.layout.edits import Sorting, tools_sorted
from replay.layout.json_spans import Span, in_order, spans_of
from replay.layout.kinds import Kind
from replay.layout.prompt import Prompt, Segment

Signature = tuple[bool, frozenset[str]]


@dataclass(frozen=True)
class Disorder:
    """The same set in different orders. `values`: the order in each prompt that has it; `places`:
    segment, begin and end of what is ordered."""

    kind: Kind
    values: Mapping[int, tuple[str, ...]]
    places: Mapping[int, tuple[int, int, int]]
    sorting: Sorting


def disorders(prompts: Mapping[int, Prompt]) -> Iterator[Disorder]:
    """Every set that some prompts have in different orders."""
    yield from _tools(prompts)
    yield from _json(prompts)


def _tools(prompts: Mapping[int, Prompt]) -> Iterator[Disorder]:
    orders: dict[int, tuple[str, ...]] = {}
    places: dict[int, tuple[int, int, int]] = {}
    for number, prompt in prompts.items():
        units = [(place, each.unit) for place, each in enumerate(prompt.segments) if each.unit]
        if units:
            orders[number] = tuple(dict.fromkeys(unit for _, unit in units))
            places[number] = (units[0][0], 0, 0)
    sets: dict[frozenset[str], set[tuple[str, ...]]] = {}
    for order in orders.values():
        sets.setdefault(frozenset(order), set()).add(order)
    disordered = {names for names, seen in sets.items() if len(seen) > 1}
    values = {n: order for n, order in orders.items() if frozenset(order) in disordered}
    if values:
        yield Disorder("tool_order", values, places, tools_sorted)


def _json(prompts: Mapping[int, Prompt]) -> Iterator[Disorder]:
    """Objects of the same keys in the same part of the prompt; of a conversation only those of one
    session are compared, as different ones answer different calls."""
    known: dict[str, list[Span]] = {}
    found: dict[tuple[str, Signature], dict[int, list[tuple[int, Span]]]] = {}
    for number, prompt in prompts.items():
        for place, segment in enumerate(prompt.segments):
            if "{" not in segment.text:
                continue
            if segment.text not in known:
                known[segment.text] = spans_of(segment.text)
            for span in (each for outer in known[segment.text] for each in outer.every()):
                signature = span.signature
                if signature is not None:
                    key = (_part(prompt, segment), signature)
                    found.setdefault(key, {}).setdefault(number, []).append((place, span))
    for (part, signature), by_prompt in found.items():
        least = min(map(len, by_prompt.values()))
        values = {n: _orders(spans[:least]) for n, spans in by_prompt.items()}
        if len(set(values.values())) > 1:
            places = {n: _first(spans, values) for n, spans in by_prompt.items()}
            kind: Kind = "key_order" if signature[0] else "tool_order"
            yield Disorder(kind, values, places, _sorting(part, signature))


def _part(prompt: Prompt, segment: Segment) -> str:
    if segment.unit:
        return f"{segment.unit}.{segment.name.rpartition('.')[2]}"
    if segment.role in ("system", "text"):
        return segment.name
    return f"{prompt.session}:{segment.name}"


def _orders(spans: Sequence[tuple[int, Span]]) -> tuple[str, ...]:
    return tuple(name for _, span in spans for name, _, _ in span.members)


def _first(
    spans: Sequence[tuple[int, Span]], values: Mapping[int, tuple[str, ...]]
) -> tuple[int, int, int]:
    """The first of the objects whose order is not that of every other prompt."""
    at = 0
    for place, span in spans:
        width = len(span.members)
        orders = {value[at : at + width] for value in values.values()}
        if len(orders) > 1:
            return place, span.begin, span.end
        at += width
    place, span = spans[0]
    return place, span.begin, span.end


def _sorting(part: str, signature: Signature) -> Sorting:
    """Sorts the objects of these names in this part of a prompt."""

    def chosen(span: Span) -> bool:
        return span.signature == signature

    def sort(prompt: Prompt) -> Prompt:
        texts = {}
        for place, segment in enumerate(prompt.segments):
            if "{" in segment.text and _part(prompt, segment) == part:
                texts[place] = in_order(segment.text, spans_of(segment.text), chosen)
        return prompt.with_texts(texts)

    return sort
