"""Options of commands that replay the traffic of a store, and the traffic they name."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prefixscope.commands import options
from prefixscope.consoles import messages

if TYPE_CHECKING:
    from prefixscope.recorded_traffic import StoreTraffic

Since = Annotated[
    str | None,
    typer.Option(help="Of a store: from then on, 24h, 7d or an ISO time.", show_default="all time"),
]
Until = Annotated[str | None, typer.Option(help="Of a store: until then, exclusive.")]
Model = Annotated[
    str | None,
    typer.Option(help="Of a store: this model.", show_default="that of most prompt tokens"),
]


def refuse_beside_traces(
    since: str | None, until: str | None, model: str | None, store: Path | None, url: str | None
) -> None:
    """Where trace files are named, what says which rows of a store is wrong usage."""
    given = {"--since": since, "--until": until, "--model": model, "--store": store, "--url": url}
    names = [name for name, value in given.items() if value is not None]
    if names:
        raise typer.BadParameter(f"give trace files, or {' and '.join(names)}, not both")


def store_traffic(
    since: str | None,
    until: str | None,
    model: str | None,
    store: Path | None,
    url: str | None,
    token: str | None,
    mends: bool = False,
) -> "StoreTraffic":
    """The requests that the options name, of the store or the exporter that holds it; with `mends`
    also as if what layout findings name had been mended."""
    from prefixscope import recorded_traffic  # noqa: PLC0415 - brings the store with it
    from prefixscope.chain_window import Window  # noqa: PLC0415
    from prefixscope.client import WrongQuestion, connect  # noqa: PLC0415
    from queries.registry import BadParameter  # noqa: PLC0415

    where = options.place(url, store, token)
    try:
        window = Window.of(since, until)
        with connect(where) as answers:
            messages().print(f"Asking {answers.where}", style="dim", markup=False)
            found = recorded_traffic.store_traffic(answers, window, model)
    except (BadParameter, WrongQuestion) as error:
        raise typer.BadParameter(str(error)) from error
    return found.with_mended() if mends else found
