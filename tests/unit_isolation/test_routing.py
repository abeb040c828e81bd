"""What routing lost, beside what undoing it would cost in balance."""

import numpy as np

from replay.causes import attribute
from replay.lru import modelled_cached_tokens
from replay.routing import Routing, copies
from replay.rules import RULES, CacheRule
from replay.traffic import NOT_REPORTED, Chains, Flags, Traffic
from tests.unit_causes.captured import Row, cached_of
from tests.unit_causes.test_causes_captures import traffic_and_rows
from tests.unit_isolation.engines_that_share import agreed

PARTIAL = RULES["partial"]


def routing(traffic: Traffic, rule: CacheRule = PARTIAL, of: Flags | None = None) -> Routing:
    found = Routing()
    every = np.ones(len(traffic), np.bool_)
    found.add(traffic, attribute(traffic, rule), every if of is None else of, ("0", "1", "2"))
    return found


def turns(replicas: int) -> Traffic:
    """T88: nine turns of 1,000, 1,100, … 1,800 tokens, blocks of 20, dealt out in turn."""
    traffic = Traffic(
        prompt_tokens=np.array([1000 + 100 * turn for turn in range(9)]),
        cached_tokens=np.zeros(9, np.int64),
        chains=Chains.of([list(range(1, 51 + 5 * turn)) for turn in range(9)], 20),
        replica=np.array([turn % replicas for turn in range(9)]),
    )
    return traffic.with_cached(modelled_cached_tokens(traffic, PARTIAL, None))


def test_t88_the_loss_stands_beside_the_balance() -> None:
    one, three = turns(1), turns(3)
    sticky = routing(one)
    dealt = routing(three)
    assert (sticky.routed_tokens, dealt.routed_tokens) == (0, 3_300)
    assert dealt.prompt_tokens == 12_600
    assert dealt.routed_ratio == 3_300 / 12_600
    # 90 blocks; the last turn of replica 0 (turn 7) had 80 of them, of 1 85, of 2 90.
    assert (dealt.different_blocks, dealt.placed_blocks) == (90, 80 + 85 + 90)
    assert dealt.copies_ratio == 255 / 90
    # Of turns 1, 4 and 7: 1,000 + 300 + 300; then 1,100 + 600 and 1,200 + 600.
    assert sorted(dealt.computed_tokens.values()) == [1_600, 1_700, 1_800]
    assert dealt.imbalance_ratio == 1_800 / 1_700
    assert (sticky.copies_ratio, sticky.imbalance_ratio) == (1.0, 1.0)


def test_some_requests_only() -> None:
    """Of the first four alone: turns 1 and 4 on replica 0, one each on the others."""
    three = turns(3)
    some = np.arange(9) < 4
    found = routing(three, of=some)
    assert sorted(found.computed_tokens.values()) == [1_100, 1_200, 1_300]
    # Turn 2 finds 1,000 elsewhere, turn 3 1,100, turn 4 200 more than its own 1,000.
    assert found.routed_tokens == 1_000 + 1_100 + 200
    assert copies(three, some) == (65, 55 + 60 + 65)


def test_nothing_reported_is_no_data() -> None:
    silent = turns(3).with_cached(np.full(9, NOT_REPORTED))
    found = routing(silent)
    assert (found.routed_ratio, found.imbalance_ratio) == (None, None)
    assert found.copies_ratio == 255 / 90, "what was computed where is known all the same"


def test_real_routers_trade_balance_for_hits() -> None:
    """sglang-router dealing out the same 48 requests in turn, and sending each where its prompt is:
    by loops over the raw token ids."""
    told = {}
    for mode in ("round-robin", "cache-aware"):
        traffic, rows = traffic_and_rows(f"vllm-0.32.0-x2-sglang-router-0.3.2/{mode}")
        found = routing(traffic, RULES["vllm"].of_blocks(32))
        assert found.routed_tokens == sum(elsewhere(row, rows) for row in rows)
        computed = [
            sum(
                row["usage"]["prompt_tokens"] - cached_of(row)
                for row in rows
                if row["replica"] == n
            )
            for n in (0, 1)
        ]
        assert list(found.computed_tokens.values()) == computed
        assert found.imbalance_ratio == max(computed) / (sum(computed) / 2)
        told[mode] = found
    assert told["cache-aware"].routed_tokens == 0
    assert told["round-robin"].routed_tokens == 12_032


def elsewhere(row: Row, rows: list[Row]) -> int:
    """Whole blocks that only the other replica had computed by then."""
    own, other = int(cached_of(row)), 0
    for before in rows:
        if before["sent_unix"] + before["ttft_s"] > row["sent_unix"]:
            continue
        shared = agreed(before["prompt_token_ids"], row["prompt_token_ids"])
        shared = min(shared, len(before["prompt_token_ids"]), row["usage"]["prompt_tokens"] - 1)
        if before["replica"] == row["replica"]:
            own = max(own, shared // 32 * 32)
        else:
            other = max(other, shared // 32 * 32)
    return max(other - own, 0)
