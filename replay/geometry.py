"""How many bytes of KV a model keeps per token, worked out from its `config.json`.

Every figure about memory needs it: how much a cached prefix occupies, how many tokens a tier
holds, what a block weighs. The formulas follow the attention of the model:

- MHA, GQA, MQA: keys and values of each KV head in every layer.
- MLA: one compressed vector and one rotary key per layer, whatever the number of heads; packed
  by vLLM's `fp8_ds_mla`; with an indexer key beside it in sparse MLA.
- Sliding windows: only layers of full attention grow with the prompt; the others add a constant.
- Linear attention and Mamba: the same, with one state for each point that can be reused.

Drafting layers (multi-token prediction) and cross attention are not counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from replay.model_config import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    ModelConfig,
    UnknownGeometry,
    layer_kinds,
)
from replay.recurrent_state import RecurrentState, recurrent_state

PACKED = "fp8_ds_mla"
ELEMENT_BYTES = {
    "float32": 4, "fp32": 4,
    "bfloat16": 2, "bf16": 2, "float16": 2, "fp16": 2,
    "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "int8": 1,
}  # fmt: skip
KV_DTYPES = (*ELEMENT_BYTES, PACKED)
# Values that share one scale, and the bytes of a scale, in the packed formats.
_SCALED_VALUES, _SCALE_BYTES, _ROPE_BYTES = 128, 4, 2


@dataclass(frozen=True)
class KvGeometry:
    """Sizes of the KV of one model, in bytes; `gpu_…` are of one GPU of a tensor-parallel group.

    `bytes_per_token` is what one more token adds. `constant_bytes` is what the layers with a
    window hold once `window_tokens` are reached (0 and None without such layers), and
    `all_full_bytes_per_token` what a token costs in an engine that keeps them in full.
    `state_bytes` is one recurrent state (0 without such layers, None if its size is not
    known). `steps` say how each figure came about.
    """

    attention: str
    kv_dtype: str
    tensor_parallel: int
    bytes_per_token: int
    constant_bytes: int
    window_tokens: int | None
    all_full_bytes_per_token: int
    state_elements: int | None
    state_bytes: int | None
    gpu_bytes_per_token: int
    gpu_constant_bytes: int
    gpu_state_bytes: int | None
    steps: tuple[str, ...]

    def block_bytes(self, block_tokens: int = 16) -> int:
        """Bytes of one block in all GPUs' share of the model; constant parts are not in it."""
        return block_tokens * self.bytes_per_token


@dataclass(frozen=True)
class _Layers:
    """Layers that keep the same for a token: as many units of `unit_bytes` as there are KV heads.

    MLA keeps one vector for all heads: one unit, which every GPU holds.
    """

    layers: int
    units: int
    unit_bytes: int
    said: str

    def bytes_per_token(self, tensor_parallel: int = 1) -> int:
        units = self.units
        if units > 1 and max(units, tensor_parallel) % min(units, tensor_parallel):
            raise UnknownGeometry(f"{units} KV heads do not divide among {tensor_parallel} GPUs")
        return self.layers * max(1, units // tensor_parallel) * self.unit_bytes


def kv_geometry(
    config: Mapping[str, object], *, kv_dtype: str | None = None, tensor_parallel: int = 1
) -> KvGeometry:
    """The sizes for a parsed `config.json`; UnknownGeometry names the field it fails at.

    `kv_dtype` is the engine's type of KV, None = the type of the weights.
    """
    if tensor_parallel < 1:
        raise UnknownGeometry(f"tensor parallel must be at least 1, got {tensor_parallel}")
    model = ModelConfig.of(config)
    dtype = _kv_dtype(model, kv_dtype)
    kinds = layer_kinds(model)
    windowed = sum(kind in {"sliding", "chunked"} for kind in kinds)
    attention, full = _full_layers(model, kinds.count("full"), dtype)
    sliding = _attention_layers(model, windowed, dtype)
    window = _window(model, kinds)
    state = recurrent_state(model, kinds.count("linear"))
    return _geometry(attention, dtype, tensor_parallel, full, sliding, window, windowed, state)


def _geometry(
    attention: str,
    dtype: str,
    tensor_parallel: int,
    full: _Layers,
    sliding: _Layers,
    window: int | None,
    windowed: int,
    state: RecurrentState,
) -> KvGeometry:
    per_token, in_window = full.bytes_per_token(), sliding.bytes_per_token()
    held = window or 0
    steps = [f"{full.said} = {per_token:,} bytes per token"] if full.layers else []
    if windowed:
        steps.append(f"{sliding.said} x {held:,} tokens of the window = {held * in_window:,} bytes")
    return KvGeometry(
        attention=attention,
        kv_dtype=dtype,
        tensor_parallel=tensor_parallel,
        bytes_per_token=per_token,
        constant_bytes=held * in_window,
        window_tokens=window,
        all_full_bytes_per_token=per_token + in_window,
        state_elements=state.elements,
        state_bytes=state.bytes,
        gpu_bytes_per_token=full.bytes_per_token(tensor_parallel),
        gpu_constant_bytes=held * sliding.bytes_per_token(tensor_parallel),
        gpu_state_bytes=state.gpu_bytes(tensor_parallel),
        steps=(*steps, *state.steps),
    )


def _kv_dtype(model: ModelConfig, asked: str | None) -> str:
    if asked is not None:
        if asked not in KV_DTYPES:
            raise UnknownGeometry(f"unknown KV dtype {asked!r}; known: {', '.join(KV_DTYPES)}")
        return asked
    if model.quantised_kv():
        raise UnknownGeometry(
            "quantization_config asks for quantised KV (kv_cache_scheme): say which KV dtype"
        )
    dtype = model.dtype()
    if dtype not in ELEMENT_BYTES:
        found = "dtype is missing" if dtype is None else f"dtype {dtype!r} is not known"
        raise UnknownGeometry(f"{found}: say which KV dtype the engine uses")
    return dtype


def _full_layers(model: ModelConfig, layers: int, dtype: str) -> tuple[str, _Layers]:
    """Layers whose KV grows with the prompt, and the name of their attention."""
    if model.count("kv_lora_rank"):
        return _latent_layers(model, layers, dtype)
    heads = model.needed(*HEADS)
    kv_heads = _kv_heads(model, heads)
    name = "MHA" if kv_heads == heads else "MQA" if kv_heads == 1 else "GQA"
    global_heads = model.count("num_global_key_value_heads")
    return name, _attention_layers(
        model, layers, dtype, heads=global_heads, head_dim=model.count("global_head_dim")
    )


def _latent_layers(model: ModelConfig, layers: int, dtype: str) -> tuple[str, _Layers]:
    rank, rope = model.needed("kv_lora_rank"), model.needed("qk_rope_head_dim")
    if dtype == PACKED:
        if rank % _SCALED_VALUES:
            raise UnknownGeometry(f"kv_lora_rank {rank} cannot be packed as {PACKED}")
        scales = rank // _SCALED_VALUES * _SCALE_BYTES
        size = rank + scales + rope * _ROPE_BYTES
        said = f"({rank} fp8 + {scales} bytes of scales + {rope} x {_ROPE_BYTES} bytes)"
    else:
        size = (rank + rope) * ELEMENT_BYTES[dtype]
        said = f"(kv_lora_rank {rank} + rope {rope}) x {ELEMENT_BYTES[dtype]} bytes"
    indexer = _indexer_bytes(model)
    name = "MLA"
    if indexer:
        name, said = "sparse MLA", f"({said} + {indexer} bytes of the indexer)"
    return name, _Layers(layers, 1, size + indexer, f"{layers} layers x {said}")


def _indexer_bytes(model: ModelConfig) -> int:
    """The indexer's key of one token and layer: fp8 with scales, whatever the KV dtype."""
    if "index_topk" not in model.values:
        return 0
    size = model.needed("index_head_dim")
    if size % _SCALED_VALUES:
        raise UnknownGeometry(f"index_head_dim {size} is not a multiple of {_SCALED_VALUES}")
    return size + size // _SCALED_VALUES * _SCALE_BYTES


def _attention_layers(
    model: ModelConfig,
    layers: int,
    dtype: str,
    *,
    heads: int | None = None,
    head_dim: int | None = None,
) -> _Layers:
    """Layers that keep keys and values; `heads` and `head_dim` where theirs differ."""
    if not layers:
        return _Layers(0, 1, 0, "")
    if model.count("kv_lora_rank"):
        raise UnknownGeometry(
            "kv_lora_rank with layers of a window: MLA is understood in full only"
        )
    if dtype == PACKED:
        raise UnknownGeometry(f"{PACKED} packs the KV of MLA, and this model has other attention")
    query_heads = model.needed(*HEADS)
    kv_heads = heads or _kv_heads(model, query_heads)
    key_dim = head_dim or _head_dim(model, query_heads)
    value_dim = key_dim if head_dim else model.count("v_head_dim") or key_dim
    size = ELEMENT_BYTES[dtype]
    said = f"2 x {key_dim}" if key_dim == value_dim else f"({key_dim} + {value_dim})"
    return _Layers(
        layers,
        kv_heads,
        (key_dim + value_dim) * size,
        f"{layers} layers x {kv_heads} KV heads x {said} x {size} bytes",
    )


def _kv_heads(model: ModelConfig, heads: int) -> int:
    """KV heads in any spelling; a config that names none has as many as query heads."""
    if model.flag("multi_query_attention"):
        kv_heads = model.needed("multi_query_group_num")
    elif model.flag("multi_query") and not model.flag("new_decoder_architecture"):
        kv_heads = 1  # Falcon's num_kv_heads beside it does not count
    elif model.values.get("attn_type") == "multiquery_attention":
        kv_heads = 1
    else:
        kv_heads = model.count(*KV_HEADS) or heads
    if kv_heads > heads or heads % kv_heads:
        raise UnknownGeometry(
            f"the config contradicts itself: {heads} heads cannot share {kv_heads} KV heads"
        )
    return kv_heads


def _head_dim(model: ModelConfig, heads: int) -> int:
    if given := model.count(*HEAD_DIM):
        return given
    hidden = model.needed(*HIDDEN)
    if hidden % heads:
        raise UnknownGeometry(
            f"head_dim is missing, and hidden_size {hidden} is no multiple of {heads} heads"
        )
    return hidden // heads


def _window(model: ModelConfig, kinds: tuple[str, ...]) -> int | None:
    """Tokens that layers with a window hold; None without such layers."""
    names = {"sliding": "sliding_window", "chunked": "attention_chunk_size"}
    found = {model.needed(names[kind]) for kind in set(kinds) & set(names)}
    if len(found) > 1:
        raise UnknownGeometry("layers with a window and layers with chunks of another size")
    return next(iter(found), None)
