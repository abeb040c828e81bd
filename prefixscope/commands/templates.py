"""`templates`: what was found in prompts of requests that name no template, and naming it."""

from typing import Annotated

import typer
from pydantic import ValidationError
from rich.text import Text

from exporter.endpoints.templates import TEMPLATES_PATH, Renamed
from exporter.templates_found.keep import give_name
from prefixscope import output
from prefixscope.client import Exporter, ExporterProblem, OpenStore, WrongQuestion, connect
from prefixscope.commands import options
from prefixscope.consoles import messages, terminal
from prefixscope.output import Output
from replay.counted import counted


def templates(
    found: Annotated[
        str | None, typer.Argument(help="A found template, like auto:1a2b3c4d.", metavar="FOUND")
    ] = None,
    name: Annotated[
        str | None, typer.Argument(help="What to call it from now on.", metavar="NAME")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Count from then on: 24h, 7d or an ISO time.", show_default="all time"),
    ] = None,
    store: options.StoreFolder = None,
    url: options.Url = None,
    token: options.Token = None,
    as_: Annotated[Output, options.OUTPUT] = Output.TABLE,
) -> None:
    """List the templates found in prompts that name none; with FOUND and NAME, give one a name.

    Example: prefixscope templates auto:1a2b3c4d checkout
    """
    if (found is None) != (name is None):
        raise typer.BadParameter("give FOUND and NAME to name one, or neither to list them all")
    with connect(options.place(url, store, token)) as answers:
        if found is not None and name is not None:
            _give(answers, found, name)
            return
        messages().print(f"Asking {answers.where}", style="dim")
        try:
            table = answers.ask("found_templates", {"since": since} if since else {})
        except WrongQuestion as error:
            raise typer.BadParameter(str(error)) from error
    if as_ is not Output.TABLE:
        output.write(as_, table)
    elif not len(table):
        terminal().print(
            "No templates found. They are looked for in requests that have chains of block hashes\n"
            "and name none: by ingest at its end, by an exporter every ten minutes."
        )
    else:
        output.print_table(terminal(), "found_templates", table, "name")


def _give(holder: Exporter | OpenStore, found: str, name: str) -> None:
    """Name it in the store, or in that of a running exporter."""
    if isinstance(holder, OpenStore):
        requests = give_name(holder.store, found, name)
    else:
        params = {"name": found, "given_name": name}
        answer = holder.send("POST", TEMPLATES_PATH, params=params, headers={})
        try:
            requests = Renamed.model_validate_json(answer.content).requests
        except ValidationError as error:
            raise ExporterProblem(
                f"{holder.url} does not answer as an exporter of this version does"
            ) from error
    terminal().print(Text(f"{found} is now {name}: {counted(requests, 'request')} renamed"))
