"""Rows of the store as prompts to replay: in time, of one model, and what other scopes had."""

from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.curve import curve
from replay.recorded import Recorded
from replay.recorded_rows import RecordedRows, recorded_rows
from replay.rules import RULES

KEY = "a1b2c3d4"
BEGIN = datetime(2026, 11, 23, 9)  # noqa: DTZ001 - times of the store are UTC without a zone
_TYPES = {
    "ts": pa.timestamp("us"), "block_hashes": pa.list_(pa.uint64()),
    "content_hashes": pa.list_(pa.uint64()), "block_size": pa.int32(),
    "output_tokens": pa.int64(), "cached_tokens": pa.int64(), "text_bytes": pa.int64(),
    "trace_id": pa.string(),
}  # fmt: skip


def chains(**columns: list[object]) -> pa.Table:
    """An answer of request_chains: one request a second, 40 tokens each unless said otherwise."""
    count = len(columns["block_hashes"])
    texts = ("model_fingerprint", "scope", "replica", "session", "template", "tenant",
             "ineligible_reason")  # fmt: skip
    filled = {
        "ts": [BEGIN + timedelta(seconds=place) for place in range(count)],
        "prompt_tokens": [40] * count, "hash_key_id": [KEY] * count, "model": ["m"] * count,
        "hash_scope": ["global"] * count, "batch": [1] * count, "position": list(range(count)),
        **{name: [""] * count for name in texts},
        **{name: [None] * count for name in _TYPES if name not in ("ts", "block_hashes")},
    } | columns  # fmt: skip
    types = {"prompt_tokens": pa.int64(), "batch": pa.int64(), "position": pa.int64()} | _TYPES
    return pa.table(
        {name: pa.array(values, types.get(name, pa.string())) for name, values in filled.items()}
    )


def rows(**columns: list[object]) -> RecordedRows:
    found = recorded_rows(chains(**columns))
    assert found is not None
    return found


def recorded(**columns: list[object]) -> Recorded:
    return rows(**columns).recorded


def test_rows_become_prompts_in_order_of_time() -> None:
    late, early = BEGIN + timedelta(minutes=10), BEGIN
    found = recorded(block_hashes=[[7, 9], [7, 2**64 - 1]], ts=[late, early],
                     output_tokens=[5, None])  # fmt: skip
    prompts = found.prompts
    assert (found.model, found.token_hit_ratio) == ("m", None)
    assert prompts.blocks.tolist() == [0, 1, 0, 2]
    assert (prompts.arrived.tolist(), prompts.block_tokens) == ([0.0, 600.0], 16)
    assert prompts.output_tokens.tolist() == [0, 5]


def test_of_one_moment_they_come_as_they_were_written() -> None:
    found = recorded(block_hashes=[[1], [2], [3]], ts=[BEGIN] * 3, batch=[2, 1, 1],
                     position=[0, 9, 8], prompt_tokens=[21, 22, 23])  # fmt: skip
    assert found.prompts.prompt_tokens.tolist() == [23, 22, 21]


def test_what_cannot_be_replayed_is_left_out_and_counted() -> None:
    """Two of our own (16 tokens) stay; a trace's blocks of 512, rows without blocks of tokens and
    one that a gateway answered by itself go."""
    found = rows(
        block_hashes=[[1], None, [2], [3], [], [4], [5]],
        block_size=[32, None, None, 512, None, None, None],
        hash_key_id=[KEY, KEY, KEY, "", KEY, KEY, KEY],
        text_bytes=[None, None, None, None, None, 64, None],
        ineligible_reason=["", "", "lookup_skipped", "", "", "", "response_cache"],
    )
    assert (len(found.recorded.prompts), found.recorded.prompts.block_tokens) == (2, 16)
    assert (found.chainless_requests, found.other_grain_requests) == (3, 1)
    assert found.words() == (
        "2 requests of m; left out: 3 without a chain of blocks, 1 of blocks of another size"
    )
    assert recorded_rows(chains(block_hashes=[None, None])) is None
    assert recorded_rows(chains(block_hashes=[[1]], text_bytes=[64])) is None
    assert recorded_rows(chains(block_hashes=[])) is None


@pytest.mark.parametrize(
    "apart",
    [
        {"scope": ["a", "b"]},
        {"model_fingerprint": ["v1", "v2"]},
        {"hash_scope": ["trace", "trace"], "trace_id": ["1", "2"]},
        {"hash_scope": ["engine", "engine"], "replica": ["r1", "r2"]},
        {"hash_key_id": [KEY, "another"]},
    ],
)
def test_names_that_do_not_mean_the_same_are_no_hits(apart: dict[str, list[object]]) -> None:
    assert recorded(block_hashes=[[1], [1]], **apart).prompts.distinct_blocks == 2


def test_a_version_that_is_only_sometimes_told_is_one() -> None:
    found = recorded(block_hashes=[[1], [1]], model_fingerprint=["", "v1"])
    assert found.prompts.distinct_blocks == 1


def test_of_several_models_that_with_most_tokens_is_replayed() -> None:
    """10 of the 40 tokens that b's reporting request has were cached. The prompts of c are longer,
    but no cache can be asked for what they hold."""
    given_rows = chains(
        block_hashes=[[1], [1], [2], None], model=["a", "b", "b", "c"],
        cached_tokens=[40, 10, None, None], prompt_tokens=[40, 40, 40, 900],
    )  # fmt: skip
    found = recorded_rows(given_rows)
    assert found is not None
    kept = found.recorded
    assert (len(kept.prompts), kept.model, kept.token_hit_ratio) == (2, "b", 0.25)
    assert found.other_model_requests == 2
    named = recorded_rows(given_rows, "a")
    assert named is not None
    assert (len(named.recorded.prompts), named.recorded.token_hit_ratio) == (1, 1.0)
    assert recorded_rows(given_rows, "z") is None


def test_what_was_cached_is_of_requests_a_cache_could_serve() -> None:
    found = recorded(block_hashes=[[1], [1]], cached_tokens=[20, 0],
                     ineligible_reason=["", "lookup_skipped"])  # fmt: skip
    assert found.token_hit_ratio == 0.5


def test_larger_blocks_are_named_by_their_last() -> None:
    found = recorded(block_hashes=[[1, 2, 3, 4, 5], [1, 2, 3, 9]], prompt_tokens=[85, 70])
    larger = found.prompts.of_blocks(32)
    assert (larger.blocks.tolist(), larger.starts.tolist()) == ([0, 1, 0, 2], [0, 2, 4])
    with pytest.raises(ValueError, match="no multiple of 16"):
        found.prompts.of_blocks(24)


def test_whose_requests_are_is_kept() -> None:
    found = recorded(
        block_hashes=[[1], [2], [3], [4]], session=["s", "", "t", "s"],
        template=["", "chat", "agent", "chat"],
    )  # fmt: skip
    assert found.template is not None
    assert found.template.names == ["chat", "agent"]
    assert found.template.codes.tolist() == [-1, 0, 1, 0]
    assert found.tenant is None
    assert found.sessions is not None
    first, unknown, other, again = found.sessions.tolist()
    assert (first == again, len({first, unknown, other})) == (True, 3)
    assert recorded(block_hashes=[[1]]).sessions is None


def test_merged_prompts_are_known_by_their_contents_alone() -> None:
    """Two scopes say `10 11`, a third request says `11 10`: three chains, two texts."""
    found = recorded(
        block_hashes=[[1, 2], [3, 4], [5, 6]], scope=["a", "b", "b"],
        content_hashes=[[10, 11], [10, 11], [11, 10]],
    )  # fmt: skip
    assert found.prompts.blocks.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.merged is not None
    assert found.merged.blocks.tolist() == [0, 1, 0, 1, 2, 3]


def test_other_weights_stay_apart_when_scopes_are_merged() -> None:
    found = recorded(block_hashes=[[1], [1]], content_hashes=[[10], [10]],
                     model_fingerprint=["v1", "v2"])  # fmt: skip
    assert found.merged is not None
    assert found.merged.distinct_blocks == 2


@pytest.mark.parametrize("contents", [[[10], None], [None, None]])
def test_nothing_is_merged_where_a_row_does_not_tell_its_contents(contents: list[object]) -> None:
    assert recorded(block_hashes=[[1], [2]], content_hashes=contents).merged is None


def named(scope: str, contents: list[int]) -> list[int]:
    """A chain as engines name it: by the scope, and all contents so far."""
    mask = 2**64 - 1
    return [hash((scope, *contents[: end + 1])) & mask for end in range(len(contents))]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.integers(1, 3), min_size=1,
                                                           max_size=5)),
                min_size=1, max_size=30))  # fmt: skip
def test_one_scope_for_all_never_finds_less(requests: list[tuple[str, list[int]]]) -> None:
    """In a cache that is never full; what it finds is told by a set of prefixes."""
    found = recorded(
        block_hashes=[named(scope, contents) for scope, contents in requests],
        content_hashes=[contents for _, contents in requests],
        scope=[scope for scope, _ in requests],
        prompt_tokens=[16 * len(contents) + 1 for _, contents in requests],
    )
    assert found.merged is not None
    apart, merged = found_tokens(requests, False), found_tokens(requests, True)
    for prompts, expected in ((found.prompts, apart), (found.merged, merged)):
        told = curve(prompts, RULES["full"].of_blocks(16))
        assert told.tokens_at(told.enough_blocks) == expected
    assert merged >= apart


def found_tokens(requests: list[tuple[str, list[int]]], merged: bool) -> int:
    seen: set[tuple[object, ...]] = set()
    tokens = 0
    for scope, contents in requests:
        own = () if merged else (scope,)
        prefixes = [(*own, *contents[: end + 1]) for end in range(len(contents))]
        tokens += 16 * int(np.cumprod([prefix in seen for prefix in prefixes]).sum())
        seen.update(prefixes)
    return tokens
