"""What real engines reused, predicted and explained request by request.

Expected values come from the engines' own counts and from the raw token ids, compared with loops.
"""

from functools import cache

import numpy as np
import pytest

from replay.causes import CAUSES, attribute
from replay.columns import Columns, Fleet
from replay.depths import Depths
from replay.lru import agreement
from replay.residency import replicas_by_events
from replay.rules import RULES
from replay.traffic import Numbers, Traffic
from replay.ways import Way
from tests.unit_causes.captured import (
    BLOCK_TOKENS,
    Row,
    cached_of,
    events_of,
    is_serial,
    rows_of,
    traffic_of,
)

VLLM = RULES["vllm"].of_blocks(BLOCK_TOKENS)
WITH_EVENTS = [
    f"vllm-0.32.0/{name}" for name in ("main", "evict", "restart", "external", "otel", "dp2")
]
ROUTED = [
    f"vllm-0.32.0-x2-{router}/{mode}"
    for router, modes in {
        "sglang-router-0.3.2": ("off", "round-robin", "cache-aware"),
        "vllm-router-0.1.17": ("off", "round-robin", "cache-aware-no-render", "cache-aware"),
    }.items()
    for mode in modes
]


@cache
def ranks_of_dp2() -> Numbers:
    """The rank of each request, from the events it caused. One request was cached as far as it
    could be and caused none; both ranks held all of its blocks."""
    stays, _ = events_of("vllm-0.32.0/dp2")
    ranks = replicas_by_events(traffic_of(rows_of("vllm-0.32.0/dp2")), stays)
    assert np.flatnonzero(ranks < 0).tolist() == [32]
    return np.maximum(ranks, 0)


def traffic_and_rows(capture: str) -> tuple[Traffic, list[Row]]:
    rows = rows_of(capture)
    if capture.endswith("dp2"):
        return traffic_of(rows, ranks_of_dp2()), rows
    replicas = np.array([row["replica"] for row in rows]) if capture in ROUTED else None
    return traffic_of(rows, replicas), rows


@pytest.mark.parametrize(
    ("capture", "usable_blocks", "serial", "differing"),
    [
        # The log does not tell of the reset before request 53.
        ("main", 511, 43, {53: (768, 0)}),
        ("restart", 511, 30, {}),
        # A connector keeps every block on disk.
        ("external", None, 30, {}),
        # What was left of this prompt depends on which of the answers' blocks were lost first.
        ("evict", 71, 30, {32: (256, 224)}),
    ],
)
def test_the_log_and_the_engines_block_count_predict_what_was_cached(
    capture: str, usable_blocks: int | None, serial: int, differing: dict[int, tuple[int, int]]
) -> None:
    traffic, rows = traffic_and_rows(f"vllm-0.32.0/{capture}")
    assert sum(is_serial(rows)) == serial
    found = agreement(traffic, VLLM, usable_blocks)
    observed = [cached_of(row) for row in rows]
    wrong = {
        row: (int(found.predicted_tokens[row]), observed[row])
        for row in range(len(rows))
        if found.predicted_tokens[row] != observed[row]
    }
    # Nothing differs under concurrency either.
    assert wrong == differing
    assert np.flatnonzero(found.differs).tolist() == list(differing)
    named = [row for row in differing if found.depends_on_answers[row]]
    assert named == ([32] if capture == "evict" else [])


@pytest.mark.parametrize(("capture", "serial"), [("main", 43), ("evict", 30), ("dp2", 41)])
def test_events_predict_every_request(capture: str, serial: int) -> None:
    traffic, rows = traffic_and_rows(f"vllm-0.32.0/{capture}")
    assert sum(is_serial(rows)) == serial
    stays, resets = events_of(f"vllm-0.32.0/{capture}")
    unknown = traffic.with_cached(np.zeros(len(rows), np.int64))
    columns = Columns.of(unknown, VLLM, Fleet(resets=resets, stays=stays))
    held = Depths.of(columns).tokens[np.argsort(columns.timeline.order), Way.HELD]
    assert held.tolist() == [cached_of(row) for row in rows]


@pytest.mark.parametrize(
    ("capture", "heard"),
    [
        *((capture, False) for capture in (*WITH_EVENTS, *ROUTED)),
        *((capture, True) for capture in WITH_EVENTS),
    ],
)
def test_everything_is_explained_and_new_and_layout_are_what_no_prompt_had(
    capture: str, heard: bool
) -> None:
    traffic, rows = traffic_and_rows(capture)
    fleet = Fleet()
    if heard:
        stays, resets = events_of(capture)
        fleet = Fleet(resets=resets, stays=stays)
    found = attribute(traffic, VLLM, fleet)
    assert not found.tokens["unexplained"].any()
    assert not found.tokens["unserved"].any()
    total = sum(found.tokens[name] for name in CAUSES)
    assert (total + found.cached_tokens == found.prompt_tokens).all()
    unseen = found.tokens["layout"] + found.tokens["new"]
    wanted = never_seen(rows)
    assert list(zip(unseen.tolist(), found.tokens["rounding_split"].tolist(), strict=True)) == [
        (ceiling - deepest - split, split) for ceiling, deepest, split in wanted
    ]


def never_seen(rows: list[Row]) -> list[tuple[int, int, int]]:
    """(ceiling, deepest whole block any earlier prompt or the cache had, tokens shared behind it
    in whole hashes) of each request, from token ids."""
    found = []
    order = sorted(range(len(rows)), key=lambda row: (rows[row]["sent_unix"], row))
    place = {row: number for number, row in enumerate(order)}
    for number, row in enumerate(rows):
        own = row["prompt_token_ids"]
        ceiling = (len(own) - 1) // BLOCK_TOKENS * BLOCK_TOKENS
        longest = max(
            (agreed(own, rows[other]["prompt_token_ids"]) for other in order[: place[number]]),
            default=0,
        )
        deepest = min(max(longest // BLOCK_TOKENS * BLOCK_TOKENS, cached_of(row)), ceiling)
        split = max(0, min(longest // 16 * 16, ceiling) - deepest)
        found.append((ceiling, deepest, split))
    return found


def agreed(one: list[int], other: list[int]) -> int:
    for place, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return place
    return min(len(one), len(other))


def test_t94_a_reset_is_evicted_by_the_log_alone_and_reset_once_events_tell() -> None:
    traffic, _ = traffic_and_rows("vllm-0.32.0/main")
    stays, resets = events_of("vllm-0.32.0/main")
    by_log = attribute(traffic, VLLM)
    by_events = attribute(traffic, VLLM, Fleet(resets=resets, stays=stays))
    assert by_log.tokens["evicted"][53] == 768
    assert by_events.tokens["reset"][53] == 768
    for name in CAUSES:
        others = np.arange(len(traffic)) != 53
        assert (by_log.tokens[name][others] == by_events.tokens[name][others]).all()


def test_the_other_rank_is_where_dp2_lost_what_main_did_not() -> None:
    """The same requests: what two caches of their own cost is named routed."""
    main, _ = traffic_and_rows("vllm-0.32.0/main")
    dp2, rows = traffic_and_rows("vllm-0.32.0/dp2")
    found = attribute(dp2, VLLM)
    cached = main.cached_tokens[: len(rows)].sum()
    assert found.totals()["routed"] == cached - sum(cached_of(row) for row in rows) == 5344


def test_every_missed_token_of_evict_is_named() -> None:
    traffic, rows = traffic_and_rows("vllm-0.32.0/evict")
    totals = attribute(traffic, VLLM).totals()
    # 36 requests of 28,017 prompt tokens; three tenants keep two prompts each apart.
    assert sum(row["usage"]["prompt_tokens"] for row in rows) == 28_017
    assert {name: tokens for name, tokens in totals.items() if tokens} == {
        "evicted": 15_968,
        "isolated": 2_816,
        "new": 3_232,
        "rounding": 849,
        "rounding_split": 320,
    }
