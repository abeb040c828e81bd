"""What an experiment comes to, in sentences, from results and differences as given."""

from dataclasses import replace

import pytest

from replay.arms import arm_named
from replay.clock import Clock
from replay.differences import Difference
from replay.experiment import Experiment
from replay.gain import Gain
from replay.gain_words import arm_row, gain_words, split_words
from replay.rules import RULES
from replay.serving import ArmResult, Moved
from replay.setting import Setting

# Prefill seconds of an arm, and mean time to its first tokens.
Told = dict[str, tuple[float, float]]
USUAL: Told = {"off": (4000, 9.0), "round-robin": (3000, 5.0), "sticky": (2600, 4.0)}


def result(arm: str, prefill_seconds: float, ttft: float) -> ArmResult:
    return ArmResult(
        arm=arm, requests=10, refused_requests=0, prompt_tokens=100, cached_tokens=25,
        moved={"host": Moved(5, 9), "disk": Moved(2, 0)}, evicted_blocks=0, imbalance_ratio=1.0,
        prefill_seconds=prefill_seconds, ttft_mean_seconds=ttft, ttft_seconds={},
    )  # fmt: skip


def found(told: Told, *differences: Difference, days: float | None = 2.0) -> Experiment:
    arms = tuple(map(arm_named, told))
    setting = Setting(
        arms=arms, rule=RULES["full"].of_blocks(16), replicas=4, capacity_blocks=10,
        clock=Clock(prefill_tokens_per_second=1.0),
    )  # fmt: skip
    return Experiment(
        setting=setting, arms=arms, results=[result(arm, *each) for arm, each in told.items()],
        differences=list(differences), gain=None, by={}, bound_ratio=None, days=days,
    )  # fmt: skip


def prefill(arm: str, base: str, change: float, low: float, high: float) -> Difference:
    return Difference(arm, base, "prefill_seconds", change, low, high)


def test_caching_and_routers_come_first_by_the_day_and_with_their_intervals() -> None:
    """Of two days, on two GPUs a replica: what an arm takes less in all is what it saves a day."""
    sure = prefill("off", "round-robin", 1000, 900, 1100)
    unsure = prefill("sticky", "round-robin", -400, -500, -300)
    assert gain_words(found(USUAL, sure, unsure), 2) == [
        "Caching saves 1,000 GPU-seconds of prefill a day (off → round-robin; 95 %: 900 to 1,100).",
        ("Routing by sticky saves 400 GPU-seconds of prefill a day beside round-robin "
         "(95 %: 300 to 500)."),
    ]  # fmt: skip


def test_what_cannot_be_told_is_said() -> None:
    unsure = prefill("sticky", "round-robin", -400, -900, 100)
    assert gain_words(found(USUAL, unsure), 1)[1:] == [
        "Routing by sticky makes no difference beside round-robin that can be told."
    ]


def test_a_short_trace_tells_no_day_and_few_requests_no_interval() -> None:
    assert gain_words(found(USUAL, days=0.01), 1) == [
        "Caching saves 1,000 GPU-seconds of prefill (off → round-robin).",
        "Routing by sticky saves 400 GPU-seconds of prefill beside round-robin.",
    ]


@pytest.mark.parametrize(
    ("arm", "base", "said"),
    [
        ("memory:2", "round-robin", "Memory of 2 × the size saves"),
        ("sticky+memory:0.5", "sticky", "Memory of 0.5 × the size saves"),
        ("host:2", "round-robin", "A host tier of 2 × the device's memory saves"),
        ("host:0", "round-robin", "Doing without a host tier saves"),
        ("block:64", "round-robin", "Reuse by blocks of 64 tokens instead of 16 saves"),
        ("ttl:300", "round-robin", "Losing idle blocks after 300 s saves"),
        ("replicas:8", "round-robin", "Serving by 8 replicas instead of 4 saves"),
        ("merged", "round-robin", "Doing without isolation of trust scopes saves"),
        ("sticky+mended", "sticky", "Mending the layout saves"),
    ],
)
def test_each_change_is_held_against_the_arm_that_is_the_same_but_for_it(
    arm: str, base: str, said: str
) -> None:
    """100 s less than that arm takes, over two days."""
    seconds = USUAL[base][0] - 100
    told = found(USUAL | {arm: (seconds, 1.0)})
    assert gain_words(told, 1)[-1] == f"{said} 50 GPU-seconds of prefill a day beside {base}."


def test_what_costs_more_is_said_to_cost() -> None:
    told = found({"round-robin": (100, 1.0), "ttl:5": (300, 1.0)},
                 prefill("ttl:5", "round-robin", 200, 150, 260))  # fmt: skip
    assert gain_words(told, 1) == [
        ("Losing idle blocks after 5 s costs 100 GPU-seconds of prefill a day beside round-robin "
         "(95 %: 75 to 130).")
    ]  # fmt: skip


def test_arms_that_serve_other_requests_are_compared_by_those_that_fit_both() -> None:
    """With less memory fewer requests fit: what these take in sum says nothing."""
    arms = {"round-robin": (100.0, 1.0), "memory:0.5": (20.0, 1.0)}
    known = found(arms, prefill("memory:0.5", "round-robin", 10, 8, 12))
    known.results[1] = replace(known.results[1], requests=7, refused_requests=3)
    assert gain_words(known, 1) == [
        ("Memory of 0.5 × the size costs 5.00 GPU-seconds of prefill a day beside round-robin "
         "(95 %: 4.00 to 6.00; of requests that fit both).")
    ]  # fmt: skip
    assert gain_words(replace(known, differences=[]), 1) == [
        ("Memory of 0.5 × the size: too few requests fit both to say what it saves beside "
         "round-robin.")
    ]  # fmt: skip


def test_whose_the_gain_is_adds_up_in_words() -> None:
    told = replace(found(USUAL), gain=Gain("sticky+mended", 1000, 400, -50, has_layout=True))
    assert split_words(told, 1) == (
        "Saved by sticky+mended: caching 500 + routing 200 + layout -25 = 675 GPU-seconds of "
        "prefill a day."
    )
    bare = replace(told, gain=Gain("sticky", 1000, 400, 0))
    assert "layout" not in (split_words(bare, 1) or "")
    assert split_words(found(USUAL), 1) is None


def test_bytes_are_told_where_it_is_known_what_a_token_weighs() -> None:
    row = arm_row(result("host:2", 1, 1), 3, 1000)
    assert (row["loaded_bytes"], row["stored_bytes"], row["prefill_gpu_seconds"]) == (7000, 9000, 3)
    assert row["tiers"] == {
        "host": {"loaded_tokens": 5, "stored_tokens": 9, "loaded_bytes": 5000,
                 "stored_bytes": 9000},
        "disk": {"loaded_tokens": 2, "stored_tokens": 0, "loaded_bytes": 2000, "stored_bytes": 0},
    }  # fmt: skip
    assert "loaded_bytes" not in arm_row(result("host:2", 1, 1), 1)
