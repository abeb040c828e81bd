"""`export`: a trace without text for other tools, and for oneself tomorrow."""

import gzip
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TextIO

import typer
from rich.progress import track

from exporter.errors import PrefixscopeError
from exporter.sources.formats import FORMATS
from prefixscope.chain_window import Room, Window, ask_chains, free_bytes
from prefixscope.client import connect
from prefixscope.commands import options
from prefixscope.consoles import messages
from prefixscope.file_rows import rows_of_files
from prefixscope.tokenizer_options import ChatTemplate, Tokenizer, prompt_reader
from prefixscope.traces.file import USUAL_BLOCK_TOKENS
from prefixscope.traces.hashed import LABELS, HashedTrace, hashed_trace
from queries import registry
from replay.counted import counted

STDOUT = Path("-")

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[FILE...]",
        help="Logs or traces, read as ingest does; - for standard input.",
        show_default="the store",
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        metavar="TRACE", help="Where to write it, packed where it ends in .gz; - to pipe."
    ),
]
Labels = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help=f"Beside it, line by line, what each request is of: {', '.join(LABELS)}, as numbers.",
    ),
]
Since = Annotated[
    str | None, typer.Option(help="From then on: 24h, 7d or an ISO time.", show_default="all time")
]


def export(
    files: Files = None,
    out: Out = STDOUT,
    labels: Labels = None,
    block_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens of a block; other tools assume 512.")
    ] = USUAL_BLOCK_TOKENS,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
    log_format: options.FilesFormat = "auto",
    tokenizer: Tokenizer = None,
    chat_template: ChatTemplate = None,
    since: Since = None,
    until: options.Until = None,
    store: options.StoreFolder = None,
    url: options.Url = None,
    token: options.Token = None,
) -> None:
    """Write requests as a Mooncake-style trace: times, lengths, and a number for each block.

    Nothing in it tells what a prompt says, or whether a known one is in it.

    Example: prefixscope export --since 24h --out day.jsonl.gz && prefixscope curve day.jsonl.gz
    """
    window = _checked(files, log_format, since, until, store, url)
    for path in (out, labels):
        _refuse_existing(path, force)
    reader = prompt_reader(tokenizer, chat_template)
    if files:
        with rows_of_files(files, log_format, reader) as (answers, _):
            chains = ask_chains(answers, window, Room.of(answers, free_bytes()), history=False)
    elif reader is not None:
        raise typer.BadParameter("--tokenizer reads files: the rows of a store have no prompts")
    else:
        with connect(options.place(url, store, token)) as answers:
            messages().print(f"Asking {answers.where}", style="dim", markup=False)
            chains = ask_chains(answers, window, Room.of(answers, free_bytes()), history=False)
    trace = hashed_trace(chains.table, block_tokens)
    _write(out, trace.rows(), len(trace))
    if labels is not None:
        _write(labels, trace.label_rows(), len(trace))
    for line in _facts(trace, out):
        messages().print(line, style="dim", markup=False)


def _checked(
    files: list[Path] | None,
    log_format: str,
    since: str | None,
    until: str | None,
    store: Path | None,
    url: str | None,
) -> Window:
    known = ("auto", *(each.name for each in FORMATS))
    if log_format not in known:
        raise typer.BadParameter(f"unknown --format {log_format!r}; known: {', '.join(known)}")
    if files and (store is not None or url is not None):
        raise typer.BadParameter("give files, or --store or --url, not both")
    try:
        return Window.of(since, until)
    except registry.BadParameter as error:
        raise typer.BadParameter(str(error)) from error


def _refuse_existing(path: Path | None, force: bool) -> None:
    if path is not None and path != STDOUT and path.exists() and not force:
        raise PrefixscopeError(f"{path} is there already: name another, or overwrite with --force")


def _write(path: Path, rows: Iterable[dict[str, object]], count: int) -> None:
    """All rows or, where it fails, no file at all."""
    console = messages()
    watched = track(rows, "Writing", count, console=console, transient=True,
                    disable=not console.is_terminal)  # fmt: skip
    with _opened(path) as file:
        for row in watched:
            file.write(json.dumps(row, separators=(", ", ": ")) + "\n")


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    if path == STDOUT:
        yield sys.stdout
        return
    part = path.with_name(f".{path.name}.part{os.getpid()}")
    try:
        packed = path.suffix == ".gz"
        with gzip.open(part, "wt") if packed else part.open("w", encoding="utf-8") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise PrefixscopeError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)


def _facts(trace: HashedTrace, out: Path) -> Iterator[str]:
    """What was written, and what whoever reads it must know."""
    where = "" if out == STDOUT else f" to {out}"
    yield (
        f"{counted(len(trace), 'request')}, {int(trace.prompt_tokens.sum()):,} prompt tokens, "
        f"{counted(len(trace.blocks), 'block')} of {trace.block_tokens} tokens, "
        f"{trace.distinct_blocks:,} different{where}"
    )
    if trace.block_tokens != USUAL_BLOCK_TOKENS:
        yield (
            f"The file does not carry its block size, and most tools assume {USUAL_BLOCK_TOKENS}: "
            f"tell them {trace.block_tokens}"
        )
    if trace.left_out_requests:
        left_out = counted(trace.left_out_requests, "request is", "requests are")
        yield f"{left_out} left out, as no engine's cache was reached"
    if trace.unnamed_blocks:
        yield (
            f"{counted(trace.unnamed_blocks, 'block has', 'blocks have')} no name "
            f"({counted(trace.chainless_requests, 'request has', 'requests have')} no chain): as "
            "if never seen before"
        )
    if trace.approximate_requests:
        yield (
            f"Approximate: {counted(trace.approximate_requests, 'request is', 'requests are')} "
            "known by chunks of text; a tokenizer (--tokenizer) tells them exactly"
        )
    if unknown := int((trace.output_tokens < 0).sum()):
        untold = counted(unknown, "request tells", "requests tell")
        yield f"{untold} no generated tokens: output_length is left out"
