"""Other spellings of the same facts, hybrid layers, and configs that say too little."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.geometry import kv_geometry
from replay.model_config import UnknownGeometry

Config = dict[str, Any]
PLAIN: Config = {
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
    "torch_dtype": "bfloat16",
}  # fmt: skip
# One layer of it: 2 heads x 2 x 64 x 2 bytes.
LAYER = 512


@pytest.mark.parametrize(
    ("config", "attention", "per_token"),
    [
        pytest.param(  # 2 x 32 x 1 x 64 x 2
            {"model_type": "falcon", "num_hidden_layers": 32, "num_attention_heads": 71,
             "num_kv_heads": 71, "multi_query": True, "new_decoder_architecture": False,
             "hidden_size": 4544, "torch_dtype": "bfloat16"},
            "MQA", 8_192, id="falcon 7b",
        ),
        pytest.param(  # 2 x 60 x 8 x 64 x 2
            {"model_type": "falcon", "num_hidden_layers": 60, "num_attention_heads": 128,
             "num_kv_heads": 8, "multi_query": True, "new_decoder_architecture": True,
             "hidden_size": 8192, "torch_dtype": "bfloat16"},
            "GQA", 122_880, id="falcon 40b",
        ),
        pytest.param(
            {"n_layer": 60, "n_head": 128, "n_head_kv": 8, "hidden_size": 8192,
             "torch_dtype": "bfloat16"},
            "GQA", 122_880, id="falcon 40b, first spelling",
        ),
        pytest.param(  # 2 x 40 x 1 x 128 x 2
            {"model_type": "gpt_bigcode", "n_layer": 40, "n_head": 48, "n_embd": 6144,
             "multi_query": True, "torch_dtype": "float16"},
            "MQA", 20_480, id="starcoder",
        ),
        pytest.param(  # 2 x 48 x 25 x 64 x 4
            {"model_type": "gpt2", "n_layer": 48, "n_head": 25, "n_embd": 1600,
             "dtype": "float32"},
            "MHA", 614_400, id="gpt2 xl, newer spelling of the type",
        ),
        pytest.param(  # 2 x 28 x 2 x 128 x 2
            {"model_type": "chatglm", "num_layers": 28, "num_attention_heads": 32,
             "multi_query_attention": True, "multi_query_group_num": 2, "kv_channels": 128,
             "hidden_size": 4096, "torch_dtype": "torch.float16"},
            "GQA", 28_672, id="chatglm 3",
        ),
        pytest.param(  # 2 x 40 x 8 x 128 x 2
            {"model_type": "dbrx", "n_layers": 40, "n_heads": 48, "d_model": 6144,
             "attn_config": {"kv_n_heads": 8, "clip_qkv": 8}, "torch_dtype": "bfloat16"},
            "GQA", 163_840, id="dbrx",
        ),
        pytest.param(  # 2 x 48 x 1 x 128 x 2
            {"model_type": "mpt", "n_layers": 48, "n_heads": 56, "d_model": 7168,
             "attn_config": {"attn_type": "multiquery_attention"}, "torch_dtype": "bfloat16"},
            "MQA", 24_576, id="mpt with one KV head",
        ),
        pytest.param(  # 4 x 2 x (192 + 128) x 2
            {**PLAIN, "head_dim": 192, "v_head_dim": 128}, "GQA", 5_120, id="values of own size"
        ),
    ],
)  # fmt: skip
def test_old_and_odd_spellings(config: Config, attention: str, per_token: int) -> None:
    geometry = kv_geometry(config)
    assert (geometry.attention, geometry.bytes_per_token) == (attention, per_token)


@pytest.mark.parametrize(
    ("more", "full", "windowed", "window"),
    [
        ({"sliding_window": 100, "sliding_window_pattern": 2}, 2, 2, 100),
        ({"sliding_window": 100, "_sliding_window_pattern": 4}, 1, 3, 100),
        ({"sliding_window": 100, "model_type": "gemma2"}, 2, 2, 100),
        ({"sliding_window": 100, "model_type": "mistral"}, 0, 4, 100),
        ({"sliding_window": None, "model_type": "mistral"}, 4, 0, None),
        ({"sliding_window": 100, "use_sliding_window": True, "max_window_layers": 3}, 3, 1, 100),
        ({"sliding_window": 100, "use_sliding_window": False}, 4, 0, None),
        ({"layer_types": ["full_attention"] * 4, "sliding_window": 100}, 4, 0, None),
        (
            {
                "layer_types": ["chunked_attention"] * 3 + ["full_attention"],
                "attention_chunk_size": 50,
            },
            1, 3, 50,
        ),
        # The last two layers use the KV of those before them.
        (
            {
                "layer_types": ["sliding_attention", "full_attention"] * 2,
                "sliding_window": 100, "num_kv_shared_layers": 2,
            },
            1, 1, 100,
        ),
    ],
)  # fmt: skip
def test_layers_with_a_window(more: Config, full: int, windowed: int, window: int | None) -> None:
    geometry = kv_geometry({**PLAIN, **more})
    assert geometry.bytes_per_token == full * LAYER
    assert geometry.constant_bytes == windowed * LAYER * (window or 0)
    assert geometry.all_full_bytes_per_token == (full + windowed) * LAYER
    assert geometry.window_tokens == window


@pytest.mark.parametrize(
    ("more", "full", "state_elements"),
    [
        pytest.param(
            {"layers_block_type": ["mamba", "attention", "mamba", "mamba"]}, 1, None, id="by words"
        ),
        pytest.param({"attn_layer_period": 4, "attn_layer_offset": 2}, 1, None, id="jamba"),
        pytest.param(  # 2 x 16 x 64 x 128
            {"hybrid_override_pattern": "M*-M", "mamba_num_heads": 16, "mamba_head_dim": 64,
             "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4},
            1, 262_144, id="nemotron",
        ),
        pytest.param(  # 3 x 8 x 32 x 16; the head size follows from 2 x 128 / 8
            {"layer_types": ["mamba"] * 3 + ["attention"], "mamba_n_heads": 8,
             "mamba_d_head": "auto", "mamba_expand": 2, "hidden_size": 128,
             "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_d_conv": 4},
            1, 12_288, id="granite",
        ),
        pytest.param(  # 3 x 4 x 128 x 128
            {"linear_attn_config": {
                "full_attn_layers": [4], "kda_layers": [1, 2, 3], "num_heads": 4,
                "head_dim": 128, "short_conv_kernel_size": 4}},
            1, 196_608, id="kimi",
        ),
        pytest.param({"layer_types": ["conv", "full_attention"] * 2}, 2, None, id="convolutions"),
    ],
)  # fmt: skip
def test_layers_with_a_state(more: Config, full: int, state_elements: int | None) -> None:
    geometry = kv_geometry({**PLAIN, **more})
    assert geometry.bytes_per_token == full * LAYER
    assert geometry.state_elements == state_elements
    assert (geometry.state_bytes is None) == (state_elements is None)


def test_mla_in_every_fourth_layer() -> None:
    linear = {
        "full_attn_layers": [4], "kda_layers": [1, 2, 3], "num_heads": 4, "head_dim": 128,
        "short_conv_kernel_size": 4,
    }  # fmt: skip
    config = {**PLAIN, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "linear_attn_config": linear}
    assert kv_geometry(config).bytes_per_token == (512 + 64) * 2


def test_a_state_on_gpus_that_do_not_divide_its_heads_is_not_known() -> None:
    linear = {
        "full_attn_layers": [4], "kda_layers": [1, 2, 3], "num_heads": 5, "head_dim": 128,
        "short_conv_kernel_size": 4,
    }  # fmt: skip
    geometry = kv_geometry({**PLAIN, "linear_attn_config": linear}, tensor_parallel=2)
    assert geometry.state_bytes is not None
    assert geometry.gpu_state_bytes is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"num_attention_heads": None}, "num_attention_heads is missing"),
        ({"head_dim": None}, "hidden_size is missing"),
        ({"head_dim": None, "hidden_size": 100}, "hidden_size 100 is no multiple of 8 heads"),
        ({"num_key_value_heads": 3}, "8 heads cannot share 3 KV heads"),
        ({"num_key_value_heads": 16}, "8 heads cannot share 16 KV heads"),
        ({"num_key_value_heads": [2, 4]}, r"num_key_value_heads: expected a whole number.*\[2, 4"),
        ({"num_hidden_layers": "4"}, "num_hidden_layers: expected a whole number, found '4'"),
        ({"num_hidden_layers": True}, "num_hidden_layers: expected a whole number"),
        ({"n_layer": 5}, "contradicts itself: num_hidden_layers 4, n_layer 5"),
        ({"num_kv_heads": 4}, "contradicts itself: num_key_value_heads 2, num_kv_heads 4"),
        ({"layer_types": ["full_attention"]}, "4 layers, but kinds of 1"),
        ({"layer_types": ["full_attention"] * 3 + ["magic"]}, "unknown kind 'magic'; known: full"),
        ({"layer_types": "full"}, "layer_types: expected a list"),
        ({"layer_types": ["sliding_attention"] * 4}, "sliding_window is missing"),
        ({"sliding_window": 100}, "neither layer_types nor sliding_window_pattern say which"),
        ({"sliding_window": 100, "use_sliding_window": True}, "max_window_layers is missing"),
        ({"attention_chunk_size": 100}, "no layer_types say where"),
        ({"hybrid_override_pattern": "M*x-"}, "unknown letter 'x'"),
        ({"linear_attn_config": {"full_attn_layers": [1], "kda_layers": [2]}}, "each of 4 layers"),
        ({"linear_attn_config": 3}, "linear_attn_config: expected a JSON object"),
        ({"num_kv_shared_layers": 4}, "num_kv_shared_layers: 4 of 4 layers"),
        ({"torch_dtype": None}, "dtype is missing: say which KV dtype"),
        ({"torch_dtype": "auto"}, "dtype 'auto' is not known: say which"),
        (
            {"quantization_config": {"kv_cache_scheme": {"num_bits": 8}}},
            "asks for quantised KV .*say which KV dtype",
        ),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim is missing"),
        ({"is_encoder_decoder": True}, "is an encoder"),
        ({"model_type": "bert"}, "bert is an encoder"),
        ({"multi_query": 1}, "multi_query: expected true or false"),
        ({"compress_ratios": [4]}, "compress_ratios: this kind of attention is not understood"),
        ({"text_config": 5}, "section of the language model is not a JSON object"),
        ({"text_config": {"model_type": "llama"}}, "num_hidden_layers is missing"),
        (
            {"layer_types": ["chunked_attention", "sliding_attention"] * 2,
             "sliding_window": 5, "attention_chunk_size": 6},
            "chunks of another size",
        ),
    ],
)  # fmt: skip
def test_what_is_not_known_is_an_error_and_no_guess(change: Config, message: str) -> None:
    with pytest.raises(UnknownGeometry, match=message):
        kv_geometry({**PLAIN, **change})


def test_packed_kv_is_for_mla() -> None:
    mla = {**PLAIN, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    with pytest.raises(UnknownGeometry, match="fp8_ds_mla packs the KV of MLA"):
        kv_geometry(PLAIN, kv_dtype="fp8_ds_mla")
    with pytest.raises(UnknownGeometry, match="kv_lora_rank 500 cannot be packed"):
        kv_geometry({**mla, "kv_lora_rank": 500}, kv_dtype="fp8_ds_mla")
    with pytest.raises(UnknownGeometry, match="index_head_dim 100"):
        kv_geometry({**mla, "index_topk": 9, "index_head_dim": 100})
    with pytest.raises(UnknownGeometry, match="index_head_dim is missing"):
        kv_geometry({**mla, "index_topk": 9})
    with pytest.raises(UnknownGeometry, match="kv_lora_rank with layers of a window"):
        kv_geometry({**mla, "sliding_window": 9, "sliding_window_pattern": 2})


def test_bad_arguments_say_what_is_known() -> None:
    with pytest.raises(UnknownGeometry, match=r"unknown KV dtype 'fp3'; known: float32, .*fp8_ds"):
        kv_geometry(PLAIN, kv_dtype="fp3")
    with pytest.raises(UnknownGeometry, match="at least 1, got 0"):
        kv_geometry(PLAIN, tensor_parallel=0)
    config = {**PLAIN, "num_attention_heads": 12, "num_key_value_heads": 6}
    with pytest.raises(UnknownGeometry, match="6 KV heads do not divide among 4 GPUs"):
        kv_geometry(config, tensor_parallel=4)


@pytest.mark.parametrize("value", [None, [], 3, "x", {1: 2}])
def test_what_is_no_config_is_refused(value: object) -> None:
    with pytest.raises(UnknownGeometry, match="not a model config"):
        kv_geometry(value)  # type: ignore[arg-type]


FIELDS = (
    *PLAIN, "n_layer", "layer_types", "sliding_window", "sliding_window_pattern", "kv_lora_rank",
    "qk_rope_head_dim", "index_topk", "index_head_dim", "linear_attn_config", "attn_config",
    "full_attention_interval", "attn_layer_period", "text_config", "mamba_n_heads", "model_type",
    "linear_num_value_heads", "mamba_d_head", "hybrid_override_pattern", "num_kv_shared_layers",
    "quantization_config", "multi_query", "global_head_dim", "mamba_ssm_dtype",
)  # fmt: skip
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 600) | st.floats() | st.text(max_size=8)
    | st.sampled_from(["gemma2", "mistral", "auto", "M*M-", "float32", "full_attention"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), ANY), st.booleans())
def test_any_json_is_a_geometry_or_an_error_to_read(fields: Config, on_plain: bool) -> None:
    try:
        geometry = kv_geometry({**PLAIN, **fields} if on_plain else fields)
    except UnknownGeometry:
        return
    assert geometry.bytes_per_token >= 0
    assert geometry.all_full_bytes_per_token >= geometry.bytes_per_token
