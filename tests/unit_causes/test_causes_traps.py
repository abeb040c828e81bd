"""Known traps of explaining a low hit ratio, each with its right answer by hand."""

import numpy as np
import pytest

from replay.causes import Causes, attribute
from replay.columns import Fleet
from replay.lru import modelled_cached_tokens
from replay.rules import RULES, CacheRule
from replay.traffic import NOT_REPORTED, Chains, Moments, Stays, Traffic


def traffic(
    chains: list[list[int]],
    prompt: list[int],
    grain: int,
    cached: list[int] | None = None,
    contents: list[list[int]] | None = None,
    **columns: list[float],
) -> Traffic:
    """Requests in a row; chains are of small numbers that stand for hashes."""
    return Traffic(
        prompt_tokens=np.array(prompt),
        cached_tokens=np.array(cached if cached is not None else [0] * len(prompt)),
        chains=Chains.of(chains, grain, contents),
        **{name: np.array(values) for name, values in columns.items()},  # type: ignore[arg-type]
    )


def causes_of(found: Causes, request: int) -> dict[str, int]:
    """What took tokens of one request, details left out."""
    details = ("reset_replica_gone", "rounding_split")
    return {
        name: int(tokens[request])
        for name, tokens in found.tokens.items()
        if tokens[request] and name not in details
    }


def whole(block_tokens: int, **more: int) -> CacheRule:
    return CacheRule("test", "test", block_tokens=block_tokens, **more)


@pytest.mark.parametrize(("block_tokens", "expected"), [(784, 0), (16, 240)])
def test_t83_a_shared_prefix_shorter_than_a_block_is_rounding(
    block_tokens: int, expected: int
) -> None:
    """240 tokens are shared, then 1,360 of each request's own."""
    shared = list(range(1, 16))
    chains = [[*shared, *range(1000 * n, 1000 * n + 85)] for n in (1, 2)]
    found = attribute(traffic(chains, [1600, 1600], 16), whole(block_tokens))
    # By blocks of 784 nothing can be reused, and this is not "nothing shared": the tokens shared
    # inside the first block that differs stand apart. By 16 they were there and were evicted.
    assert found.tokens["evicted"][1] == expected
    assert found.tokens["rounding_split"][1] == 240 - expected
    new = causes_of(found, 1)["new"]
    assert new == (1599 // block_tokens * block_tokens) - 240
    assert f"blocks of {block_tokens} tokens" in whole(block_tokens).words()


def test_t84_the_ceiling_of_an_identical_repeat() -> None:
    prompt = np.array([1024, 1025, 2047, 4096])
    assert whole(1024).ceiling_tokens(prompt).tolist() == [0, 1024, 1024, 3072]


def test_t85_a_setting_that_gives_up_the_last_block_is_rounding_and_no_loss() -> None:
    """Identical prompts of 5,500 tokens, blocks of 1,072: 5,360 without, 4,288 with."""
    chains = [[1, 2, 3, 4, 5]] * 2
    for held_back, expected in ((0, 5360), (1, 4288)):
        rule = whole(1072, held_back_blocks=held_back)
        found = attribute(traffic(chains, [5500] * 2, 1072, [0, expected]), rule)
        assert rule.ceiling_tokens(np.array([5500])).tolist() == [expected]
        assert causes_of(found, 1) == {"rounding": 5500 - expected}
    assert "of matched blocks the last 1 given up" in rule.words()


def test_t85_what_is_given_up_of_a_match_is_rounding_wherever_it_ends() -> None:
    """Of five blocks the first three were there: two are served, and the third is no eviction. Of
    the two behind it one is new, and the last none that could be served at best. The modelled cache
    gives up as much."""
    chains, rule = [[1, 2, 3, 4, 5], [1, 2, 3, 8, 9], [7, 8, 9, 1, 2]], RULES["vllm_eagle"]
    told = traffic(chains, [5500] * 3, 1072, [0, 2144, 0])
    found = attribute(told, rule)
    assert causes_of(found, 1) == {"new": 1072, "rounding": 1072 + 1072 + 140}
    assert found.tokens["rounding_split"].tolist() == [0, 0, 0]
    assert causes_of(found, 2) == {"new": 4288, "rounding": 1072 + 140}
    assert modelled_cached_tokens(told, rule, None).tolist() == [0, 2144, 0]


def test_t86_what_another_adapter_computed_is_isolated_and_not_evicted() -> None:
    """The same 1,000 tokens to base, adapter 1, adapter 1; blocks of 10."""
    contents = [list(range(100))] * 3
    chains = [[scope * 1000 + block + 1 for block in range(100)] for scope in (0, 1, 1)]
    found = attribute(
        traffic(chains, [1000] * 3, 10, [0, 0, 990], contents, scope=[0, 1, 1]), whole(10)
    )
    assert causes_of(found, 1) == {"isolated": 990, "rounding": 10}
    assert causes_of(found, 2) == {"rounding": 10}


def test_t87_nothing_is_said_of_what_stands_behind_an_image() -> None:
    """100 tokens, 576 of an image, 20: the names end where the image begins; blocks of 20."""
    found = attribute(traffic([[1, 2, 3, 4, 5]] * 2, [696, 696], 20, [0, 100]), whole(20))
    assert causes_of(found, 1) == {"unexplained": 580, "rounding": 16}


def test_t88_routing_and_layout_are_told_apart() -> None:
    """Nine turns of 1,000, 1,100, … 1,800 tokens, blocks of 20 in place of single tokens."""
    chains = [list(range(1, 51 + 5 * turn)) for turn in range(9)]
    prompt = [1000 + 100 * turn for turn in range(9)]
    partial = RULES["partial"]
    for replicas, cached, routed in ((1, 10_800, 0), (3, 7_500, 3_300)):
        turns = traffic(chains, prompt, 20, replica=[turn % replicas for turn in range(9)])
        turns = turns.with_cached(modelled_cached_tokens(turns, partial, None))
        totals = attribute(turns, partial).totals()
        assert int(turns.cached_tokens.sum()) == cached
        assert (totals["routed"], totals["new"]) == (routed, 1_800)


def test_t89_a_routing_key_that_parts_equal_prefixes_is_routed_once() -> None:
    """Two conversations with the same first 4,000 tokens, each kept on a replica by its key:
    later turns hit, and the first of the second is a loss to routing."""
    shared = list(range(1, 41))
    chains = [[*shared, 100], [*shared, 100, 101], [*shared, 200], [*shared, 200, 201]]
    found = attribute(
        traffic(chains, [4150, 4250, 4150, 4250], 100, [0, 4100, 0, 4100], replica=[0, 0, 1, 1]),
        whole(100),
    )
    assert causes_of(found, 2) == {"routed": 4000, "new": 100, "rounding": 50}
    assert causes_of(found, 3) == {"new": 100, "rounding": 50}


@pytest.mark.parametrize(("start", "cause"), [(460.0, "expired"), (140.0, "unserved")])
def test_t90_t91_expired_only_after_the_lifetime_else_the_provider_did_not_serve_it(
    start: float, cause: str
) -> None:
    """50,000 stable tokens: the first request ends 20 s past the hour having read them, the
    second begins at 7:40 and reads none. Within the lifetime of five minutes the same is no fault
    of the prompt, and nothing here explains it."""
    chains = [list(range(1, 51))] * 2
    found = attribute(
        traffic(
            chains, [50_000] * 2, 1000, [50_000, 0],
            looked_up=[0.0, start], ready=[10.0, start + 1], ended=[20.0, start + 9],
            eligible_tokens=[50_000, 50_000],
        ),
        RULES["anthropic"],
    )  # fmt: skip
    assert causes_of(found, 1) == {cause: 49_999, "rounding": 1}


def test_t92_prompts_below_the_minimum_are_ineligible() -> None:
    """100 equal prompts of 800 tokens where caching begins at 1,024."""
    found = attribute(traffic([[1, 2, 3, 4, 5, 6]] * 100, [800] * 100, 128), RULES["openai"])
    assert found.totals()["ineligible"] == 80_000
    assert sum(found.totals().values()) == 80_000


def test_t93_workload_routing_and_a_stale_index_add_up() -> None:
    """10,000 tokens of which the best replica held 8,000, the chosen one 5,000, and 4,000 were
    served."""
    chains = [list(range(1, 81)), list(range(1, 51)), [*range(1, 81), *range(900, 920)]]
    stays = Stays(
        np.arange(1, 51, dtype=np.uint64),
        np.ones(50, np.int64),
        np.zeros(50),
        np.full(50, np.inf),
        np.zeros(50, np.int64),
    )
    found = attribute(
        traffic(chains, [8000, 5000, 10_000], 100, [0, 0, 4000], replica=[0, 1, 1],
                looked_up=[1.0, 2.0, 3.0]),
        RULES["partial"],
        Fleet(stays=stays),
    )  # fmt: skip
    assert causes_of(found, 2) == {"unserved": 1000, "routed": 3000, "new": 2000}


def test_t94_after_a_restart_the_prompt_is_not_blamed() -> None:
    """The same prompt 30 times over 28 restarts, a miss after each and the first."""
    rows = 30
    found = attribute(
        traffic([[1, 2, 3]] * rows, [49] * rows, 16, [0] * 29 + [48],
                looked_up=[float(row) for row in range(rows)]),
        whole(16),
        Fleet(resets=Moments.of([(0, row + 0.5) for row in range(28)])),
    )  # fmt: skip
    assert causes_of(found, 0) == {"new": 48, "rounding": 1}
    assert all(causes_of(found, row) == {"reset": 48, "rounding": 1} for row in range(1, 29))
    assert found.totals()["new"] == 48


def test_a_new_version_of_the_model_is_redeployed_and_a_replica_that_is_gone_reset() -> None:
    contents = [[1, 2, 3]] * 3
    chains = [[11, 12, 13], [21, 22, 23], [21, 22, 23]]
    found = attribute(
        traffic(chains, [49] * 3, 16, contents=contents, deployment=[0, 1, 1],
                replica=[0, 1, 2], looked_up=[1.0, 2.0, 3.0]),
        whole(16),
        Fleet(gone=Moments.of([(1, 2.5)])),
    )  # fmt: skip
    assert causes_of(found, 1) == {"redeployed": 48, "rounding": 1}
    assert causes_of(found, 2) == {"reset": 48, "rounding": 1}
    assert found.tokens["reset_replica_gone"][2] == 48


def test_a_request_beside_it_was_computing_the_same() -> None:
    found = attribute(
        traffic([[1, 2]] * 3, [33] * 3, 16, looked_up=[1.0, 1.5, 3.0], ready=[2.0, 2.5, 4.0],
                ended=[5.0, 5.0, 5.0]),
        whole(16),
    )  # fmt: skip
    assert causes_of(found, 1) == {"concurrent": 32, "rounding": 1}
    assert causes_of(found, 2) == {"evicted": 32, "rounding": 1}


def test_requests_of_one_moment_do_not_find_what_nobody_knows_was_ready() -> None:
    """Whole seconds, and neither a first token nor an end: the first two are of one second."""
    found = attribute(
        traffic([[1, 2]] * 3, [33] * 3, 16, looked_up=[1.0, 1.0, 2.0], ready=[np.nan] * 3,
                ended=[np.nan] * 3),
        whole(16),
    )  # fmt: skip
    assert causes_of(found, 1) == {"concurrent": 32, "rounding": 1}
    assert causes_of(found, 2) == {"evicted": 32, "rounding": 1}


def test_no_cached_count_no_causes_but_its_blocks_were_computed() -> None:
    found = attribute(traffic([[1, 2]] * 2, [33] * 2, 16, [NOT_REPORTED, 0]), whole(16))
    assert causes_of(found, 0) == {}
    assert not found.reported[0]
    assert causes_of(found, 1) == {"evicted": 32, "rounding": 1}


def test_cached_tokens_that_nothing_had_brought_there_were_warm_before_the_log() -> None:
    found = attribute(traffic([[1, 2, 3]] * 2, [49] * 2, 16, [32, 48]), whole(16))
    assert found.warm_before_log_tokens.tolist() == [32, 0]
    assert causes_of(found, 0) == {"new": 16, "rounding": 1}


def test_t97_blocks_that_do_not_go_into_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="one must be a multiple of the other"):
        attribute(traffic([[1]], [20], 16), whole(24))


def test_nothing_is_nothing() -> None:
    totals = attribute(traffic([], [], 16), whole(16)).totals()
    assert not any(totals.values())
