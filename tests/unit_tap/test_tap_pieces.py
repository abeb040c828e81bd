"""However a stream is cut into pieces, the tap sees and shows the same."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixscope.tap.asking import UsageHider
from prefixscope.tap.usage import CHAT, Answer
from prefixscope.tap.watching import (
    WHOLE_BYTES,
    DocumentWatch,
    EventCutter,
    StreamWatch,
    UsageSearch,
    data_of,
)
from tests.unit_tap.scripted import USAGE, chat_answer, chat_stream

ASKED = {"n": 2, "stream_options": {"include_usage": True}}
CUTS = st.lists(st.integers(0, 3000), max_size=30)


def _pieces(whole: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    return [whole[start:end] for start, end in pairwise(places)]


@given(
    st.lists(st.sampled_from([b"data: a", b": b", b"\n", b"\n\n", b"\r\n", b"\r", b"", b"\xff"])),
    CUTS,
)
def test_events_joined_are_the_stream(parts: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(parts)
    cutter = EventCutter()
    found = [part for piece in _pieces(whole, cuts) for part in cutter.feed(piece)]
    assert b"".join(part for part, _ in found) + cutter.rest() == whole
    assert all(complete for _, complete in found)


@pytest.mark.parametrize("size", [1000, WHOLE_BYTES - 5, WHOLE_BYTES + 1000, 3 * WHOLE_BYTES])
@pytest.mark.parametrize("step", [997, 70_000, 10_000_000])
def test_an_oversized_event_passes_in_pieces_and_the_next_is_whole(size: int, step: int) -> None:
    whole = b"data: " + b"x" * size + b"\n\ndata: next\n\n"
    cutter = EventCutter()
    found = []
    for start in range(0, len(whole), step):
        found += cutter.feed(whole[start : start + step])
        # One piece more than may be kept, at most.
        assert len(cutter._rest) <= WHOLE_BYTES
    assert b"".join(part for part, _ in found) == whole
    assert found[-1] == (b"data: next\n\n", True)


@given(CUTS)
def test_what_is_learned_does_not_depend_on_the_cuts(cuts: list[int]) -> None:
    whole = b"".join(chat_stream(ASKED))
    answer = Answer(CHAT)
    watch = StreamWatch(answer)
    for number, piece in enumerate(_pieces(whole, cuts)):
        watch.feed(piece, float(number))
    watch.end()
    assert answer.usage == USAGE
    assert answer.finished
    assert answer.done
    assert answer.first_token_at is not None
    assert answer.response_id == "chatcmpl-1"


@given(CUTS)
def test_what_is_shown_does_not_depend_on_the_cuts(cuts: list[int]) -> None:
    """With several choices the earlier ends are known from streams before."""
    moved: dict[bytes, bytes] = {}
    whole, expected = b"".join(chat_stream(ASKED)), b"".join(chat_stream({"n": 2}))
    for _ in range(2):
        hider = UsageHider(moved, hide_null=True)
        shown = b"".join(map(hider.feed, _pieces(whole, cuts))) + hider.end()
    assert shown == expected


@given(CUTS, st.integers(0, 40))
def test_a_broken_stream_is_shown_as_far_as_it_came(cuts: list[int], missing: int) -> None:
    whole = b"".join(chat_stream({"stream_options": {"include_usage": True}}))
    whole = whole[: whole.index(b'"stop"') - missing]
    hider = UsageHider({}, hide_null=True)
    assert b"".join(map(hider.feed, _pieces(whole, cuts))) + hider.end() == whole


@given(CUTS)
def test_a_document_is_searched_alike_however_it_comes(cuts: list[int]) -> None:
    whole = chat_answer({"repeat": 20})
    searched, kept = Answer(CHAT), Answer(CHAT)
    search, watch = UsageSearch(searched), DocumentWatch(kept)
    for piece in _pieces(whole, cuts):
        search.feed(piece)
        watch.feed(piece, 0.0)
    watch.end()
    assert searched.usage == kept.usage == USAGE


def test_a_search_keeps_little() -> None:
    answer = Answer(CHAT)
    search = UsageSearch(answer)
    for _ in range(100):
        search.feed(b'"usage": {"' + b"x" * 20_000)
        assert len(search._rest) < 30_000
    search.feed(b'"usage": {"prompt_tokens": 7}')
    assert answer.usage == {"prompt_tokens": 7}


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: {}\n\n", b"{}"),
        (b"data:{}\r\n\r\n", b"{}"),
        (b"event: a\ndata: 1\ndata: 2\n\n", b"1\n2"),
        (b"data: 1\rdata: 2\r\r", b"1\n2"),
        (b": ping\n\n", b""),
        (b"\n\n", b""),
    ],
)
def test_data_of_an_event(event: bytes, data: bytes) -> None:
    assert data_of(event) == data


def test_a_field_that_changes_its_shape_takes_the_last() -> None:
    answer = Answer(CHAT)
    for details in (7, {"cached_tokens": 5}, "text"):
        answer.learn({"usage": {"prompt_tokens": 9, "prompt_tokens_details": details}})
    assert answer.counts() == {"prompt_tokens": 9}
    answer.learn({"usage": {"prompt_tokens_details": {"cached_tokens": 5}}})
    assert answer.counts() == {"prompt_tokens": 9, "cached_tokens": 5}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["usage", "choices", "delta", "response", "id", "type", "metrics",
                         "prompt_tokens", "prompt_tokens_details", "queue_time_ms", "error"]),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(
    st.lists(_JSON, max_size=5), st.sampled_from(["chat", "completions", "responses", "messages"])
)
def test_no_answer_is_too_odd(documents: list[Any], kind: str) -> None:
    answer = Answer(kind)
    watch = StreamWatch(answer)
    for document in documents:
        watch.feed(b"data: " + json.dumps(document).encode() + b"\n\n", 1.0)
    watch.end()
    for name, count in answer.counts().items():
        assert type(count) is int, name
        assert count >= 0
