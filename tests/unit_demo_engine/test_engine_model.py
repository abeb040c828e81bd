"""The model's files are read back here by hand: merges are applied, the weights are unpacked."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefixscope.demo_engine.model import write_model
from prefixscope.demo_engine.words import WORDS, prose


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def _json(model: Path, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((model / name).read_text(encoding="utf-8"))
    return document


def _merged(text: str, merges: list[list[str]]) -> list[str]:
    """Byte-pair encoding by its definition: of all pairs that stand there, the first rule's."""
    parts = list(text)
    ranks = {tuple(pair): rank for rank, pair in enumerate(merges)}
    while True:
        pairs = [(ranks.get(pair), at) for at, pair in enumerate(pairwise(parts))]
        known = [(rank, at) for rank, at in pairs if rank is not None]
        if not known:
            return parts
        _, at = min(known)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def test_every_word_of_the_demo_is_one_token(model: Path) -> None:
    rules = _json(model, "tokenizer.json")["model"]
    for word in WORDS:
        assert _merged("Ġ" + word, rules["merges"]) == ["Ġ" + word]
        assert "Ġ" + word in rules["vocab"]


def test_text_that_is_not_of_the_demo_is_told_in_bytes(model: Path) -> None:
    rules = _json(model, "tokenizer.json")["model"]
    assert _merged("xyz", rules["merges"]) == ["x", "y", "z"]
    assert {"x", "y", "z", "Ċ", "Ġ", "Ã"} <= set(rules["vocab"])  # line feed, space, 0xC3


def test_ids_count_from_0_without_a_gap_and_specials_come_first(model: Path) -> None:
    tokenizer = _json(model, "tokenizer.json")
    ids = sorted(tokenizer["model"]["vocab"].values())
    assert ids == list(range(_json(model, "config.json")["vocab_size"]))
    assert [token["id"] for token in tokenizer["added_tokens"]] == [0, 1, 2]
    known = tokenizer["model"]["vocab"]
    assert all(token["content"] in known for token in tokenizer["added_tokens"])


def _weights(model: Path) -> dict[str, np.ndarray[Any, Any]]:
    data = (model / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    end = max(entry["data_offsets"][1] for entry in header.values())
    assert 8 + size + end == len(data)
    found = {}
    for name, entry in header.items():
        first, last = (8 + size + offset for offset in entry["data_offsets"])
        assert entry["dtype"] == "BF16"
        upper = np.frombuffer(data[first:last], dtype="<u2").astype("<u4") << 16
        found[name] = upper.view("<f4").reshape(entry["shape"])
    return found


def test_weights_have_the_shapes_of_the_config(model: Path) -> None:
    config, weights = _json(model, "config.json"), _weights(model)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"] * config["head_dim"]
    assert weights["model.embed_tokens.weight"].shape == (config["vocab_size"], hidden)
    assert weights["lm_head.weight"].shape == (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        assert weights[f"{at}self_attn.q_proj.weight"].shape == (heads, hidden)
        assert weights[f"{at}self_attn.o_proj.weight"].shape == (hidden, heads)
        assert weights[f"{at}mlp.down_proj.weight"].shape == (hidden, inner)
    # Per layer 4 of attention, 3 of the MLP and 2 norms; embedding, last norm and output.
    assert len(weights) == 9 * config["num_hidden_layers"] + 3
    assert not np.isnan(weights["lm_head.weight"]).any()


def test_only_words_can_be_answered(model: Path) -> None:
    vocabulary = _json(model, "tokenizer.json")["model"]["vocab"]
    output = _weights(model)["lm_head.weight"]
    answered = {number for number, row in enumerate(output) if row.any()}
    assert answered == {vocabulary["Ġ" + word] for word in WORDS}


def test_the_same_model_every_time(model: Path, tmp_path: Path) -> None:
    again = write_model(tmp_path / "again")
    for file in model.iterdir():
        assert (again / file.name).read_bytes() == file.read_bytes()


def test_prose_has_so_many_words_and_is_the_same_for_a_seed() -> None:
    assert len(prose("a", 50).split()) == 50
    assert prose("a", 50) == prose("a", 50) != prose("b", 50)
    assert prose("a", 0) == ""
    assert set(prose("a", 50).split()) <= set(WORDS)
