"""Reads what decides the size of KV from a parsed Hugging Face `config.json`.

Configs spell the same fact in a dozen ways and leave out what their class fills in. Here each
fact has one reading; what is missing, contradicts itself or is not understood is an
`UnknownGeometry`, because a wrong size looks exactly like a right one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

# What a layer keeps: KV of every token, KV of a window, one state, or nothing.
Kind = Literal["full", "sliding", "chunked", "linear", "none"]

# Where multimodal configs keep their language model.
_TEXT_SECTIONS = ("text_config", "llm_config", "language_config")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads")
HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads")
HEAD_DIM = ("head_dim", "kv_channels")

_LAYER_WORDS: dict[str, Kind] = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "mamba": "linear",
    "conv": "linear",
}
_PATTERN_LETTERS: dict[str, Kind] = {"*": "full", "M": "linear", "-": "none", "E": "none"}

# What the class of a model type fills in where its config file says nothing.
_CLASS_DEFAULTS: dict[str, dict[str, object]] = {
    "gemma2": {"sliding_window_pattern": 2},
    "gemma3_text": {
        "sliding_window_pattern": 6,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
    },
    "cohere2": {"sliding_window_pattern": 4},
}
# Model types whose `sliding_window` holds for every layer.
_ALL_SLIDING = ("mistral", "mixtral", "phi3", "starcoder2")
_ENCODERS = ("albert", "bert", "distilbert", "electra", "modernbert", "roberta", "xlm-roberta")
# Fields that change what is kept in a way this module does not compute.
_NOT_UNDERSTOOD = (
    "attn_type_list",
    "block_configs",
    "block_types",
    "cla_share_factor",
    "compress_ratios",
    "hybrid_layer_pattern",
    "num_key_value_heads_per_layer",
)


# Every layer is looked at, so their number is bounded: known models have some hundred.
_MOST_LAYERS = 10_000
_LARGEST = 2**63


class UnknownGeometry(ValueError):
    """The config does not say what KV its model keeps; the message names the field."""


@dataclass(frozen=True)
class ModelConfig:
    """The fields of one language model. `whole` is the file they come from."""

    values: Mapping[str, Any]
    whole: Mapping[str, Any]

    @classmethod
    def of(cls, config: object) -> "ModelConfig":
        """The language model's own section of a config; UnknownGeometry if it is none we know."""
        if not isinstance(config, Mapping) or not all(isinstance(key, str) for key in config):
            raise UnknownGeometry("not a model config: expected a JSON object of fields")
        sections = [config[name] for name in _TEXT_SECTIONS if config.get(name) is not None]
        own: Mapping[str, Any] = sections[0] if sections else config
        if not isinstance(own, Mapping):
            raise UnknownGeometry("the section of the language model is not a JSON object")
        nested = own.get("attn_config")
        attention: Mapping[str, Any] = nested if isinstance(nested, Mapping) else {}
        defaults = _CLASS_DEFAULTS.get(str(own.get("model_type")), {})
        given = {name: value for name, value in own.items() if value is not None}
        model = cls({**defaults, **attention, **given}, config)
        model._refuse_others()
        return model

    def _refuse_others(self) -> None:
        kind = str(self.values.get("model_type"))
        if kind in _ENCODERS or self.flag("is_encoder_decoder"):
            raise UnknownGeometry(f"{kind} is an encoder: only decoders keep KV for reuse")
        for name in _NOT_UNDERSTOOD:
            if name in self.values:
                raise UnknownGeometry(f"{name}: this kind of attention is not understood")

    def flag(self, name: str) -> bool:
        """A switch; one that is not given is off."""
        value = self.values.get(name, False)
        if not isinstance(value, bool):
            raise UnknownGeometry(f"{name}: expected true or false, found {value!r}")
        return value

    def count(self, *names: str) -> int | None:
        """A whole number under any of its spellings, None where no spelling is given.

        Two spellings with different numbers contradict each other.
        """
        found = {name: self._whole(name) for name in names if name in self.values}
        if len(set(found.values())) > 1:
            said = ", ".join(f"{name} {number}" for name, number in found.items())
            raise UnknownGeometry(f"the config contradicts itself: {said}")
        return next(iter(found.values()), None)

    def needed(self, *names: str) -> int:
        """The same, where nothing can be computed without it; 0 counts as missing."""
        number = self.count(*names)
        if not number:
            raise UnknownGeometry(f"{names[0]} is missing")
        return number

    def _whole(self, name: str) -> int:
        value = self.values[name]
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST:
            raise UnknownGeometry(f"{name}: expected a whole number, found {_shown(value)}")
        return value

    def dtype(self) -> str | None:
        """The type of the weights, which KV has where nothing else is asked for."""
        places = (self.values, self.whole)
        found = (place.get(name) for place in places for name in ("torch_dtype", "dtype"))
        value = next((value for value in found if value is not None), None)
        return None if value is None else str(value).removeprefix("torch.")

    def quantised_kv(self) -> bool:
        """Does the checkpoint itself ask for quantised KV?"""
        places = (self.values, self.whole)
        asked = (place.get("quantization_config") for place in places)
        return any(isinstance(q, Mapping) and q.get("kv_cache_scheme") is not None for q in asked)


def layer_kinds(model: ModelConfig) -> tuple[Kind, ...]:
    """What each layer keeps, first layer first; layers that share the KV of others keep nothing."""
    layers = model.needed(*LAYERS)
    if layers > _MOST_LAYERS:
        raise UnknownGeometry(f"{LAYERS[0]}: no model has {layers:,} layers")
    kinds = _own_kinds(model, layers)
    if len(kinds) != layers:
        raise UnknownGeometry(
            f"the config contradicts itself: {layers} layers, but kinds of {len(kinds)}"
        )
    shared = model.count("num_kv_shared_layers") or 0
    if shared >= layers:
        raise UnknownGeometry(f"num_kv_shared_layers: {shared} of {layers} layers")
    sharing: list[Kind] = ["none"] * shared
    return (*kinds[: layers - shared], *sharing)


def _own_kinds(model: ModelConfig, layers: int) -> Sequence[Kind]:
    """From the most explicit field to the least."""
    values = model.values
    for name in ("layer_types", "layers_block_type"):
        if name in values:
            return [_word(name, word) for word in _listed(name, values[name])]
    if "hybrid_override_pattern" in values:
        return [_letter(letter) for letter in str(values["hybrid_override_pattern"])]
    if "linear_attn_config" in values:
        return _kimi_kinds(values["linear_attn_config"], layers)
    if interval := model.count("full_attention_interval"):
        return _every(interval, layers, "linear")
    if period := model.count("attn_layer_period"):
        offset = model.count("attn_layer_offset") or 0
        return ["full" if i % period == offset else "linear" for i in range(layers)]
    return _window_kinds(model, layers)


def _window_kinds(model: ModelConfig, layers: int) -> Sequence[Kind]:
    """Layers of a model whose config may have a window, but lists no kinds."""
    if "attention_chunk_size" in model.values:
        raise UnknownGeometry("attention_chunk_size is set, but no layer_types say where")
    if not model.count("sliding_window") or model.values.get("use_sliding_window") is False:
        return ["full"] * layers
    if pattern := model.count("sliding_window_pattern", "_sliding_window_pattern"):
        return _every(pattern, layers, "sliding")
    if model.flag("use_sliding_window"):
        first = model.needed("max_window_layers")
        return ["full" if i < first else "sliding" for i in range(layers)]
    if model.values.get("model_type") in _ALL_SLIDING:
        return ["sliding"] * layers
    raise UnknownGeometry(
        "sliding_window is set, but neither layer_types nor sliding_window_pattern say "
        "which layers it holds for"
    )


def _every(interval: int, layers: int, others: Kind) -> list[Kind]:
    """Every `interval`-th layer is full, counted from 1."""
    return ["full" if (i + 1) % interval == 0 else others for i in range(layers)]


def _kimi_kinds(linear: object, layers: int) -> list[Kind]:
    """Kimi's lists of layer numbers, counted from 1; each layer stands in one of the two."""
    if not isinstance(linear, Mapping):
        raise UnknownGeometry("linear_attn_config: expected a JSON object")
    full = set(_listed("full_attn_layers", linear.get("full_attn_layers")))
    states = set(_listed("kda_layers", linear.get("kda_layers")))
    if full & states or full | states != set(range(1, layers + 1)):
        raise UnknownGeometry(
            f"linear_attn_config: its lists do not name each of {layers} layers once"
        )
    return ["full" if i + 1 in full else "linear" for i in range(layers)]


def _listed(name: str, value: object) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(item, str | int) for item in value):
        raise UnknownGeometry(f"{name}: expected a list, found {_shown(value)}")
    return value


def _word(name: str, word: object) -> Kind:
    kind = _LAYER_WORDS.get(str(word))
    if kind is None:
        known = ", ".join(_LAYER_WORDS)
        raise UnknownGeometry(f"{name}: unknown kind {_shown(word)}; known: {known}")
    return kind


def _letter(letter: str) -> Kind:
    kind = _PATTERN_LETTERS.get(letter)
    if kind is None:
        raise UnknownGeometry(f"hybrid_override_pattern: unknown letter {_shown(letter)}")
    return kind


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
