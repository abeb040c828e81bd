"""The KV of fifteen well-known models, from configs that spell it as their files do.

The configs hold only what decides the size, written down from the models' public geometry. The
figures are products worked out beside each, not taken from the code.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from replay.geometry import kv_geometry

Config = dict[str, Any]


class Case(NamedTuple):
    config: Config
    per_token: int
    constant: int
    all_full: int


def dense(layers: int, heads: int, kv_heads: int, head_dim: int, **more: object) -> Config:
    return {
        "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": head_dim, "torch_dtype": "bfloat16", **more,
    }  # fmt: skip


def alternating(layers: int) -> list[str]:
    return ["sliding_attention", "full_attention"] * (layers // 2)


def every(layers: int, interval: int, others: str) -> list[str]:
    return [others if (i + 1) % interval else "full_attention" for i in range(layers)]


DEEPSEEK_V3: Config = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128, "hidden_size": 7168, "torch_dtype": "bfloat16",
    "num_nextn_predict_layers": 1,
}  # fmt: skip
SPARSE: Config = {"index_head_dim": 128, "index_n_heads": 64, "index_topk": 2048}
GEMMA_4: Config = {
    "model_type": "gemma4",
    "text_config": {
        **dense(60, 32, 16, 256, sliding_window=1024),
        "layer_types": every(60, 6, "sliding_attention"),
        "num_global_key_value_heads": 4, "global_head_dim": 512,
    },
}  # fmt: skip
QWEN_36: Config = {
    "model_type": "qwen3_5",
    "text_config": dense(
        64, 24, 4, 256, full_attention_interval=4,
        linear_num_value_heads=48, linear_num_key_heads=16, linear_key_head_dim=128,
        linear_value_head_dim=128, linear_conv_kernel_dim=4, mamba_ssm_dtype="float32",
    ),
}  # fmt: skip

KNOWN: dict[str, Case] = {
    # head_dim left out, as in the file: 4096 / 32. 2 x 32 x 8 x 128 x 2 bytes.
    "Llama 3.1 8B": Case(
        {
            "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "torch_dtype": "bfloat16",
        },
        131_072, 0, 131_072,
    ),
    "Llama 3.1 70B": Case(dense(80, 64, 8, 128), 327_680, 0, 327_680),
    "Qwen2.5 7B": Case(
        dense(28, 28, 4, 128, use_sliding_window=False, sliding_window=131_072,
              max_window_layers=28, model_type="qwen2"),
        57_344, 0, 57_344,
    ),
    "Qwen3 8B": Case(dense(36, 32, 8, 128, sliding_window=None), 147_456, 0, 147_456),
    "Qwen3 30B-A3B": Case(dense(48, 32, 4, 128), 98_304, 0, 98_304),
    "Qwen3 235B-A22B": Case(dense(94, 64, 4, 128), 192_512, 0, 192_512),
    # 61 x (512 + 64) x 2; 128 KV heads in the file mean nothing.
    "DeepSeek V3": Case(DEEPSEEK_V3, 70_272, 0, 70_272),
    "DeepSeek V3.2": Case({**DEEPSEEK_V3, **SPARSE}, 78_324, 0, 78_324),
    # 18 full: 18 x 2 x 8 x 64 x 2; 18 sliding: the same x 128 tokens.
    "gpt-oss-120b": Case(
        dense(36, 64, 8, 64, sliding_window=128, layer_types=alternating(36)),
        36_864, 4_718_592, 73_728,
    ),
    "gpt-oss-20b": Case(
        dense(24, 64, 8, 64, sliding_window=128, layer_types=alternating(24)),
        24_576, 3_145_728, 49_152,
    ),
    # The file names no pattern: its class knows every sixth. 10 x 2 x 16 x 128 x 2 and
    # 52 x 2 x 16 x 128 x 2 x 1024.
    "Gemma 3 27B": Case(
        {"model_type": "gemma3", "torch_dtype": "bfloat16", "text_config": {
            "model_type": "gemma3_text", "num_hidden_layers": 62, "num_attention_heads": 32,
            "num_key_value_heads": 16, "head_dim": 128, "hidden_size": 5376,
            "sliding_window": 1024,
        }},
        81_920, 436_207_616, 507_904,
    ),
    # 10 x 2 x 4 x 512 x 2; 50 x 2 x 16 x 256 x 2 = 819,200 a token in the window of 1024.
    "Gemma 4 31B": Case(GEMMA_4, 81_920, 838_860_800, 901_120),
    "Qwen3.6 27B": Case(QWEN_36, 65_536, 0, 65_536),
    "Qwen3.5 397B-A17B": Case(
        dense(60, 32, 2, 256, layer_types=every(60, 4, "linear_attention")), 30_720, 0, 30_720
    ),
    # Without num_key_value_heads every head has its own keys and values.
    "Llama 2 7B": Case(
        {
            "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
            "num_attention_heads": 32, "torch_dtype": "float16",
        },
        524_288, 0, 524_288,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_bytes_of_a_known_model(name: str) -> None:
    config, per_token, constant, all_full = KNOWN[name]
    geometry = kv_geometry(config)
    assert geometry.bytes_per_token == geometry.gpu_bytes_per_token == per_token
    assert geometry.constant_bytes == geometry.gpu_constant_bytes == constant
    assert geometry.all_full_bytes_per_token == all_full
    assert geometry.block_bytes(16) == 16 * per_token
    assert (geometry.window_tokens is None) == (constant == 0)
    assert f"{per_token:,} bytes per token" in geometry.steps[0]


def test_there_are_fifteen() -> None:
    assert len(KNOWN) == 15


def test_a_block_of_16_tokens_of_llama_8b_is_2_mib() -> None:
    assert kv_geometry(KNOWN["Llama 3.1 8B"].config).block_bytes() == 2 * 2**20


@pytest.mark.parametrize(
    ("kv_dtype", "bytes_per_token"),
    [("bf16", 70_272), ("fp8", 35_136), ("fp8_ds_mla", 40_016), ("float32", 140_544)],
)
def test_mla_in_every_kv_dtype(kv_dtype: str, bytes_per_token: int) -> None:
    """fp8_ds_mla is 512 + 16 + 128 bytes a layer, not 576: 61 x 656."""
    geometry = kv_geometry(DEEPSEEK_V3, kv_dtype=kv_dtype)
    assert (geometry.attention, geometry.bytes_per_token) == ("MLA", bytes_per_token)


def test_the_indexer_key_stays_fp8_with_scales() -> None:
    """61 x (656 + 132)."""
    geometry = kv_geometry({**DEEPSEEK_V3, **SPARSE}, kv_dtype="fp8_ds_mla")
    assert (geometry.attention, geometry.bytes_per_token) == ("sparse MLA", 48_068)


def test_kimi_keeps_its_language_model_in_a_section() -> None:
    config = {"model_type": "kimi_k25", "text_config": DEEPSEEK_V3, "vision_config": {}}
    assert kv_geometry(config).bytes_per_token == 70_272


@pytest.mark.parametrize(
    ("gpus", "llama", "deepseek"),
    [(1, 327_680, 70_272), (2, 163_840, 70_272), (8, 40_960, 70_272), (16, 40_960, 70_272)],
)
def test_gpus_share_kv_heads_until_each_has_one_and_mla_never(
    gpus: int, llama: int, deepseek: int
) -> None:
    for name, expected in (("Llama 3.1 70B", llama), ("DeepSeek V3", deepseek)):
        geometry = kv_geometry(KNOWN[name].config, tensor_parallel=gpus)
        assert geometry.gpu_bytes_per_token == expected
        assert geometry.bytes_per_token == KNOWN[name].per_token


def test_gpus_share_each_kind_of_layer_by_its_own_heads() -> None:
    """Gemma 4 on 8 GPUs: one of 4 global heads each, two of 16 heads with a window."""
    geometry = kv_geometry(GEMMA_4, tensor_parallel=8)
    assert geometry.gpu_bytes_per_token == 10 * 2 * 1 * 512 * 2
    assert geometry.gpu_constant_bytes == 50 * 2 * 2 * 256 * 2 * 1024


def test_a_recurrent_state_is_kept_for_each_reusable_point() -> None:
    geometry = kv_geometry(QWEN_36)
    elements = 48 * 48 * 128 * 128
    # Beside it three inputs of a convolution over 2 x 16 x 128 + 48 x 128 channels.
    convolution = 48 * 3 * (2 * 16 * 128 + 48 * 128)
    assert geometry.state_elements == elements
    assert geometry.state_bytes == elements * 4 + convolution * 2
    assert kv_geometry(QWEN_36, tensor_parallel=4).gpu_state_bytes == geometry.state_bytes // 4


def test_everything_but_the_shares_is_the_same_on_more_gpus() -> None:
    one, two = kv_geometry(QWEN_36), kv_geometry(QWEN_36, tensor_parallel=2)
    assert one.state_bytes is not None
    assert two == replace(
        one, tensor_parallel=2, gpu_bytes_per_token=32_768, gpu_state_bytes=one.state_bytes // 2
    )
