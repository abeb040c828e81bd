"""`init`: look at addresses and files, write a config that works as it is, say what comes next."""

import shlex
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from exporter.errors import PrefixscopeError
from exporter.sources.secrets_in_paths import refuse_password
from prefixscope.commands.names import printable
from prefixscope.consoles import messages, terminal
from prefixscope.init.addresses import USUAL, is_address, look_at_address
from prefixscope.init.config import config as config_text
from prefixscope.init.files import look_at_path
from prefixscope.init.found import Found, FoundLog, FoundPrometheus, FoundTarget, Remark
from prefixscope.settings import load_settings
from replay.counted import counted

_STDOUT = Path("-")


def init(
    places: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[URL|FILE]...",
            help="Metric pages (HOST:PORT or URL), a Prometheus, a LiteLLM proxy, log files, "
            "folders.",
            show_default="the usual ports of this machine",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="File to write; - for standard output.")] = Path(
        "prefixscope.yml"
    ),
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Recognise what is given and write a commented config that works as it is.

    Example: prefixscope init http://127.0.0.1:8000 /var/log/llm/gateway.jsonl
    """
    if out != _STDOUT and out.exists() and not force:
        raise PrefixscopeError(
            f"{out} is there already: give another with --out, or overwrite it with --force"
        )
    console = messages() if out == _STDOUT else terminal()
    found = list(_look(places or [], console))
    for what in found:
        _print_found(console, what)
    try:
        name = "prefixscope.yml" if out == _STDOUT else shlex.quote(str(out))
        text = config_text(found, name, datetime.now(UTC))
    except PrefixscopeError as error:
        given = "" if places else "; name engines and logs, like prefixscope init http://HOST:8000"
        raise PrefixscopeError(f"{error}{given}") from error
    if out == _STDOUT:
        print(text, end="")
        return
    _write(out, text)
    _print_next(console, out)


def _look(places: Sequence[str], console: Console) -> Iterator[Found]:
    """Everything given; without anything the usual ports, of which silent ones are no news."""
    if not places:
        console.print("Looking at the usual ports of this machine", style="dim")
        for address in USUAL:
            yield from (f for f in look_at_address(address) if not isinstance(f, Remark))
        return
    for given in places:
        if not Path(given).exists() and is_address(given):
            yield from look_at_address(given)
        elif Path(given).exists():
            yield from look_at_path(Path(given))
        else:
            refuse_password(given)
            yield Remark(given, "there is no such file", _NO_FILE)


_NO_FILE = (
    "a log that begins later: create it empty (touch) and run init again; an address is written "
    "HOST:PORT or http://…"
)


def _write(out: Path, text: str) -> None:
    """The file, once it has been read back as settings; nobody ever sees half of it."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=out.parent, prefix=f".{out.name}.", delete=False
        ) as file:
            file.write(text)
        unfinished = Path(file.name)
        try:
            load_settings(unfinished, {})
            unfinished.chmod(0o644)
            unfinished.replace(out)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise PrefixscopeError(f"{out}: cannot be written: {error.strerror or error}") from error


def _print_found(console: Console, found: Found) -> None:
    match found:
        case FoundTarget():
            told = (found.url, f"{found.title}, target {found.name}", "")
        case FoundPrometheus():
            jobs = ", ".join(f"{job} ({count})" for job, count in found.jobs.items())
            read = f"{found.answered} of {counted(found.tried, 'page')} tried can be read from here"
            told = (found.url, f"{found.title}, jobs {jobs}; {read}", "")
        case FoundLog():
            told = (
                found.path,
                f"{found.format} ({found.because}), source {found.source}",
                found.doubt,
            )
        case Remark():
            told = (found.given, found.what, found.todo)
    place, what, todo = map(printable, told)
    usable = not isinstance(found, Remark)
    mark = Text("+ " if usable else "- ", "green" if usable else "yellow")
    console.print(mark.append(place, "bold").append(f"  {what}", "default"))
    if todo:
        console.print(Text(f"    {todo}"))


def _print_next(console: Console, out: Path) -> None:
    file = shlex.quote(str(out))
    console.print(Text(f"\nWrote {out}. Next:", "bold"))
    console.print(Text(f"  prefixscope doctor --config {file}"))
    console.print(Text(f"  prefixscope serve --config {file} --dashboard"))
