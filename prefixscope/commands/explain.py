"""`explain`: why the token hit ratio changed between two windows."""

from collections.abc import Mapping
from typing import Annotated

import pyarrow as pa
import typer

from dashboard.explained import change_words, part_words
from dashboard.figures.safe import plain
from prefixscope import output
from prefixscope.client import Answers, WrongQuestion, connect
from prefixscope.commands import options
from prefixscope.consoles import messages, terminal
from prefixscope.output import Output
from queries import registry

# Without --by the change is split along each of these, the one people act on first.
DIMENSIONS = ("template", "route", "tenant", "model", "replica")
_ALL = "all"


def explain(
    by: Annotated[
        str, typer.Option(help=f"Split along this, or {_ALL}: {', '.join(DIMENSIONS)}.")
    ] = _ALL,
    since: Annotated[
        str, typer.Option(help="Start of the window: 24h, 7d or an ISO time.")
    ] = "24h",
    until: Annotated[
        str | None, typer.Option(help="Its end, exclusive.", show_default="open")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Start of the baseline.", show_default="the window of equal length before"
        ),
    ] = None,
    baseline_until: Annotated[
        str | None, typer.Option(help="Its end, exclusive.", show_default="start of the window")
    ] = None,
    store: options.StoreFolder = None,
    url: options.Url = None,
    token: options.Token = None,
    as_: Annotated[Output, options.OUTPUT] = Output.TABLE,
) -> None:
    """Say why the ratio changed: other ratios, or another mix of traffic.

    The parts are whole tokens and sum exactly to the change.

    Example: prefixscope explain --since 24h --baseline 8d --baseline-until 7d --by template
    """
    if as_ is not Output.TABLE and by == _ALL:
        raise typer.BadParameter(f"--output {as_} needs one dimension: give --by")
    given = {"since": since, "until": until}
    given |= {"baseline_since": baseline, "baseline_until": baseline_until}
    params = {name: value for name, value in given.items() if value is not None}
    dimensions = DIMENSIONS if by == _ALL else (by,)
    with connect(options.place(url, store, token)) as answers:
        messages().print(f"Asking {answers.where}", style="dim")
        tables = {name: _asked(answers, name, params) for name in dimensions}
    if as_ is not Output.TABLE:
        output.write(as_, tables[by])
        return
    console = terminal()
    answered = {name: registry.rows(table) for name, table in tables.items()}
    parts = [part_words(name, rows, plain) for name, rows in answered.items()]
    # The whole is the same along every dimension.
    for line in filter(None, [change_words(answered[dimensions[0]]), *parts]):
        console.print(line, markup=False, soft_wrap=True)


def _asked(answers: Answers, by: str, params: Mapping[str, str]) -> pa.Table:
    try:
        return answers.ask("explain", {**params, "by": by})
    except WrongQuestion as error:
        raise typer.BadParameter(str(error)) from error
