"""What the KV of the user's models weighs per token, from the settings into the store.

Engines tell tokens and blocks; bytes follow only from a model's geometry, which no page tells.
The questions about memory read the table `kv_geometry`; a model without a row has no bytes.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from exporter.errors import PrefixscopeError
from exporter.store.store import Store
from replay.geometry import kv_geometry
from replay.model_config import UnknownGeometry

# Configs have a few kilobytes; what is far larger is another file, such as weights.
_MAX_CONFIG_BYTES = 16 << 20


class ModelGeometry(BaseModel):
    """One model: its config file, or the bytes themselves."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model: str = Field(min_length=1, description="the model as engines name it")
    config: Path | None = Field(None, description="its Hugging Face config.json")
    kv_dtype: str | None = Field(None, description="type of the KV; default: of the weights")
    bytes_per_token: PositiveInt | None = Field(None, description="instead of a config")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.config is None) == (self.bytes_per_token is None):
            raise ValueError("give either config or bytes_per_token")
        return self


def bytes_per_token(settings: Sequence[ModelGeometry]) -> dict[str, tuple[int, str]]:
    """Of each model the bytes of one token over all its GPUs, and where the figure comes from.

    PrefixscopeError names the model and file of what cannot be read or worked out.
    """
    known: dict[str, tuple[int, str]] = {}
    for given in settings:
        if given.model in known:
            raise PrefixscopeError(f"geometry: the model {given.model!r} is given twice")
        known[given.model] = _of(given)
    return known


def keep_geometry(store: Store, known: Mapping[str, tuple[int, str]]) -> None:
    """Make the table of the store what the settings say; models no longer named lose their row."""
    with store.write() as cursor:
        cursor.execute("DELETE FROM kv_geometry")
        for model, (size, source) in known.items():
            cursor.execute("INSERT INTO kv_geometry VALUES (?, ?, ?)", [model, size, source])


def kept_geometry(store: Store) -> dict[str, int]:
    """Bytes per token by model, as the store has them."""
    rows = store.cursor().execute("SELECT model, bytes_per_token FROM kv_geometry").fetchall()
    return dict(rows)


def read_config(path: Path) -> dict[str, object]:
    """A model's config as JSON; every way it can be something else is an error to read."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise PrefixscopeError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > _MAX_CONFIG_BYTES:
        raise PrefixscopeError(f"{path}: too large for a config.json")
    try:
        config: dict[str, object] = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise PrefixscopeError(f"{path}: not JSON: {error}") from error
    return config


def _of(given: ModelGeometry) -> tuple[int, str]:
    if given.bytes_per_token is not None:
        return given.bytes_per_token, "settings"
    assert given.config is not None
    try:
        sizes = kv_geometry(read_config(given.config), kv_dtype=given.kv_dtype)
    except UnknownGeometry as error:
        raise PrefixscopeError(f"geometry of {given.model!r}: {given.config}: {error}") from error
    return sizes.bytes_per_token, given.config.name
