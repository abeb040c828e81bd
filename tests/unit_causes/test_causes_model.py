"""The modelled cache against the published figures of traces, and the book of what was held."""

import gzip
import json

import numpy as np
import pytest

from exporter.blocks.stays import StayReader
from exporter.blocks.wire import Batch, StoredTokens
from replay.causes import CAUSES, attribute
from replay.lru import LruCache, modelled_cached_tokens
from replay.residency import ResidencyBook
from replay.rules import RULES
from replay.traffic import Chains, Traffic
from tests.log_path import SHARED

TRACES = SHARED / "traces"


def trace(name: str) -> Traffic:
    path = TRACES / "mooncake-fast25" / f"{name}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"public traces are not here: {path} is missing")
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    return Traffic(
        prompt_tokens=np.array([row["input_length"] for row in rows]),
        cached_tokens=np.zeros(len(rows), np.int64),
        chains=Chains.of([row["hash_ids"] for row in rows], 512),
    )


@pytest.mark.parametrize("name", ["conversation_trace", "synthetic_trace"])
def test_the_unlimited_cache_is_the_published_one_and_never_seen_is_the_rest(name: str) -> None:
    published = json.loads((TRACES / "EXPECTED.json").read_text())[f"mooncake-fast25/{name}"]
    requests = trace(name)
    partial, full = RULES["partial"], RULES["full"]
    cached = modelled_cached_tokens(requests, partial, None)
    whole = requests.prompt_tokens.sum()
    assert whole == published["prompt_tokens"]
    assert cached.sum() / whole == pytest.approx(
        published["token_hit_partial_last_block"], abs=1e-6
    )
    for rule, ratio in ((partial, "token_hit_partial_last_block"), (full, "token_hit_full_blocks")):
        totals = attribute(requests, rule).totals()
        seen = 1 - (totals["new"] + totals["layout"] + totals["rounding"]) / whole
        assert seen == pytest.approx(published[ratio], abs=1e-6)
        assert sum(totals[name] for name in CAUSES) == whole


def test_the_least_recently_used_block_goes_first_and_ends_before_beginnings() -> None:
    cache = LruCache(3)
    assert cache.serve([1, 2, 3]) == 0
    assert cache.serve([4]) == 0  # 3 made room: the end of the prompt
    assert cache.serve([1, 2, 3]) == 2  # 3 comes again and 4 goes
    assert cache.serve([4]) == 0
    assert cache.serve([9, 8, 7, 6]) == 0  # longer than the cache: its beginning stays
    assert cache.serve([9, 8, 7, 6]) == 3
    with pytest.raises(ValueError, match="at least 1"):
        LruCache(0)


def test_answers_take_memory_too() -> None:
    chains = Chains.of([[1, 2], [3, 4], [1, 2]], 16)
    prompt = np.array([33, 33, 33])
    requests = Traffic(
        prompt_tokens=prompt, cached_tokens=prompt * 0, chains=chains,
        output_tokens=np.array([1, 16, 1]),
    )  # fmt: skip
    # The second answer fills the third block of its prompt: 33 + 16 - 1 tokens have KV.
    assert modelled_cached_tokens(requests, RULES["full"], 4).tolist() == [0, 0, 16]
    assert modelled_cached_tokens(requests, RULES["full"], 4, answers=False).tolist() == [0, 0, 32]


def alike(prompts: int, prompt_tokens: int, grain: int, **columns: list[bool]) -> Traffic:
    """The same prompt over and over."""
    chain = list(range(1, prompt_tokens // grain + 1))
    return Traffic(
        prompt_tokens=np.full(prompts, prompt_tokens),
        cached_tokens=np.zeros(prompts, np.int64),
        chains=Chains.of([chain] * prompts, grain),
        **{name: np.array(values) for name, values in columns.items()},  # type: ignore[arg-type]
    )


def test_a_modelled_cache_keeps_no_prompt_below_the_minimum() -> None:
    """Caching begins at 1,024 tokens: of 800 nothing is served, of 1,152 all but the last 128."""
    openai = RULES["openai"]
    assert modelled_cached_tokens(alike(2, 800, 16), openai, None).tolist() == [0, 0]
    assert modelled_cached_tokens(alike(2, 1152, 16), openai, None).tolist() == [0, 1024]


def test_a_skipped_look_up_is_served_nothing_and_leaves_its_blocks() -> None:
    requests = alike(3, 80, 16, ineligible=[True, False, True], kept=[True, True, True])
    assert modelled_cached_tokens(requests, RULES["full"], None).tolist() == [0, 64, 0]


@pytest.mark.parametrize(
    # In tokens one by one: 80 hold the prompt, 48 hold the first three of its blocks.
    ("capacity_tokens", "expected"), [(None, 79), (80, 79), (48, 48)],
)  # fmt: skip
def test_a_cache_that_counts_token_by_token_is_modelled_by_the_blocks_of_the_chain(
    capacity_tokens: int | None, expected: int
) -> None:
    found = modelled_cached_tokens(alike(2, 80, 16), RULES["llama_cpp"], capacity_tokens)
    assert found.tolist() == [0, expected]


def test_a_lifetime_is_no_matter_of_memory() -> None:
    with pytest.raises(ValueError, match="lifetime"):
        modelled_cached_tokens(alike(2, 1600, 16), RULES["anthropic"], None)


def test_each_replica_keeps_its_own_block_size() -> None:
    """Offloading connectors put placeholders of 0 tokens in between."""
    reader = StayReader("a key")
    for replica, size in ((0, 16), (1, 64), (0, 0)):
        tokens = list(range(size))
        reader.take(replica, Batch(1.0, [StoredTokens([7], size, token_ids=tokens)], None, 0))
    assert reader.block_tokens == {0: 16, 1: 64}


def test_stays_begin_and_end_as_events_tell() -> None:
    book = ResidencyBook()
    book.reset(0)  # nothing was told before
    book.store(0, 1.0, [("device", 10), ("device", 11)], [100, 101])
    book.end_batch(0, 1.0)
    book.store(0, 2.0, [("device", 10)], [100])  # one more copy
    book.remove(0, 3.0, [("device", 10), ("device", 11), ("device", 12)])
    book.end_batch(0, 3.0)
    assert book.name_of(0, ("device", 10)) == 100
    assert book.name_of(0, ("device", 11)) == 0
    book.reset(0)  # published with the next batch: it was over at the end of the one before
    book.store(0, 9.0, [("device", 13)], [0])  # a block without a name is nobody's
    stays, resets = book.told()
    told = sorted(
        zip(stays.names.tolist(), stays.since.tolist(), stays.until.tolist(), strict=True)
    )
    assert told == [(100, 1.0, 3.0), (101, 1.0, 3.0)]
    assert (resets.replica.tolist(), resets.seconds.tolist()) == ([0], [3.0])
