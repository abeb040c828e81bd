"""`prefixscope replay`: arms for people and for programs, and wrong usage."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prefixscope.commands.replay_request import Request
from prefixscope.tier_text import NotATier, tier_named
from replay.clock import Tier

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
    for said in ("prefill of 1,000 tokens/s a replica", "2 replicas alike",
                 "blocks, the last one may be partial: blocks of 512 tokens"):  # fmt: skip
        assert f"Given: {said}" in done.out
    for unsaid in ("memory never full", "prefill takes one prompt after the other", "decode of"):
        assert f"Assumed: {unsaid}" in done.out
    assert "Caching makes no difference." in done.out
    assert "Routing by sticky saves 2.05 GPU-seconds of prefill beside round-robin." in done.out
    assert "Saved by sticky: caching 0 + routing 2.05 = 2.05 GPU-seconds" in done.out
    # Of two GPUs by 2.048 s in all; found by nobody, and told all the same.
    assert re.search(r"^off +0\.00% .* 4\.10 ", done.out, re.MULTILINE)
    assert "a day" not in done.out
    assert "No cache could do better than 50.00%" in done.out


def test_the_table_has_its_amounts_as_the_sentences_have_them(cli: Cli, tmp_path: Path) -> None:
    """Four prompts in three hours: 2.048 s of prefill are 16.384 a day, half of them saved."""
    done = cli("replay", trace(tmp_path, gap=3_600_000), "--replicas", "2", "--rule", "partial",
               "--prefill-speed", "1000", "--arms", "off,round-robin,sticky")  # fmt: skip
    assert "GPU-seconds of prefill a day" in done.out.split("\noff")[0]
    assert re.search(r"^off .* 16 ", done.out, re.MULTILINE)
    assert re.search(r"^sticky .* 8\.19 ", done.out, re.MULTILINE)
    assert "Routing by sticky saves 8.19 GPU-seconds of prefill a day" in done.out


def test_times_that_hardly_ask_for_work_are_doubted(cli: Cli, tmp_path: Path) -> None:
    """Four prompts of 512 tokens at 1,000 a second, a day apart: 2.048 of 259,200 s on one."""
    path = trace(tmp_path, gap=86_400_000)
    done = cli("replay", path, "--replicas", "1", "--prefill-speed", "1000")
    assert "4 requests in 3.0 days (times read as milliseconds)" in done.err
    assert "busy for 2 s of 3.0 days" in done.err
    assert "(--unit)" in done.err


def test_what_labels_and_sessions_do_not_tell_is_said(cli: Cli, tmp_path: Path) -> None:
    path, labels = trace(tmp_path), tmp_path / "labels.jsonl"
    labels.write_text('{"sesion": 1}\n' * 4)
    done = cli("replay", path, "--labels", labels, "--arms", "round-robin,session")
    assert "Labels of each request: none that is known here" in done.err
    assert "Assumed: no request names its session" in done.out
    labels.write_text('{"session": 1}\n' * 4)
    told = cli("replay", path, "--labels", labels, "--arms", "round-robin,session")
    assert "Labels of each request: session" in told.err
    assert "no request names its session" not in told.out


def test_untimed_is_labelled_an_upper_bound(cli: Cli, tmp_path: Path) -> None:
    done = cli(
        "replay", trace(tmp_path), "--untimed", "--capacity-tokens", "600", "--replicas", "1"
    )
    assert "an upper bound" in done.out
    assert "memory of 1 block of 512 tokens" in done.out
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
        ("--untimed", "--tier", "host:9"), ("--seed", "-1"), ("--summary-lag", "-5"),
        ("--prefill-overhead", "inf"), ("--decode-time", "nan"), ("--cache", "radix"),
        ("--untimed", "--lifetime", "9"), ("--untimed", "--clients", "2"),
        ("--lifetime", "9", "--tier", "disk:9"), ("--tier", "disk:9", "--tier", "disk:8"),
        ("--tier", "tape:9"), ("--sweep", "routers"), ("--arms", "memory:2"), ("--sweep", "host"),
        ("--arms", "host:1", "--untimed", "--capacity-blocks", "9"), ("--arms", "block:500"),
        ("--arms", "mended"), ("--since", "7d"), ("--by", "model"), ("--tier", "host:9"),
        ("--kv-dtype", "fp8"), ("--load-weight", "inf"),
    ):  # fmt: skip
        assert cli("replay", path, *wrong).status == 2, wrong
    told = cli("replay", path, "--untimed", "--decode-time", "0", "--speed", "2", "--gpus", "1")
    assert "say nothing: --speed, --decode-time" in flat(told.err)
    assert "known: off, random, round-robin" in flat(cli("replay", path, "--arms", "best").err)
    assert "Give the capacity of a replica" in flat(cli("replay", path, "--sweep", "memory").err)


def test_what_routers_go_by_can_be_said(cli: Cli, tmp_path: Path) -> None:
    """Every prompt comes to idle replicas: where the first of equals is taken, it gets them all."""
    path = tmp_path / "apart.jsonl"
    rows = [{"timestamp": 60_000 * n, "input_length": 512, "output_length": 1, "hash_ids": [n]}
            for n in range(4)]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    wanted = ("replay", path, "--arms", "scored", "--replicas", "2", "--output", "json")
    turns, first = (json.loads(cli(*wanted, *more).out)
                    for more in ((), ("--ties", "first", "--load", "requests")))  # fmt: skip
    assert turns["arms"][0]["imbalance_ratio"] == 1.0
    assert first["arms"][0]["imbalance_ratio"] == 2.0
    assert "where replicas are alike to a router, they take turns" in turns["assumptions"]
    assert "where replicas are alike to a router, the first one is taken" in first["assumptions"]
    assert any("(requests under way)" in words for words in first["assumptions"])


def flat(text: str) -> str:
    """A message without the frame and the breaks it is printed with."""
    return " ".join(text.replace("│", " ").split())


def test_a_sweep_is_several_sizes_beside_the_plain_arm(cli: Cli, tmp_path: Path) -> None:
    """Of A, B, B, A, each of a block and another for its answer, four blocks keep all, two lose A,
    which a host tier of one block gives back."""
    done = cli("replay", trace(tmp_path), "--replicas", "1", "--rule", "partial", "--output",
               "json", "--capacity-blocks", "4", "--sweep", "memory", "--sweep", "host", "--sweep",
               "block", "--tier", "host:1,speed=1000", "--prefill-speed", "1000")  # fmt: skip
    told = json.loads(done.out)
    assert [each["arm"] for each in told["arms"]] == [
        "off", "round-robin", "memory:0.5", "memory:2", "memory:4", "host:0", "host:0.5", "host:1",
        "host:2", "host:4", "block:1024", "block:2048", "block:4096",
    ]  # fmt: skip
    arms = {each["arm"]: each for each in told["arms"]}
    assert arms["round-robin"]["cached_tokens"] == arms["memory:0.5"]["cached_tokens"] == 1024
    assert [arms[name]["loaded_tokens"] for name in ("round-robin", "memory:0.5")] == [0, 512]


def test_bytes_that_moved_are_told_where_the_model_is(cli: Cli, tmp_path: Path) -> None:
    """As above two blocks lose A and then B to the host, and A comes back: 2 × 512 and 512 tokens
    of 2 (keys, values) × 2 layers × 4 heads × 8 dimensions × 2 bytes."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8, "hidden_size": 32,
        "torch_dtype": "bfloat16",
    }))  # fmt: skip
    asked = ("replay", trace(tmp_path), "--replicas", "1", "--rule", "partial", "--config", config,
             "--capacity-blocks", "2", "--arms", "round-robin,host:4")  # fmt: skip
    host = json.loads(cli(*asked, "--output", "json").out)["arms"][1]
    assert (host["loaded_tokens"], host["loaded_bytes"]) == (512, 512 * 256)
    assert (host["stored_tokens"], host["stored_bytes"]) == (1024, 1024 * 256)
    assert "GiB from tiers" in cli(*asked).out


def test_tenants_of_labels_beside_a_trace_are_told_by_arm(cli: Cli, tmp_path: Path) -> None:
    """Both A are of tenant 3, both B of no tenant that is known."""
    labels = tmp_path / "labels.jsonl"
    rows: list[dict[str, int]] = [{"tenant": 3}, {}, {}, {"tenant": 3}]
    labels.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    asked = ("replay", trace(tmp_path), "--labels", labels, "--replicas", "2", "--rule", "partial",
             "--arms", "round-robin,sticky")  # fmt: skip
    told = json.loads(cli(*asked, "--output", "json").out)["by"]["tenant"]
    assert [(each["group"], each["arm"], each["cached_tokens"]) for each in told] == [
        ("3", "round-robin", 0), ("3", "sticky", 512),
        ("(none)", "round-robin", 0), ("(none)", "sticky", 512),
    ]  # fmt: skip
    table = cli(*asked, "--by", "tenant").out
    assert "tenant" in table
    assert "(none)" in table
    assert "No request has a template." in cli(*asked, "--by", "template").out


def test_names_from_outside_cannot_steer_the_terminal(cli: Cli, tmp_path: Path) -> None:
    """An agent of LMCache's traces is whatever somebody wrote."""
    path = tmp_path / "calls.jsonl"
    call = {"ts_us": 0, "input_bytes": 512, "block_bytes": 256, "hash_runs": [[0, 2]]}
    path.write_text(json.dumps(call | {"agent": "a\x1b[31m\u202e\nb"}) + "\n")
    done = cli("replay", path, "--arms", "off,round-robin", "--by", "template")
    assert "a\ufffd[31m\ufffd\ufffdb" in done.out
    assert not {"\x1b", "\u202e"} & set(done.out)


def test_html_is_one_file(cli: Cli, tmp_path: Path) -> None:
    done = cli("replay", trace(tmp_path), "--arms", "off,round-robin,sticky", "--output", "html")
    assert done.out.startswith("<!DOCTYPE html>")
    assert "sticky" in done.out


@pytest.mark.parametrize(
    ("text", "tier"),
    [
        ("host:20000", Tier(name="host", capacity_blocks=20_000, tokens_per_second=200_000.0)),
        ("disk:5, speed=1e4, latency=2, shared",
         Tier(name="disk", capacity_blocks=5, tokens_per_second=10_000.0, latency_seconds=0.002,
              is_shared=True)),
        ("remote:7,write-through,overlaps",
         Tier(name="remote", capacity_blocks=7, tokens_per_second=50_000.0, writes_through=True,
              overlaps=True)),
        ("host,speed=5", Tier(name="host", capacity_blocks=0, tokens_per_second=5.0)),
    ],
)  # fmt: skip
def test_tiers_as_people_write_them(text: str, tier: Tier) -> None:
    assert tier_named(text) == tier


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tape:5", "known: host, disk, remote"), ("host:many", "'many' is no number"),
        ("host:1.5", "whole blocks"), ("host:5,fast", "'fast' says nothing of a tier"),
        ("host:5,shared=1", "says nothing of a tier"), ("host:5,speed", "says nothing of a tier"),
        ("host:5,speed=0", "a speed above 0"), ("host:5,latency=-1", "'-1' is no number"),
        ("host:5,speed=1,speed=2", "says something twice"),
    ],
)  # fmt: skip
def test_what_says_no_tier_is_told(text: str, said: str) -> None:
    with pytest.raises(NotATier, match=said):
        tier_named(text)


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
    asked = ("replay", path, "--replicas", "1", "--capacity-blocks", "10", "--arms")
    assert "1 of 4 requests is larger than a replica's memory: ref" in cli(*asked, "sticky").out
    more = cli(*asked, "sticky,memory:3").out
    assert "a replica's memory in sticky, fewer in others: refused" in more


def test_more_memory_than_could_be_used_costs_nothing(cli: Cli, tmp_path: Path) -> None:
    done = cli("replay", trace(tmp_path), "--capacity-blocks", "3000000000", "--output", "json")
    assert done.status == 0


@pytest.mark.parametrize(
    ("request_", "looks"),
    [
        (Request(), True), (Request(arms="off,sticky+mended"), True), (Request(arms="off"), False),
        (Request(untimed=True), False), (Request(sweeps=["memory"]), False),
        (Request(traces=[Path("trace.jsonl")]), False),
        (Request(traces=[Path("log.jsonl")], arms="mended"), True),
    ],
)  # fmt: skip
def test_layout_is_looked_for_where_it_is_asked_for_or_a_store_is_replayed_as_usual(
    request_: Request, looks: bool
) -> None:
    assert request_.mends == looks
