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
    assert "From 4 blocks on more memory wins nothing" in done.out
    assert "An upper bound" in done.out
    csv = cli("curve", trace(tmp_path), "--output", "csv").out.splitlines()
    assert csv[0] == "capacity_blocks,capacity_tokens,token_hit_ratio,of_unlimited_ratio"


def test_wrong_usage_is_told(cli: Cli, tmp_path: Path) -> None:
    path = trace(tmp_path)
    for wrong in (
        ("--rule", "anthropic"), ("--unit", "h"), ("--capacity-blocks", "0"),
        ("--capacity-blocks", "many"), ("--replicas", "0"), ("--warm-up", "1"),
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
