"""Options of the commands that run on traces, so that they are spelt and explained alike."""

from pathlib import Path
from typing import Annotated

import typer

from prefixscope.trace_file import MILLISECONDS

RULE_NAMES = ("full", "partial")
UNITS = {"ms": MILLISECONDS, "s": 1.0}

Traces = Annotated[
    list[Path],
    typer.Argument(metavar="TRACE...", help="A trace of hash ids, in one file or several."),
]
Rule = Annotated[str, typer.Option(help=f"How the cache counts: {', '.join(RULE_NAMES)}.")]
BlockTokens = Annotated[
    int | None,
    typer.Option(min=1, help="Tokens a hash id stands for.", show_default="as the rows fit"),
]
Unit = Annotated[str, typer.Option(help="Of the trace's times: ms or s.")]
WarmUp = Annotated[
    float,
    typer.Option(min=0.0, max=0.99, help="Share of the requests that only warm the caches."),
]


def check_words(rule: str, unit: str) -> None:
    """Refuse what is no word of ours."""
    known_one(rule, "--rule", RULE_NAMES)
    known_one(unit, "--unit", tuple(UNITS))


def known_one(given: str, option: str, known: tuple[str, ...]) -> str:
    """The word, if it is one that is known."""
    if given not in known:
        raise typer.BadParameter(f"unknown {option} {given!r}; known: {', '.join(known)}")
    return given
