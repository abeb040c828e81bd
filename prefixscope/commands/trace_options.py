"""Options of the commands that replay traffic, so that they are spelt and explained alike, and the
traffic that they name: files, or requests of a store."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from prefixscope.commands import traffic_options

if TYPE_CHECKING:
    from replay.calibration import Calibration
    from replay.recorded import Recorded

RULE_NAMES = ("full", "partial")
UNITS = {"ms": 1e-3, "s": 1.0, "us": 1e-6}

Traces = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[TRACE...]",
        help="A trace of hash ids, or a log with the text of prompts, in one file or several.",
        show_default="requests of the store",
    ),
]
Rule = Annotated[str, typer.Option(help=f"How the cache counts: {', '.join(RULE_NAMES)}.")]
BlockTokens = Annotated[
    int | None,
    typer.Option(min=1, help="Tokens a block stands for.", show_default="as recorded"),
]
Unit = Annotated[
    str | None,
    typer.Option(
        help=f"Of the trace's times: {', '.join(UNITS)}.", show_default="that of its format"
    ),
]
TraceLabels = Annotated[
    Path | None,
    typer.Option(
        "--labels",
        metavar="FILE",
        help="Beside a trace: sessions, templates, tenants, replicas, scopes.",
    ),
]
WarmUp = Annotated[
    float,
    typer.Option(min=0.0, max=0.99, help="Share of the requests that only warm the caches."),
]


class Traffic(Protocol):
    """Requests to replay, of files or of a store."""

    @property
    def name(self) -> str:
        """Where they are, for a person."""

    @property
    def recorded(self) -> "Recorded":
        """The requests themselves."""

    @property
    def measured(self) -> "Calibration | None":
        """What the same place tells of speeds and memory; None where it tells nothing."""

    def words(self) -> str:
        """What was taken and what was assumed, in one line."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The traffic that options name. `block_tokens` of a trace: what an id stands for; of a store:
    what blocks are put together to; `mends`: also as if its layout findings had been mended."""

    traces: list[Path] | None = None
    block_tokens: int | None = None
    unit: str | None = None
    labels: Path | None = None
    since: str | None = None
    until: str | None = None
    model: str | None = None
    store: Path | None = None
    url: str | None = None
    token: str | None = None
    mends: bool = False


def traffic(wanted: Wanted) -> Traffic:
    """Read it. PrefixscopeError, or BadParameter where options exclude each other."""
    if wanted.unit is not None:
        known_one(wanted.unit, "--unit", tuple(UNITS))
    if wanted.traces:
        return _of_files(wanted, wanted.traces)
    for option, given in (("--unit", wanted.unit), ("--labels", wanted.labels)):
        if given is not None:
            raise typer.BadParameter(f"{option} is for trace files, and none is given")
    return _of_store(wanted)


def _of_files(wanted: Wanted, traces: list[Path]) -> Traffic:
    from prefixscope.traces.file import is_trace, read_trace  # noqa: PLC0415 - brings numpy with it

    traffic_options.refuse_beside_traces(
        wanted.since, wanted.until, wanted.model, wanted.store, _typed(wanted.url)
    )
    if not is_trace(traces[0]) and (found := _of_prompts(wanted, traces)):
        return found
    unit = None if wanted.unit is None else UNITS[wanted.unit]
    return read_trace(traces, wanted.block_tokens, unit, wanted.labels)


def _of_prompts(wanted: Wanted, traces: list[Path]) -> Traffic | None:
    """A log with the text of prompts; None where it has none."""
    from prefixscope.lint.traffic import holds_prompts, log_traffic  # noqa: PLC0415 - large

    if not holds_prompts(traces[0]):
        return None
    for option, given in (("--unit", wanted.unit), ("--labels", wanted.labels)):
        if given is not None:
            raise typer.BadParameter(f"{option} is for traces of hash ids")
    return log_traffic(traces, wanted.block_tokens, mends=wanted.mends)


def _typed(url: str | None) -> str | None:
    """An address of the command line: one that the environment has for all commands is no wrong
    usage of this one."""
    return None if url == os.environ.get("PREFIXSCOPE_URL") else url


def _of_store(wanted: Wanted) -> Traffic:
    found = traffic_options.store_traffic(
        wanted.since, wanted.until, wanted.model, wanted.store, wanted.url, wanted.token,
        wanted.mends,
    )  # fmt: skip
    if wanted.block_tokens is None:
        return found
    try:
        recorded = found.recorded.of_blocks(wanted.block_tokens)
    except ValueError as error:
        raise typer.BadParameter(f"--block-tokens: {error}") from error
    return replace(found, rows=replace(found.rows, recorded=recorded))


def check_words(rule: str, unit: str | None) -> None:
    """Refuse what is no word of ours."""
    known_one(rule, "--rule", RULE_NAMES)
    if unit is not None:
        known_one(unit, "--unit", tuple(UNITS))


def known_one(given: str, option: str, known: tuple[str, ...]) -> str:
    """The word, if it is one that is known."""
    if given not in known:
        raise typer.BadParameter(f"unknown {option} {given!r}; known: {', '.join(known)}")
    return given
