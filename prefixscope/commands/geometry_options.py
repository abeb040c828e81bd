"""Options that tell what the KV of a token weighs."""

from pathlib import Path
from typing import Annotated

import typer

from exporter.errors import PrefixscopeError

Config = Annotated[Path | None, typer.Option(help="config.json of the model, to tell bytes.")]
KvDtype = Annotated[
    str | None,
    typer.Option(help="Type of its KV, like bf16 or fp8.", show_default="that of the model"),
]


def token_bytes(config: Path | None, kv_dtype: str | None) -> int | None:
    """Bytes of a token over all GPUs of a replica; None without a configuration. BadParameter for
    a type of KV without one."""
    if config is None:
        if kv_dtype is not None:
            raise typer.BadParameter("--kv-dtype needs --config: give the model's config.json too")
        return None
    from exporter.geometry import read_config  # noqa: PLC0415 - brings the store with it
    from replay.geometry import kv_geometry  # noqa: PLC0415
    from replay.model_config import UnknownGeometry  # noqa: PLC0415

    try:
        found = kv_geometry(read_config(config), kv_dtype=kv_dtype).bytes_per_token
    except UnknownGeometry as error:
        raise PrefixscopeError(f"{config}: {error}") from error
    if not found:
        raise PrefixscopeError(
            f"{config}: no layer of this model keeps KV for every token, so tokens have no bytes:"
            " leave --config out"
        )
    return found
