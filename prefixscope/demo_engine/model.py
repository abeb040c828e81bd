"""A small language model with random weights, written as the files an engine loads.

Nothing is downloaded: the tokenizer knows the words of this demo and, for everything else, bytes.
The weights are large enough that computing a prompt takes a CPU noticeable time, so that a hit
shows in the time to first token, and small enough to be written in a second.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prefixscope.demo_engine.words import WORDS

LONGEST_TOKENS = 2048
_SPECIAL = ("<|end|>", "<|turn|>", "<|done|>")
_BYTES = 256
_HEAD = 64
_SPREAD = 0.05
_TEMPLATE = (
    "{% for message in messages %}"
    "<|turn|> {{ message['role'] }}: {{ message['content'] }}<|done|>"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|turn|> assistant:{% endif %}"
)

Weights = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Shape:
    """Sizes of the model. What a prompt costs grows with its length times hidden × inner, and with
    its square times heads: wide layers with few heads compute about as many tokens each second
    whatever the length, as large models do."""

    hidden: int
    inner: int
    layers: int
    heads: int


DEMO_SHAPE = Shape(hidden=256, inner=704, layers=4, heads=4)


def write_model(folder: Path, shape: Shape = DEMO_SHAPE) -> Path:
    """The model in `folder`, written anew; always the same for a shape."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary, merges = _vocabulary()
    documents = {
        "config.json": _config(len(vocabulary), shape),
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0},
        "tokenizer.json": _tokenizer(vocabulary, merges),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": _SPECIAL[0],
            "eos_token": _SPECIAL[2],
            "pad_token": _SPECIAL[0],
            "model_max_length": LONGEST_TOKENS,
            "chat_template": _TEMPLATE,
        },
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    words = [vocabulary[_letters()[ord(" ")] + word] for word in WORDS]
    _write_weights(folder / "model.safetensors", dict(_weights(len(vocabulary), words, shape)))
    return folder


def _config(vocabulary_size: int, shape: Shape) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary_size,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": _HEAD,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": LONGEST_TOKENS,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "dtype": "bfloat16",
    }


# ---------------------------------------------------------------- tokenizer


def _letters() -> dict[int, str]:
    """The printable letter that byte-level tokenizers write for each byte."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(_BYTES) if byte not in plain]
    shifted = {byte: chr(_BYTES + number) for number, byte in enumerate(others)}
    return {**{byte: chr(byte) for byte in plain}, **shifted}


def _vocabulary() -> tuple[dict[str, int], list[list[str]]]:
    """Tokens with their ids, and the merges that lead to them.

    Specials and bytes come first, then every beginning of every word: a word is put together
    letter by letter, so that equal beginnings are the same tokens.
    """
    letters = _letters()
    tokens = [*_SPECIAL, *(letters[byte] for byte in range(_BYTES))]
    merges: dict[tuple[str, str], None] = {}
    for word in WORDS:
        known = letters[ord(" ")]
        for letter in word:
            merges.setdefault((known, letter))
            known += letter
    tokens += dict.fromkeys(left + right for left, right in merges)
    return {token: number for number, token in enumerate(tokens)}, [list(pair) for pair in merges]


def _tokenizer(vocabulary: dict[str, int], merges: list[list[str]]) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}  # fmt: skip
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": text, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": True}
            for number, text in enumerate(_SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary,
                  "merges": merges},
    }  # fmt: skip


# ---------------------------------------------------------------- weights


def _weights(vocabulary_size: int, words: list[int], shape: Shape) -> Iterator[tuple[str, Weights]]:
    """Names and random values of every matrix of the model.

    Only whole words get output weights, so that greedy answers are made of them.
    """
    random = np.random.default_rng(1)

    def matrix(rows: int, columns: int) -> Weights:
        return random.standard_normal((rows, columns), dtype=np.float32) * np.float32(_SPREAD)

    yield "model.embed_tokens.weight", matrix(vocabulary_size, shape.hidden)
    for layer in range(shape.layers):
        at = f"model.layers.{layer}."
        for name in ("q_proj", "k_proj", "v_proj"):
            yield f"{at}self_attn.{name}.weight", matrix(shape.heads * _HEAD, shape.hidden)
        yield f"{at}self_attn.o_proj.weight", matrix(shape.hidden, shape.heads * _HEAD)
        yield f"{at}mlp.gate_proj.weight", matrix(shape.inner, shape.hidden)
        yield f"{at}mlp.up_proj.weight", matrix(shape.inner, shape.hidden)
        yield f"{at}mlp.down_proj.weight", matrix(shape.hidden, shape.inner)
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{at}{name}.weight", np.ones(shape.hidden, dtype=np.float32)
    yield "model.norm.weight", np.ones(shape.hidden, dtype=np.float32)
    output = np.zeros((vocabulary_size, shape.hidden), dtype=np.float32)
    output[words] = matrix(len(words), shape.hidden)
    yield "lm_head.weight", output


def _write_weights(file: Path, weights: dict[str, Weights]) -> None:
    """The safetensors format: length of the header, header, then the values as bfloat16."""
    header: dict[str, Any] = {}
    at = 0
    for name, values in weights.items():
        end = at + values.size * 2
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for values in weights.values():
            # The upper half of a float is its bfloat16, but for the last bit.
            out.write((values.view(np.uint32) >> 16).astype("<u2").tobytes())
