"""`geometry`: what a model's KV weighs, from its config file."""

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from exporter.errors import PrefixscopeError
from exporter.geometry import read_config
from prefixscope.commands import options
from prefixscope.consoles import terminal
from prefixscope.tables import rows_table
from replay.geometry import KV_DTYPES, KvGeometry, kv_geometry
from replay.model_config import UnknownGeometry

BLOCK_TOKENS = 16


class GeometryOutput(StrEnum):
    """How the sizes are written."""

    TABLE = "table"
    JSON = "json"


def geometry(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.json", help="The config.json of the model.")
    ],
    kv_dtype: Annotated[
        str | None,
        typer.Option(help=f"Type of KV: {', '.join(KV_DTYPES)}.", show_default="the weights' type"),
    ] = None,
    tensor_parallel: Annotated[
        int, typer.Option("--tp", min=1, help="GPUs that share the model.")
    ] = 1,
    as_: Annotated[GeometryOutput, options.OUTPUT] = GeometryOutput.TABLE,
) -> None:
    """Work out the bytes of KV per token, block and GPU of a model, and show how.

    Example: prefixscope geometry config.json --kv-dtype fp8 --tp 4
    """
    if kv_dtype is not None and kv_dtype not in KV_DTYPES:
        raise typer.BadParameter(f"unknown KV dtype {kv_dtype!r}; known: {', '.join(KV_DTYPES)}")
    try:
        sizes = kv_geometry(read_config(config), kv_dtype=kv_dtype, tensor_parallel=tensor_parallel)
    except UnknownGeometry as error:
        remedy = "" if kv_dtype or "dtype" not in str(error) else " with --kv-dtype"
        raise PrefixscopeError(f"{config}: {error}{remedy}") from error
    if as_ is GeometryOutput.JSON:
        facts = {**asdict(sizes), f"block_{BLOCK_TOKENS}_bytes": sizes.block_bytes(BLOCK_TOKENS)}
        print(json.dumps(facts, indent=2))
        return
    _print(sizes)


def _print(sizes: KvGeometry) -> None:
    """The figures, and below them how each came about."""
    facts = [
        ("attention", sizes.attention),
        ("KV dtype", sizes.kv_dtype),
        ("bytes per token", f"{sizes.bytes_per_token:,}"),
        (f"bytes per block of {BLOCK_TOKENS}", f"{sizes.block_bytes(BLOCK_TOKENS):,}"),
    ]
    if sizes.window_tokens is not None:
        window = f"{sizes.window_tokens:,}"
        facts += [
            (f"bytes of layers with a window of {window}", f"{sizes.constant_bytes:,}"),
            ("bytes per token if all layers are kept", f"{sizes.all_full_bytes_per_token:,}"),
        ]
    if sizes.state_bytes != 0:
        facts.append(("bytes of state per reusable point", _known(sizes.state_bytes)))
    if sizes.tensor_parallel > 1:
        facts += _shares(sizes)
    rows = [{"name": name, "value": value} for name, value in facts]
    console = terminal()
    console.print(rows_table([("KV geometry", "name", str), ("", "value", str)], rows))
    console.print()
    for step in sizes.steps:
        console.print(step, style="dim", markup=False, soft_wrap=True)


def _shares(sizes: KvGeometry) -> list[tuple[str, str]]:
    """What one GPU of the group holds."""
    where = f"on each of {sizes.tensor_parallel} GPUs"
    shares = [(f"bytes per token {where}", f"{sizes.gpu_bytes_per_token:,}")]
    if sizes.window_tokens is not None:
        shares.append((f"bytes of layers with a window {where}", f"{sizes.gpu_constant_bytes:,}"))
    if sizes.state_bytes != 0:
        shares.append((f"bytes of state {where}", _known(sizes.gpu_state_bytes)))
    return shares


def _known(size: int | None) -> str:
    return "not known" if size is None else f"{size:,}"
