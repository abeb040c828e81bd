"""`prefixscope curve`: figures for people and for programs, and wrong usage."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out

# Llama-like: 2 · 32 layers · 8 heads · 128 · 2 bytes = 131,072 bytes a token.
CONFIG = {
    "model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "hidden_size": 4096, "head_dim": 128, "torch_dtype": "bfloat16",
}  # fmt: skip


def trace(folder: Path) -> Path:
    """A, B, A: two blocks of 512 tokens each."""
    path = folder / "trace.jsonl"
    chains = [[0, 1], [2, 3], [0, 1]]
    rows = [
        {"timestamp": 1000 * place, "input_length": 1024, "output_length": 1, "hash_ids": chain}
        for place, chain in enumerate(chains)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_json_has_the_names_others_rely_on(cli: Cli, tmp_path: Path) -> None:
    done = cli("curve", trace(tmp_path), "--rule", "partial", "--capacity-blocks", "4,3",
               "--output", "json")  # fmt: skip
    told = json.loads(done.out)
    assert told["unlimited"] == 1024 / 3072
    assert [(row["capacity_blocks"], row["token_hit_ratio"]) for row in told["curve"]] == [
        (3, 512 / 3072),
        (4, 1024 / 3072),
    ]
    assert (told["rule"], told["block_tokens"], told["enough_blocks"]) == ("partial", 512, 4)
    assert "3 requests in 2.0 s (times read as milliseconds)" in done.err


def test_gib_and_what_the_next_one_wins(cli: Cli, tmp_path: Path) -> None:
    """Four blocks are 2,048 tokens of 128 KiB: a quarter of a GiB, which wins 1,024 tokens."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    done = cli("curve", trace(tmp_path), "--rule", "partial", "--capacity-blocks", "4",
               "--config", config, "--output", "json")  # fmt: skip
    row = json.loads(done.out)["curve"][0]
    assert (row["capacity_gib"], row["gained_tokens_per_gib"]) == (0.25, 4096.0)


def test_the_table_says_where_more_memory_wins_nothing(cli: Cli, tmp_path: Path) -> None:
    done = cli("curve", trace(tmp_path), "--rule", "partial")
    assert "capacity in blocks of 512 tokens" in " ".join(done.out.split())
    assert "From 4 blocks on more memory wins nothing" in done.out
    assert "An upper bound" in done.out
    csv = cli("curve", trace(tmp_path), "--output", "csv").out.splitlines()
    assert csv[0] == "capacity_blocks,capacity_tokens,token_hit_ratio,of_unlimited_ratio"


def test_one_block_is_no_plural(cli: Cli, tmp_path: Path) -> None:
    """A block sent twice: the second of 1,024 prompt tokens hits, by memory of one block."""
    path = tmp_path / "once.jsonl"
    row = {"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [7]}
    path.write_text(f"{json.dumps(row)}\n" * 2)
    told = " ".join(cli("curve", path, "--rule", "partial").out.split())
    assert "The first 1 block wins 50.0 points" in told
    assert "From 1 block on more memory wins nothing; 1 wins 95% of that." in told


def written(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_which_gib_is_worth_it_is_said_in_a_sentence(cli: Cli, tmp_path: Path) -> None:
    """Blocks of 64 MiB. A twice, then A, B, C, D, A: the second A is found with room for one block
    (1/16 GiB), the last with room for four (1/4 GiB). Each is 512 tokens of 3,584: 14.3 points. A
    block wins 7.1 points on average, so the first one is worth more and those up to four less."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    rows = [
        {"timestamp": place, "input_length": 512, "hash_ids": [block]}
        for place, block in enumerate([0, 0, 1, 2, 3, 0])
    ]
    rows.append({"timestamp": 9, "input_length": 512, "hash_ids": [7]})
    path = written(tmp_path / "rows.jsonl", *rows)
    done = cli("curve", path, "--rule", "partial", "--config", config)
    assert (
        "The first 0.1 GiB win 14.3 points of the token hit ratio, 229 a GiB; from there to "
        "0.2 GiB it is 14.3 more, 76 a GiB."
    ) in done.out
    told = json.loads(cli("curve", path, "--rule", "partial", "--output", "json").out)
    assert told["worth"] == {
        "capacity_blocks": 1,
        "capacity_gib": None,
        "won_ratio": 512 / 3584,
        "beyond_ratio": 512 / 3584,
    }


def runs_row(trace: str, t: float, first: int) -> dict[str, object]:
    return {"trace_id": trace, "t": t, "in": 130, "out": 1, "hash_runs": [[first, 2]]}


def test_each_scope_has_a_cache_and_a_curve_of_its_own(cli: Cli, tmp_path: Path) -> None:
    """Two blocks of 64 in 130 tokens. x asks the same twice, y two things in turn, so that with
    room for two blocks x finds 128 of 260 and y nothing, with room for four 256 of 520."""
    rows = [runs_row("x", 0, 1), runs_row("x", 1, 1)]
    rows += [runs_row("y", n, 1 + 2 * (n % 2)) for n in range(4)]
    path = written(tmp_path / "rows.jsonl", *rows)
    asked = ("curve", path, "--by", "scope", "--capacity-blocks", "2,4")
    told = json.loads(cli(*asked, "--output", "json").out)
    assert told["caches"] == 2
    assert [row["token_hit_ratio"] for row in told["curve"]] == [128 / 780, 384 / 780]
    curves = {each["name"]: [row["token_hit_ratio"] for row in each["curve"]]
              for each in told["groups"]}  # fmt: skip
    assert curves == {"y": [0.0, 256 / 520], "x": [128 / 260, 128 / 260]}
    assert [each["requests"] for each in told["groups"]] == [4, 2], "most prompt tokens first"
    table = cli(*asked).out
    assert "Token hit ratio of each scope, with a cache of its own:" in table
    assert "From 4 blocks of each scope on more memory wins nothing" in table
    rows_of_csv = cli(*asked, "--output", "csv").out.splitlines()
    assert [line.split(",")[0] for line in rows_of_csv] == ["scope", *["(sum)"] * 2, *"yyxx"]


def test_each_replica_as_recorded_beside_the_trace(cli: Cli, tmp_path: Path) -> None:
    """A, B, A: the two A went to different replicas, and to one where nobody tells."""
    labels = written(tmp_path / "labels.jsonl", {"replica": 0}, {"replica": 0}, {"replica": 1})
    path = trace(tmp_path)
    told = json.loads(
        cli("curve", path, "--by", "replica", "--labels", labels, "--output", "json").out
    )
    assert (told["unlimited"], [each["name"] for each in told["groups"]]) == (0.0, ["0", "1"])
    missing = cli("curve", path, "--by", "replica")
    assert (missing.status, "export --labels" in missing.err) == (1, True)
    partly = written(tmp_path / "partly.jsonl", {"replica": 0}, {}, {"replica": 0})
    told = json.loads(
        cli("curve", path, "--by", "replica", "--labels", partly, "--output", "json").out
    )
    assert told["groups"][0]["unlimited"] == 512 / 2048
    assert told["groups"][1]["name"] == "(none)"


def test_requests_of_a_store_have_the_curve_of_the_trace_they_came_from(
    cli: Cli, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    assert cli("ingest", trace(tmp_path), "--store", store).status == 0
    of_store = json.loads(cli("curve", "--store", store, "--output", "json").out)
    of_file = json.loads(cli("curve", trace(tmp_path), "--output", "json").out)
    assert of_store == of_file
    wrong = cli("curve", "--store", store, "--block-tokens", "100")
    assert (wrong.status, "no multiple of 512" in wrong.err) == (2, True)


def test_an_export_of_sessions_and_its_labels_are_that_traffic(cli: Cli, tmp_path: Path) -> None:
    """A asks two blocks and adds one, B the first of them: on two replicas by session A finds two
    blocks of six, and B one more where it goes to the replica of A."""
    turns = [("A", {"timestamp": 0}, [1, 2]), ("A", {"delay": 3000}, [3]),
             ("B", {"timestamp": 1000}, [1])]  # fmt: skip
    rows = [
        {"session_id": name, **time, "input_length": 512 * len(ids), "hash_ids": ids}
        for name, time, ids in turns
    ]
    sessions = written(tmp_path / "sessions.jsonl", *rows)
    out, labels = tmp_path / "out.jsonl", tmp_path / "labels.jsonl"
    assert cli("export", sessions, "--out", out, "--labels", labels).status == 0
    directly = cli("curve", sessions, "--output", "json").out
    assert cli("curve", out, "--labels", labels, "--output", "json").out == directly
    arms = ("--arms", "session", "--replicas", "2", "--rule", "partial", "--output", "json")
    told = [
        json.loads(cli("replay", *traffic, *arms).out)["arms"][0]["token_hit_ratio"]
        for traffic in ((sessions,), (out, "--labels", labels))
    ]
    assert told[0] == told[1]
    assert told[0] in (2 / 6, 3 / 6)


def test_wrong_usage_is_told(cli: Cli, tmp_path: Path) -> None:
    path = trace(tmp_path)
    for wrong in (
        ("--rule", "anthropic"), ("--unit", "h"), ("--capacity-blocks", "0"),
        ("--capacity-blocks", "many"), ("--replicas", "0"), ("--warm-up", "1"),
        ("--by", "tenant"), ("--by", "scope", "--replicas", "2"), ("--store", tmp_path),
    ):  # fmt: skip
        assert cli("curve", path, *wrong).status == 2, wrong
    missing = cli("curve", tmp_path / "none.jsonl")
    assert (missing.status, "No such file" in missing.err) == (1, True)


def test_compiled_code_is_loaded_by_nobody_else() -> None:
    """Importing it takes a third of a second."""
    script = (
        "import sys, prefixscope.serve, prefixscope.commands.report, prefixscope.commands.curve;"
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
