"""`prefixscope geometry`: sizes with their derivation, and errors that say what to do."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out

LLAMA_8B = {
    "model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "hidden_size": 4096, "torch_dtype": "bfloat16",
}  # fmt: skip
GPT_OSS_20B = {
    "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
    "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 12,
}  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> Callable[[object], Path]:
    def write(content: object) -> Path:
        path = tmp_path / "config.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


def test_the_table_has_the_sizes_and_how_they_came_about(
    cli: Cli, config: Callable[[object], Path]
) -> None:
    done = cli("geometry", config(LLAMA_8B), "--tp", 2)
    assert done.status == 0
    lines = done.out.split("\n\n")[0].splitlines()[1:]
    facts = dict(line.rsplit(maxsplit=1) for line in lines)
    assert {name.strip(): value for name, value in facts.items()} == {
        "attention": "GQA",
        "KV dtype": "bfloat16",
        "bytes per token": "131,072",
        "bytes per block of 16": "2,097,152",
        "bytes per token on each of 2 GPUs": "65,536",
    }
    assert "32 layers x 8 KV heads x 2 x 128 x 2 bytes = 131,072 bytes per token" in done.out


def test_json_has_every_size(cli: Cli, config: Callable[[object], Path]) -> None:
    done = cli("geometry", config(GPT_OSS_20B), "--kv-dtype", "fp8", "--output", "json")
    sizes = json.loads(done.out)
    # Half of bf16's 24,576 and 3,145,728.
    assert (sizes["bytes_per_token"], sizes["constant_bytes"]) == (12_288, 1_572_864)
    assert sizes["block_16_bytes"] == 196_608
    assert len(sizes["steps"]) == 2
    table = cli("geometry", config(GPT_OSS_20B), "--kv-dtype", "fp8").out
    assert "bytes of layers with a window of 128" in table


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GPT_OSS_20B, "dtype is missing: say which KV dtype the engine uses with --kv-dtype"),
        ({"hidden_size": 8, "dtype": "float16"}, "num_hidden_layers is missing"),
        ([1], "not a model config"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_cannot_be_read_is_an_error_with_the_file(
    cli: Cli, config: Callable[[object], Path], content: object, message: str
) -> None:
    path = config(content)
    done = cli("geometry", path)
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith(f"error: {path}: {message}")


def test_wrong_usage(cli: Cli, config: Callable[[object], Path], tmp_path: Path) -> None:
    assert cli("geometry", config(LLAMA_8B), "--kv-dtype", "fp3").status == 2
    assert cli("geometry", config(LLAMA_8B), "--tp", 0).status == 2
    done = cli("geometry", tmp_path / "none.json")
    assert (done.status, "cannot be read" in done.err) == (1, True)
