"""Options several commands share, so that they are spelt and explained alike."""

from pathlib import Path
from typing import Annotated

import typer

from prefixscope.place import Place

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="PREFIXSCOPE_URL", help="Ask the exporter at this address."),
]
StoreFolder = Annotated[
    Path | None,
    typer.Option("--store", help="Folder of a store, or of the exporter that holds it."),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        # The second is what the exporter itself may have been given, as in its container.
        envvar=["PREFIXSCOPE_TOKEN", "PREFIXSCOPE_SERVER__TOKEN"],
        show_envvar=True,
        help="Token of the exporter; better given by the environment.",
    ),
]

Until = Annotated[str | None, typer.Option("--until", help="Until then, exclusive.")]
FilesFormat = Annotated[str, typer.Option("--format", help="Format of the files, or auto.")]
# The forms themselves differ between commands, and some bring large libraries.
OUTPUT = typer.Option("--output", help="How to write it.")


def place(url: str | None, store: Path | None, token: str | None) -> Place:
    """Where the data is; an address on the command line and a folder at once is wrong usage."""
    if url is not None and store is not None:
        raise typer.BadParameter("give --store or --url, not both (PREFIXSCOPE_URL counts)")
    return Place(url=url, store=store, token=token)
