"""`prefixscope replay`: arms for people and for programs, and wrong usage."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out


def trace(folder: Path, gap: float = 1000) -> Path:
    """A, B, B, A of one block each, so that two replicas by turns find nothing."""
    path = folder / "trace.jsonl"
    rows = [
        {"timestamp": gap * place, "input_length": 512, "output_length": 2, "hash_ids": [block]}
        for place, block in enumerate((7, 8, 8, 7))
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_json_has_the_names_others_rely_on(cli: Cli, tmp_path: Path) -> None:
    """512 tokens at 1,000 a second are 0.512 s; sticky computes two prompts of four."""
    done = cli("replay", trace(tmp_path), "--replicas", "2", "--rule", "partial", "--arms",
               "off,round-robin,sticky", "--prefill-speed", "1000", "--output", "json")  # fmt: skip
    told = json.loads(done.out)
    arms = {each["arm"]: each for each in told["arms"]}
    assert list(arms) == ["off", "round-robin", "sticky"]
    assert [arms[name]["token_hit_ratio"] for name in arms] == [0, 0, 0.5]
    assert arms["off"]["prefill_seconds"] == pytest.approx(2.048)
    assert arms["sticky"]["prefill_seconds"] == pytest.approx(1.024)
    assert arms["round-robin"]["ttft_p50_seconds"] == pytest.approx(0.512)
    assert arms["round-robin"]["imbalance_ratio"] == 1.0
    assert told["unlimited"] == 0.5
    assert told["gain"]["best"] == "sticky"
    assert any("1,000 tokens/s" in word for word in told["assumptions"])


def test_the_table_ends_with_what_it_comes_to(cli: Cli, tmp_path: Path) -> None:
    """Two replicas of two GPUs, so that 1.024 s saved count twice; 3 s of traffic tell no day."""
    done = cli("replay", trace(tmp_path), "--replicas", "2", "--rule", "partial",
               "--prefill-speed", "1000", "--gpus", "2")  # fmt: skip
    assert "Assumed: prefill of 1,000 tokens/s a replica" in done.out
    assert "Caching saves 0 GPU-seconds of prefill (off → round-robin)." in done.out
    assert "Routing by sticky saves 2 GPU-seconds of prefill beside round-robin." in done.out
    assert "a day" not in done.out
    assert "No cache could do better than 50.00%" in done.out


def test_untimed_is_labelled_an_upper_bound(cli: Cli, tmp_path: Path) -> None:
    done = cli(
        "replay", trace(tmp_path), "--untimed", "--capacity-tokens", "600", "--replicas", "1"
    )
    assert "an upper bound" in done.out
    assert "memory of 1 blocks" in done.out
    assert "TTFT" not in done.out


def test_t96_t98_times_are_scaled_from_the_first_and_their_unit_is_doubted(
    cli: Cli, tmp_path: Path
) -> None:
    """At 1,000 tokens a second four prompts need 2 s; told in seconds the trace takes 3,000 s."""
    path = trace(tmp_path, gap=1)  # read as milliseconds: 3 ms
    absurd = cli("replay", path, "--prefill-speed", "1", "--replicas", "1")
    assert absurd.status == 1
    assert "is the unit of time another one (--unit s)?" in absurd.err
    told = cli("replay", path, "--unit", "s", "--speed", "2", "--prefill-speed", "1000",
               "--replicas", "1", "--output", "json")  # fmt: skip
    assert json.loads(told.out)["days"] == 1.5 / 86_400


def test_wrong_usage_is_told(cli: Cli, tmp_path: Path) -> None:
    path = trace(tmp_path)
    for wrong in (
        ("--arms", "off,fastest"), ("--rule", "openai"), ("--replicas", "0"), ("--slack", "0.5"),
        ("--capacity-blocks", "5", "--capacity-tokens", "600"), ("--speed", "0"),
        ("--untimed", "--host-blocks", "9"), ("--seed", "-1"), ("--summary-lag", "-5"),
        ("--prefill-overhead", "inf"), ("--decode-time", "nan"),
    ):  # fmt: skip
        assert cli("replay", path, *wrong).status == 2, wrong
    assert "known: off, random, round-robin" in cli("replay", path, "--arms", "best").err


def test_what_is_refused_is_in_no_figure_and_not_in_the_bound(cli: Cli, tmp_path: Path) -> None:
    """A prompt of 20 blocks does not fit 10: of the other three, of one block, two are found."""
    path = tmp_path / "trace.jsonl"
    rows = [{"timestamp": 0, "input_length": 10_240, "hash_ids": list(range(100, 120))}]
    rows += [{"timestamp": 60_000 * n, "input_length": 512, "hash_ids": [1]} for n in (1, 2, 3)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    done = cli("replay", path, "--replicas", "1", "--capacity-blocks", "10", "--rule", "partial",
               "--output", "json")  # fmt: skip
    told = json.loads(done.out)
    assert [each["refused_requests"] for each in told["arms"]] == [1] * len(told["arms"])
    assert told["unlimited"] == told["arms"][1]["token_hit_ratio"] == 2 / 3


def test_more_memory_than_could_be_used_costs_nothing(cli: Cli, tmp_path: Path) -> None:
    done = cli("replay", trace(tmp_path), "--capacity-blocks", "3000000000", "--output", "json")
    assert done.status == 0
