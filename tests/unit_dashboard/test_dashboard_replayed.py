"""What a replay found as rows, words and one HTML file, each figure worked out by hand."""

import re
from dataclasses import replace
from html import unescape

import numpy as np

from dashboard.replayed import charts, words
from dashboard.replayed.columns import arm_rows, told
from dashboard.replayed.document import Subject, render
from dashboard.replayed.rows import (
    at_capacity,
    compared,
    curve_rows,
    gain_steps,
    group_rows,
    ratios_by,
    thinned,
)
from replay.arms import arm_named
from replay.clock import Clock
from replay.curve import Curve
from replay.differences import Difference
from replay.experiment import Experiment
from replay.gain import Gain
from replay.groups import GroupResult
from replay.rules import RULES
from replay.serving import ArmResult, Moved
from replay.setting import Setting
from tests.unit_dashboard.loopback import HOSTILE

NAMES = ("off", "round-robin", "sticky")


def result(arm: str, cached: int, prefill: float, p50: float) -> ArmResult:
    """Of 10 requests with 1,000 tokens; two more were refused."""
    return ArmResult(
        arm=arm, requests=10, refused_requests=2, prompt_tokens=1000, cached_tokens=cached,
        evicted_blocks=3, imbalance_ratio=1.5,
        prefill_seconds=prefill, ttft_mean_seconds=p50,
        ttft_seconds={50: p50, 90: 2 * p50, 99: 4 * p50},
    )  # fmt: skip


def group(arm: str, name: str, cached: int, prefill: float) -> GroupResult:
    return GroupResult(arm=arm, group=name, requests=5, prompt_tokens=500, cached_tokens=cached,
                       prefill_seconds=prefill, ttft_seconds={90: prefill / 10})  # fmt: skip


def difference(arm: str, change: float, low: float, high: float) -> Difference:
    return Difference(arm, "round-robin", "prefill_seconds", change, low, high)


def found(**changes: object) -> Experiment:
    """Half a day on GPUs of two a replica: 100 s without a cache, 60 with, 45 behind sticky."""
    setting = Setting(
        arms=tuple(map(arm_named, NAMES)), rule=RULES["full"].of_blocks(16), replicas=2,
        capacity_blocks=100, clock=Clock(prefill_tokens_per_second=10.0),
    )  # fmt: skip
    made = Experiment(
        setting=setting,
        arms=setting.arms,
        results=[result("off", 0, 100.0, 4.0), result("round-robin", 400, 60.0, 2.0),
                 result("sticky", 550, 45.0, 0.5)],
        differences=[difference("off", 40.0, 30.0, 50.0), difference("sticky", -15.0, -20.0, -9.0)],
        gain=Gain("sticky", 40.0, 15.0, 0.0),
        by={"template": [group("round-robin", HOSTILE, 100, 40.0),
                         group("sticky", HOSTILE, 400, 10.0),
                         group("round-robin", "b", 300, 20.0)]},
        bound_ratio=0.6,
        days=0.5,
        observed_ratio=0.38,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def test_the_gain_adds_up_by_the_day_over_all_gpus() -> None:
    """Half a day and two GPUs: four times the seconds of replicas."""
    steps = gain_steps(found(), 2)
    assert [(step.name, step.begin, step.end, step.amount) for step in steps] == [
        ("Caching off", 0.0, 400.0, 400.0), ("Caching", 400.0, 240.0, 160.0),
        ("Routing by sticky", 240.0, 180.0, 60.0), ("Left to compute", 0.0, 180.0, 180.0),
    ]  # fmt: skip
    assert gain_steps(found(gain=None), 2) == []


def test_layout_is_part_of_the_gain_where_it_was_tried() -> None:
    steps = gain_steps(found(gain=Gain("mended", 40.0, 0.0, -5.0, True), days=None), 1)
    assert [(step.name, step.amount) for step in steps] == [
        ("Caching off", 100.0), ("Caching", 40.0), ("Routing", 0.0),
        ("Layout mended", -5.0), ("Left to compute", 65.0),
    ]  # fmt: skip
    assert [charts.step_words(step) for step in steps] == ["100", "-40", "0", "+5.00", "65"]


def test_the_answer_is_a_sentence() -> None:
    assert words.answer(found(), 2) == (
        "Adding sticky routing would save 60 GPU-seconds of prefill a day (95 %: 36 to 80). "
        "Half of the first tokens would come within 500 ms instead of 2.00 s."
    )


def test_the_answer_does_not_say_more_than_is_known() -> None:
    vague = found(differences=[difference("sticky", -1.0, -4.0, 2.0)])
    assert "would make no difference to prefill that can be told." in words.answer(vague, 1)
    dear = found(differences=[difference("sticky", 15.0, 9.0, 20.0)], days=None)
    assert "would cost 15 GPU-seconds of prefill (95 %: 9.00 to 20)." in words.answer(dear, 1)
    few = words.answer(found(differences=[], days=0.01), 1)
    assert "save 15 GPU-seconds of prefill (too few requests to say how surely)" in few
    none = words.answer(found(gain=Gain("round-robin", 40.0, 0.0, 0.0)), 1)
    assert none == "Of the routers tried none brings first tokens sooner than round robin."
    memory = found(
        gain=Gain("round-robin", 40.0, 0.0, 0.0),
        arms=tuple(map(arm_named, ("off", "round-robin", "memory:2"))),
        results=[*found().results[:2], result("memory:2", 480, 52.0, 2.0)],
    )
    assert words.answer(memory, 1) == (
        "40.0 % of prompt tokens would be found in the cache of round-robin, "
        "48.0 % in that of memory:2."
    )
    refused = [replace(each, requests=0, refused_requests=12) for each in found().results]
    assert "larger than a replica's memory" in words.answer(found(results=refused), 1)
    assert words.answer(found(gain=None), 1) == (
        "40.0 % of prompt tokens would be found in the cache of round-robin, "
        "55.0 % in that of sticky."
    )
    alone = found(gain=None, results=[result("sticky", 550, 45.0, 0.5)])
    assert (
        words.answer(alone, 1) == "55.0 % of prompt tokens would be found in the cache of sticky."
    )


def test_differences_are_told_where_their_interval_has_one_sign() -> None:
    vague = difference("least-loaded", 1.0, -1.0, 2.0)
    rows = compared(found(differences=[difference("off", 40.0, 30.0, 50.0), vague]), 2)
    assert [(row.arm, row.is_told("prefill_seconds")) for row in rows] == [
        ("off", True), ("least-loaded", False),
    ]  # fmt: skip
    first = rows[0].figures["prefill_seconds"]
    assert (first.change, first.low, first.high) == (160.0, 120.0, 200.0)
    assert not rows[0].is_told("ttft_p50_seconds")


def test_groups_stand_beside_themselves_in_another_arm() -> None:
    rows = group_rows(found(), "template", "sticky", "round-robin", 1)
    assert [(row.token_hit_ratios, row.ttft_p90_seconds, row.saved) for row in rows] == [
        ((0.2, 0.8), (4.0, 1.0), 60.0),
        ((0.6, None), (2.0, None), None),
    ]
    assert ratios_by(found(), "template")[1] == {"group": "b", "round-robin": 0.6}


def test_what_moved_between_tiers_is_in_bytes_where_these_are_known() -> None:
    moved = replace(result("host:1", 600, 40.0, 0.5), moved={"host": Moved(3, 5)})
    made = found(results=[moved])
    row = arm_rows(made, 1)[0]
    assert (row["host_loaded"], row["host_stored"]) == (3, 5)
    assert [each.kind for each in told(made, [row]) if "host" in each.label] == ["count", "count"]
    known = replace(made, setting=replace(made.setting, token_bytes=2**28))
    row = arm_rows(known, 1)[0]
    shown = {each.label: each.text(row) for each in told(known, [row])}
    assert (shown["host loaded"], shown["host stored"]) == ("0.75 GiB", "1.25 GiB")
    assert not any("host" in each.label for each in told(found(), arm_rows(found(), 1)))


def test_the_curve_goes_from_where_memory_wins_to_where_more_wins_nothing() -> None:
    rows = curve_rows(Curve(np.array([0, 10, 30, 40]), 100), 16)
    assert [row["capacity_tokens"] for row in rows] == [16, 32, 48]
    assert [row["token_hit_ratio"] for row in rows] == [0.1, 0.3, 0.4]
    assert [row["capacity_tokens"] for row in thinned(rows, 2)] == [16, 48]
    late = np.repeat([0, 1, 100], [1, 399, 600])  # of 1,000 blocks the first 399 win one token
    rows = curve_rows(Curve(late, 100), 1, 5000)
    assert [rows[0]["capacity_tokens"], rows[-1]["capacity_tokens"]] == [100, 5000]
    own = at_capacity(rows, 5000)
    assert own is not None
    assert own["token_hit_ratio"] == 1.0
    assert at_capacity(rows, None) is None


def test_bars_begin_where_the_one_before_ends() -> None:
    """100 s are 480 wide from 150 on: caching goes from 60 to 100, routing from 45 to 60."""
    drawn = charts.gain(gain_steps(found(days=None), 1))
    bars = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', drawn)
    assert bars == [("150", "480"), ("438", "192"), ("366", "72"), ("150", "216")]
    assert "Routing by sticky -15" in drawn


def test_one_file_says_it_all_and_runs_nothing() -> None:
    subject = Subject(HOSTILE, [f"12 requests of \u202e{HOSTILE}"], ["prefill speed is assumed"])
    curve = curve_rows(Curve(np.array([0, 10, 30]), 100), 16, 100)
    made = render(found(), 2, subject, curve)
    assert made == render(found(), 2, subject, curve)
    page = made.decode().replace("\N{NO-BREAK SPACE}", " ")
    for told_once in (
        "Adding sticky routing would save 60 GPU-seconds of prefill a day (95 %: 36 to 80)",
        "As it ran, 38.0 % of these prompt tokens were cached",
        "prefill of 10 tokens/s a replica",
        "2 GPUs a replica",
        "prefill speed is assumed",
        "2 of 12 requests are larger than a replica's memory",
        "no cache could exceed 60.0 %",
        "-80.0 to -36.0",
        "20.0 % → 80.0 %",
        "What more memory would win",
        "as replayed: 30.0 %",
    ):
        assert told_once in unescape(page)
    assert "\u202e" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert not re.search(r"<(script|img|a|link|iframe)\b|\bon\w+=\"|url\(|@import", page)
    assert "default-src 'none'" in unescape(page)


def test_without_a_clock_the_file_tells_of_what_is_found_alone() -> None:
    plain = [replace(each, prefill_seconds=None, ttft_mean_seconds=None, ttft_seconds=None)
             for each in found().results]  # fmt: skip
    setting = replace(found().setting, clock=None)
    made = render(found(setting=setting, results=plain, differences=[], gain=None, by={}), 1,
                  Subject("trace.jsonl"))  # fmt: skip
    page = made.decode()
    assert "found in the cache of round-robin, 55.0" in page
    assert "What each change saves" not in page
    assert "Differences" not in page
    assert "time to first token: circle" not in page
