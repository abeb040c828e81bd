"""`curve`: the token hit ratio at every capacity."""

import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exporter.errors import PrefixscopeError
from prefixscope.commands import trace_options
from prefixscope.commands.options import messages
from prefixscope.tables import Column, formatter, print_rows, terminal
from prefixscope.trace_file import TraceFile, read_trace
from replay.geometry import KV_DTYPES, kv_geometry
from replay.model_config import UnknownGeometry
from replay.rules import RULES

if TYPE_CHECKING:
    from replay.curve import Curve

_GIB = 1 << 30
# What counts as nearly as good as an unlimited cache.
_NEARLY_ALL = 0.95


class CurveOutput(StrEnum):
    """How the curve is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


Row = dict[str, int | float | None]


def curve(
    traces: trace_options.Traces,
    capacity_blocks: Annotated[
        str | None,
        typer.Option(help="Capacities to show: N,N,…", show_default="some"),
    ] = None,
    rule: trace_options.Rule = "full",
    block_tokens: trace_options.BlockTokens = None,
    unit: trace_options.Unit = "ms",
    replicas: Annotated[
        int,
        typer.Option(min=1, help="Request i goes to replica i mod N; capacities are of each."),
    ] = 1,
    warm_up: trace_options.WarmUp = 0.0,
    config: Annotated[
        Path | None, typer.Option(help="config.json of the model, to tell GiB.")
    ] = None,
    kv_dtype: Annotated[
        str | None, typer.Option(help=f"Type of its KV: {', '.join(KV_DTYPES)}.")
    ] = None,
    as_: Annotated[
        CurveOutput, typer.Option("--output", help="How to write it.")
    ] = CurveOutput.TABLE,
) -> None:
    """Show what a larger or smaller cache would have hit: exact, at every capacity, in one pass.

    Least recently used, by order of the requests alone: every earlier request's blocks are there.

    Example: prefixscope curve trace.jsonl.gz --capacity-blocks 10000,50000 --config config.json
    """
    trace_options.check_words(rule, unit)
    wanted = _capacities(capacity_blocks)
    token_bytes = _token_bytes(config, kv_dtype)
    trace = read_trace(traces, block_tokens, trace_options.UNITS[unit])
    messages().print(trace.words(), style="dim", markup=False)
    found = _curve(trace, rule, replicas, warm_up)
    sizes = wanted or _usual_capacities(found.enough_blocks)
    shown = _Shown(found, trace, rule, replicas, token_bytes)
    if as_ is CurveOutput.JSON:
        print(json.dumps(shown.as_json(sizes), indent=2))
    elif as_ is CurveOutput.CSV:
        _write_csv(shown.rows(sizes))
    else:
        _print(shown, sizes)


def _capacities(text: str | None) -> list[int]:
    """As a person lists them; none where nothing is listed."""
    if text is None:
        return []
    try:
        sizes = [int(part) for part in text.replace("_", "").split(",")]
    except ValueError:
        sizes = [0]
    if min(sizes) < 1:
        said = "takes numbers from 1 on, like 10000,50000"
        raise typer.BadParameter(f"--capacity-blocks {said}: {text!r}")
    return sizes


def _usual_capacities(enough_blocks: int) -> list[int]:
    """1, 2 and 5 times powers of ten from a thousandth of what is ever useful on, and that."""
    steps = (digit * 10**power for power in range(19) for digit in (1, 2, 5))
    useful = takewhile(lambda size: size < enough_blocks, steps)
    return [*(size for size in useful if size * 1000 >= enough_blocks), max(enough_blocks, 1)]


def _token_bytes(config: Path | None, kv_dtype: str | None) -> int | None:
    if config is None:
        return None
    from exporter.geometry import read_config  # noqa: PLC0415 - brings the store with it

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


def _curve(trace: TraceFile, rule: str, replicas: int, warm_up: float) -> "Curve":
    # Compiled code is loaded once the trace is read: the two need their memory one by one.
    from replay.curve import curve_of_replicas  # noqa: PLC0415

    prompts = trace.prompts
    return curve_of_replicas(prompts, RULES[rule], replicas, int(warm_up * len(prompts)))


@dataclass(frozen=True)
class _Shown:
    """A curve and what its figures are of. `token_bytes` None: nobody knows what KV weighs."""

    curve: "Curve"
    trace: TraceFile
    rule: str
    replicas: int
    token_bytes: int | None

    def rows(self, sizes: Sequence[int]) -> list[Row]:
        """One for each capacity, smallest first. `gained_tokens_per_gib`: from the one before on,
        over all replicas."""
        rows: list[Row] = []
        before = 0
        for size in sorted(set(sizes)):
            row: Row = {
                "capacity_blocks": size,
                "capacity_tokens": size * self.trace.prompts.block_tokens,
                "token_hit_ratio": self.curve.ratio_at(size),
                "of_unlimited_ratio": self._of_unlimited(size),
            }
            if (gib := self._gib(size)) is not None:
                gained = self.curve.tokens_at(size) - self.curve.tokens_at(before)
                row["capacity_gib"] = gib
                more_gib = (gib - (self._gib(before) or 0)) * self.replicas
                row["gained_tokens_per_gib"] = gained / more_gib
            before = size
            rows.append(row)
        return rows

    def _gib(self, blocks: int) -> float | None:
        if self.token_bytes is None:
            return None
        return blocks * self.trace.prompts.block_tokens * self.token_bytes / _GIB

    def _of_unlimited(self, blocks: int) -> float | None:
        best = self.curve.tokens_at(self.curve.enough_blocks)
        return self.curve.tokens_at(blocks) / best if best else None

    def as_json(self, sizes: Sequence[int]) -> dict[str, object]:
        """`unlimited` is the ratio no capacity exceeds, `enough_blocks` where it is reached."""
        return {
            "rule": self.rule,
            "block_tokens": self.trace.prompts.block_tokens,
            "replicas": self.replicas,
            "requests": len(self.trace.prompts),
            "prompt_tokens": self.curve.prompt_tokens,
            "unlimited": self.curve.ratio_at(self.curve.enough_blocks),
            "enough_blocks": self.curve.enough_blocks,
            "curve": self.rows(sizes),
        }


def _write_csv(rows: list[Row]) -> None:
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


_COLUMNS: tuple[Column, ...] = tuple(
    (heading, name, formatter(name))
    for heading, name in (
        ("capacity in blocks", "capacity_blocks"),
        ("tokens", "capacity_tokens"),
        ("GiB", "capacity_gib"),
        ("token hit ratio", "token_hit_ratio"),
        ("of an unlimited cache's", "of_unlimited_ratio"),
        ("tokens won per GiB more", "gained_tokens_per_gib"),
    )
)


def _print(shown: _Shown, sizes: Sequence[int]) -> None:
    rows = shown.rows(sizes)
    console = terminal()
    known = [column for column in _COLUMNS if column[1] in rows[0]]
    print_rows(console, known, rows)
    found = shown.curve
    if not found.enough_blocks:
        console.print("No prompt shares a block with an earlier one: no capacity would hit.")
        return
    each = " of each replica" if shown.replicas > 1 else ""
    most = found.blocks_for(_NEARLY_ALL)
    console.print(
        f"From {found.enough_blocks:,} blocks{each} on more memory wins nothing; {most:,} win "
        f"{_NEARLY_ALL:.0%} of that. An upper bound: requests in their order, without a clock.",
        style="dim",
    )  # fmt: skip
