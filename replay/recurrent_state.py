"""The state that linear attention and Mamba layers keep instead of KV.

It does not grow with the prompt, but a prefix can be reused only where its state was kept: one
for every reusable point. Two parts: the recurrent state and the last inputs of a convolution.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from replay.model_config import HIDDEN, ModelConfig, UnknownGeometry

_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class RecurrentState:
    """All layers' state of one point. None where the config does not tell: never a guess.

    `elements` are those of the recurrent state; `bytes` has the convolution's too.
    """

    elements: int | None
    bytes: int | None
    heads: int
    steps: tuple[str, ...] = ()

    def gpu_bytes(self, tensor_parallel: int) -> int | None:
        """The share of one GPU; None where heads do not divide."""
        if not self.bytes or tensor_parallel == 1:
            return self.bytes
        return None if self.heads % tensor_parallel else self.bytes // tensor_parallel


@dataclass(frozen=True)
class _Shape:
    """One layer: elements of the recurrent state, of the convolution, and heads."""

    recurrent: int
    convolution: int
    heads: int
    said: str


def recurrent_state(model: ModelConfig, layers: int) -> RecurrentState:
    """The state of `layers` layers; nothing for none."""
    if not layers:
        return RecurrentState(0, 0, 1)
    shape = _gated_delta(model) or _kimi(model) or _mamba2(model)
    if shape is None:
        said = f"{layers} layers keep a state whose size the config does not tell"
        return RecurrentState(None, None, 1, (said,))
    elements = layers * shape.recurrent
    own, others = _dtypes(model)
    step = f"{layers} layers x {shape.said} = {elements:,} elements of state per reusable point"
    if own is None or others is None:
        return RecurrentState(elements, None, shape.heads, (step,))
    convolution = layers * shape.convolution
    size = elements * _DTYPE_BYTES[own] + convolution * _DTYPE_BYTES[others]
    sizes = (
        f"these in {own} and {convolution:,} elements of convolution in {others} = {size:,} bytes"
    )
    return RecurrentState(elements, size, shape.heads, (step, sizes))


def _dtypes(model: ModelConfig) -> tuple[str | None, str | None]:
    """Of the recurrent state and of the convolution; None where not known."""
    weights = model.dtype()
    own = str(model.values.get("mamba_ssm_dtype", weights))
    known = [dtype if dtype in _DTYPE_BYTES else None for dtype in (own, weights)]
    return known[0], known[1]


def _gated_delta(model: ModelConfig) -> _Shape | None:
    """Qwen3-Next and its successors: one matrix per value head."""
    heads = model.count("linear_num_value_heads")
    if not heads:
        return None
    key_dim, value_dim = model.needed("linear_key_head_dim"), model.needed("linear_value_head_dim")
    channels = 2 * model.needed("linear_num_key_heads") * key_dim + heads * value_dim
    kernel = model.needed("linear_conv_kernel_dim")
    return _Shape(
        heads * key_dim * value_dim,
        (kernel - 1) * channels,
        heads,
        f"{heads} heads x {key_dim} x {value_dim}",
    )


def _kimi(model: ModelConfig) -> _Shape | None:
    """Kimi's delta attention: keys and values of one size, three convolutions."""
    linear = model.values.get("linear_attn_config")
    if not isinstance(linear, Mapping):
        return None
    own = ModelConfig(linear, linear)
    heads, head_dim = own.needed("num_heads"), own.needed("head_dim")
    kernel = own.needed("short_conv_kernel_size")
    return _Shape(
        heads * head_dim * head_dim,
        (kernel - 1) * 3 * heads * head_dim,
        heads,
        f"{heads} heads x {head_dim} x {head_dim}",
    )


def _mamba2(model: ModelConfig) -> _Shape | None:
    """Mamba 2 as Granite, Bamba and Nemotron-H spell it."""
    heads = model.count("mamba_n_heads", "mamba_num_heads")
    if not heads:
        return None
    state_dim = model.needed("mamba_d_state", "ssm_state_size")
    head_dim = _mamba_head_dim(model, heads)
    groups = model.needed("mamba_n_groups", "n_groups")
    kernel = model.needed("mamba_d_conv", "conv_kernel")
    return _Shape(
        heads * head_dim * state_dim,
        (kernel - 1) * (heads * head_dim + 2 * groups * state_dim),
        heads,
        f"{heads} heads x {head_dim} x {state_dim}",
    )


def _mamba_head_dim(model: ModelConfig, heads: int) -> int:
    """Given, or (`auto`) the expanded width divided among the heads."""
    if model.values.get("mamba_d_head") != "auto":
        return model.needed("mamba_d_head", "mamba_head_dim")
    width = model.needed("mamba_expand") * model.needed(*HIDDEN)
    if width % heads:
        raise UnknownGeometry(f"mamba_d_head: a width of {width} is no multiple of {heads} heads")
    return width // heads
