"""`ingest`: logs, recorded metric pages and KV-cache events from files or standard input."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from dashboard.figures.numbers import percent
from exporter.errors import PrefixscopeError
from exporter.prompts.naming import PromptReader
from exporter.sources.events.recorded import FORMAT as KV_EVENTS
from exporter.sources.events.recorded import EventsSummary
from exporter.sources.formats import FORMATS
from exporter.sources.intake import IngestSummary
from exporter.sources.names import Names
from exporter.sources.objects.place import is_object_path
from exporter.sources.pages import PagesSummary
from exporter.sources.spend_logs.place import is_database_path
from prefixscope.client import Exporter, OpenStore, connect
from prefixscope.commands import options
from prefixscope.consoles import messages
from prefixscope.loading import DEFAULT_SOURCE, STDIN, Loaded, by_name, judge_loaded, load
from prefixscope.place import Place
from prefixscope.settings import load_settings
from prefixscope.tokenizer_options import ChatTemplate, Tokenizer, give, prompt_reader


def ingest(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Request logs (plain, gzip, zstd), - for standard input, s3://, gs:// or az:// "
            "prefixes, LiteLLM's database as postgresql://USER@HOST/NAME; metric pages as .prom "
            "files, an index.jsonl or a folder of them; recorded KV-cache events.",
        ),
    ],
    log_format: Annotated[
        str, typer.Option("--format", help="Format of the logs, or auto; see: prefixscope formats.")
    ] = "auto",
    source: Annotated[
        str, typer.Option(help="Name of the stream; rows are known again within it.")
    ] = DEFAULT_SOURCE,
    names: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Settings file with the naming rules of the source; an exporter has its own.",
        ),
    ] = None,
    tokenizer: Tokenizer = None,
    chat_template: ChatTemplate = None,
    store: options.StoreFolder = None,
    url: options.Url = None,
    token: options.Token = None,
) -> None:
    """Load logs, recorded metric pages or KV-cache events, into a running exporter or a store.

    Example: kubectl logs deploy/gateway | prefixscope ingest - --source gateway
    """
    known = ["auto", *(f.name for f in FORMATS), KV_EVENTS]
    if log_format not in known:
        raise typer.BadParameter(f"unknown format {log_format!r}; known: {', '.join(known)}")
    rules = load_settings(names).names if names is not None else None
    if rules is not None and source not in rules:
        raise PrefixscopeError(
            f"{names}: there are no rules for the source {source!r} under names; "
            f"it has: {', '.join(rules) or 'none'}; choose one with --source"
        )
    place = options.place(url, store, token)
    inputs = [text if is_object_path(text) or is_database_path(text) else Path(text)
              for text in files]  # fmt: skip
    reader = prompt_reader(tokenizer, chat_template)
    loaded = _load_with_bar(inputs, place, source, log_format, rules, reader)
    _print_summary(loaded)
    for message in loaded.failed:
        messages().print(Text.assemble(("error: ", "bold red"), message))
    if loaded.failed or loaded.nothing_taken:
        raise typer.Exit(1)


def _load_with_bar(
    files: list[Path | str],
    place: Place,
    source: str,
    log_format: str,
    names: Names | None,
    reader: PromptReader | None,
) -> Loaded:
    """Load with a bar on standard error, which only a terminal shows."""
    with connect(place, create=True) as target:
        give(target, reader)
        if place.url is None and place.store is None:
            refuse_demo(target)
        console = messages()
        console.print(f"Loading into {target.where}", style="dim", markup=False)
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            DownloadColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        with bar:
            task = bar.add_task("Loading", total=_total_bytes(files))
            loaded = load(
                files,
                target,
                source=source,
                log_format=log_format,
                names=names,
                advance=lambda size: bar.advance(task, size),
            )
            if isinstance(target, OpenStore):
                # No exporter runs that would.
                judge_loaded(target.store, say=lambda what: bar.add_task(what, total=None))
            return loaded


def refuse_demo(target: Exporter | OpenStore) -> None:
    """Real rows belong into invented data only where somebody asks for it by name."""
    (state,) = target.ask("store_state", {}).to_pylist()
    if state["demo"]:
        raise PrefixscopeError(
            f"{target.where} shows the synthetic demo: load into a store of your own with "
            "--store data/store, or into the demo by naming its address with --url"
        )


def _total_bytes(files: list[Path | str]) -> int | None:
    """Bytes of all files; None where one cannot tell."""
    paths = [file for file in files if isinstance(file, Path)]
    if STDIN in paths or len(paths) < len(files):
        return None
    return sum(file.stat().st_size for file in paths if file.is_file())


def _print_summary(loaded: Loaded) -> None:
    """What became of every input, on standard output."""
    console = Console(highlight=False, soft_wrap=True)
    for name, log in loaded.logs.items():
        console.print(Text(name, style="bold"))
        console.print(_facts_table(_log_facts(log)))
    for name, pages in loaded.pages.items():
        console.print(Text(name, style="bold"))
        console.print(_facts_table(_pages_facts(pages)))
    for name, events in loaded.events.items():
        console.print(Text(name, style="bold"))
        console.print(_facts_table(_events_facts(events)))


def _facts_table(facts: list[tuple[str, str]]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in facts:
        table.add_row(f"  {name}", Text(value))
    return table


def _log_facts(log: IngestSummary) -> list[tuple[str, str]]:
    """Counts that are 0 are left out, except those everybody looks for."""
    facts = [
        ("format", f"{log.format} ({log.decided_because})"),
        ("accepted", f"{log.accepted:,}"),
        ("duplicate", f"{log.duplicate:,}"),
        ("rejected", f"{log.rejected:,}{by_name(log.reasons)}"),
    ]
    if log.corrected:
        facts.append(("corrected", f"{log.corrected:,}"))
    if log.conflicting:
        facts.append(("conflicting", f"{log.conflicting:,} (the earlier row stays)"))
    if log.flags:
        facts.append(("flagged", by_name(log.flags).strip()))
    return [
        *facts,
        ("prompt tokens", f"{log.prompt_tokens:,}"),
        ("cached tokens", f"{log.cached_tokens:,}" if log.reported_prompt_tokens else "–"),
        ("token hit ratio", percent(log.token_hit_ratio)),
        ("coverage", percent(log.coverage_ratio)),
    ]


def _pages_facts(pages: PagesSummary) -> list[tuple[str, str]]:
    counts = {
        "already known": pages.skipped,
        "target down": pages.down,
        "unreadable": pages.unreadable,
        "of no known engine": pages.foreign,
        "restarts": pages.resets,
    }
    facts = [
        ("metric pages", f"{pages.pages:,}"),
        ("replicas", ", ".join(sorted(pages.replicas)) or "none"),
        *((name, f"{count:,}") for name, count in counts.items() if count),
    ]
    for target, missing in pages.missing_metrics.items():
        facts += [(f"missing on {target}", metric) for metric in missing]
    return [*facts, *(("note", message) for message in pages.messages)]


def _events_facts(events: EventsSummary) -> list[tuple[str, str]]:
    """Counts that are 0 are left out, except those everybody looks for."""
    counts = {
        "already known": events.known,
        "heard twice": events.repeated,
        "unreadable": events.unreadable,
        "missing batches": events.missed_batches,
        "restarts": events.restarts,
        "blocks demoted": events.demoted_blocks,
        "blocks promoted": events.promoted_blocks,
        "blocks reset": events.reset_blocks,
    }
    resident = [f"{blocks:,} on {cache}" for cache, blocks in events.resident_blocks.items()]
    return [
        ("event batches", f"{events.batches:,}"),
        ("blocks stored", f"{events.stored_blocks:,}"),
        ("blocks evicted", f"{events.evicted_blocks:,}"),
        *((name, f"{count:,}") for name, count in counts.items() if count),
        *([("resets", by_name(events.resets).strip(" ()"))] if events.resets else []),
        ("resident at the end", ", ".join(sorted(resident)) or "nothing"),
        *((f"uncertain: {name}", why) for name, why in sorted(events.uncertain.items())),
        *(("note", message) for message in events.messages),
    ]
