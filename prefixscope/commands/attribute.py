"""`attribute`: why prompt tokens missed, each by exactly one cause."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from exporter.causes.rows import is_observed
from exporter.errors import PrefixscopeError
from exporter.isolation.audit import Audit, AuditRules
from exporter.isolation.routed import RoutedAudit
from exporter.sources.formats import FORMATS
from prefixscope.chain_window import Chains, Room, Window, ask_chains, free_bytes
from prefixscope.client import Answers, WrongQuestion, connect
from prefixscope.commands import options
from prefixscope.consoles import messages
from prefixscope.file_rows import rows_of_files
from prefixscope.output import Output
from prefixscope.tokenizer_options import ChatTemplate, Tokenizer, prompt_reader
from prefixscope.waterfall.attribution import DIMENSIONS, HORIZON, Assumed, Waterfall, waterfall
from prefixscope.waterfall.audit_output import Audits
from prefixscope.waterfall.heard import Heard, told_resets
from prefixscope.waterfall.output import write
from prefixscope.waterfall.sealed_beside import beside_sealed
from queries import registry
from queries.times import parse_time
from replay.counted import counted
from replay.public_prefixes import CALLERS
from replay.rules import RULES

ROUTERS = ("round-robin",)
# Naming the causes of more rows, or of rows with so many chains, takes so long that it is said.
_LONG_ROWS, _LONG_BYTES = 20_000, 20_000_000

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[FILE...]",
        help="Logs or traces with chains of block hashes, and recorded KV-cache events beside "
        "them; - for standard input.",
        show_default="the store",
    ),
]
By = Annotated[
    str | None, typer.Option(help=f"Sums for each value of this: {', '.join(DIMENSIONS)}.")
]
Rule = Annotated[
    str | None,
    typer.Option(
        help=f"How the cache counts: {', '.join(RULES)}.",
        show_default="full; hosted providers have their own",
    ),
]
BlockTokens = Annotated[
    int | None,
    typer.Option(min=1, help="The cache's own block.", show_default="as told, else the chain's"),
]
Replicas = Annotated[
    int | None, typer.Option(min=1, help="Of a bare trace: how many replicas it runs on.")
]
CapacityBlocks = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Blocks each replica's cache holds: models what a bare trace does not tell, and is "
        "compared with what a log does.",
        show_default="never full",
    ),
]
Router = Annotated[
    str | None,
    typer.Option(
        help=f"Who gets which request of a bare trace: {', '.join(ROUTERS)}.",
        show_default=ROUTERS[0],
    ),
]
Isolation = Annotated[
    bool,
    typer.Option(
        "--isolation",
        help="Also what scopes (salt, adapter) cost, whether they hold, and prefixes that many "
        "tenants send.",
    ),
]
Routing = Annotated[
    bool,
    typer.Option("--routing", help="Also what routing lost by model, and how even replicas were."),
]
WarmUp = Annotated[
    str,
    typer.Option(
        help="How long rows must tell of a replica before reuse is called another scope's; 0s: its "
        "cache was empty when they began."
    ),
]
LeastTenants = Annotated[
    int, typer.Option(min=2, help="As many tenants make a prefix nobody's own.")
]
Since = Annotated[
    str | None,
    typer.Option(
        help="From then on: 24h, 7d or an ISO time; up to 7 days before it are read as history.",
        show_default="all time",
    ),
]


def attribute(
    files: Files = None,
    by: By = None,
    rule: Rule = None,
    block_tokens: BlockTokens = None,
    replicas: Replicas = None,
    capacity_blocks: CapacityBlocks = None,
    router: Router = None,
    isolation: Isolation = False,
    routing: Routing = False,
    warm_up: WarmUp = "7d",
    least_tenants: LeastTenants = CALLERS,
    log_format: options.FilesFormat = "auto",
    tokenizer: Tokenizer = None,
    chat_template: ChatTemplate = None,
    since: Since = None,
    until: options.Until = None,
    store: options.StoreFolder = None,
    url: options.Url = None,
    token: options.Token = None,
    as_: Annotated[Output, options.OUTPUT] = Output.TABLE,
) -> None:
    """Name the cause of every missed prompt token: prompt = cached + the causes, exactly.

    What was cached is what rows tell; for a trace that tells nothing a cache is modelled.

    Example: prefixscope attribute trace.jsonl --replicas 4 --capacity-blocks 5000 --rule partial
    """
    _check(files, by, rule, router, log_format, store, url, as_)
    audit = AuditRules(_span(warm_up), least_tenants, capacity_blocks)
    asked = _Asked(
        Assumed(RULES[rule] if rule else None, block_tokens, replicas, capacity_blocks),
        by, _window(since, until), replicas, router, isolation, routing, audit,
    )  # fmt: skip
    reader = prompt_reader(tokenizer, chat_template)
    if reader is not None and not files:
        raise typer.BadParameter("--tokenizer reads files: the rows of a store have no prompts")
    if files:
        with rows_of_files(files, log_format, reader) as (answers, heard):
            found, audits = asked.told(asked.chains(answers), heard)
    else:
        with connect(options.place(url, store, token)) as answers:
            messages().print(f"Asking {answers.where}", style="dim")
            found, audits = _told_of_store(answers, asked)
    if left_out := write(found, by, as_, audits):
        messages().print(f"{counted(left_out, 'more column')} with --output json", style="dim")


@dataclass(frozen=True)
class _Asked:
    """What is to be told of rows, wherever they are."""

    assumed: Assumed
    by: str | None
    window: Window
    replicas: int | None
    router: str | None
    isolation: bool
    routing: bool
    audit: AuditRules

    def chains(self, answers: Answers) -> Chains:
        return ask_chains(answers, self.window, Room.of(answers, free_bytes()))

    def told(self, chains: Chains, heard: Heard) -> tuple[Waterfall, Audits]:
        _say_unused(chains, heard, self.replicas, self.router)
        audits = _audits(chains.table, self.isolation, self.routing, self.audit)
        return _explained(chains, self.assumed, heard, self.by, self.window, audits), audits


def _told_of_store(answers: Answers, asked: _Asked) -> tuple[Waterfall, Audits]:
    """Also says by how much the sums differ that the exporter kept, where it may be compared."""
    try:
        chains = asked.chains(answers)
        heard = told_resets(answers.ask("block_resets", {}))
    except WrongQuestion as error:
        raise typer.BadParameter(str(error)) from error
    found, audits = asked.told(chains, heard)
    if asked.assumed == Assumed() and not found.is_modelled:
        _say_sealed(answers, asked.window, found)
    return found, audits


def _check(
    files: list[Path] | None,
    by: str | None,
    rule: str | None,
    router: str | None,
    log_format: str,
    store: Path | None,
    url: str | None,
    as_: Output,
) -> None:
    """Refuse what is no word of ours, and two places at once."""
    words = (("--by", by, DIMENSIONS), ("--rule", rule, tuple(RULES)),
             ("--router", router, ROUTERS),
             ("--format", log_format, ("auto", *(known.name for known in FORMATS))))  # fmt: skip
    for name, given, known in words:
        if given is not None and given not in known:
            raise typer.BadParameter(f"unknown {name} {given!r}; known: {', '.join(known)}")
    if files and (store is not None or url is not None):
        raise typer.BadParameter("give files, or --store or --url, not both")
    if as_ is Output.ARROW:
        raise typer.BadParameter("attribute writes table, json or csv")


def _window(since: str | None, until: str | None) -> Window:
    """Checked before anything is loaded: a wrong time is wrong usage, wherever the rows are."""
    try:
        return Window.of(since, until)
    except registry.BadParameter as error:
        raise typer.BadParameter(str(error)) from error


def _say_unused(chains: Chains, heard: Heard, replicas: int | None, router: str | None) -> None:
    """What was asked for and plays no part, and history that memory had no room for."""
    notes, observed = [], is_observed(chains.table)
    if observed and (replicas is not None or router is not None):
        notes.append("--replicas and --router play no part: rows that tell cached tokens also "
                     "tell where they ran")  # fmt: skip
    elif router is not None and replicas is None:
        notes.append("--router plays no part without --replicas")
    if not observed and heard.stays is not None:
        notes.append("The events play no part but for block sizes: no row tells cached tokens, so "
                     "a cache is modelled")  # fmt: skip
    if chains.history < HORIZON:
        hours = chains.history / timedelta(hours=1)
        notes.append(f"There is room for {hours:.0f} of the 168 hours before --since: what was "
                     "there only earlier counts as new")  # fmt: skip
    for note in notes:
        messages().print(note, style="dim", markup=False)


def _say_sealed(answers: Answers, window: Window, found: Waterfall) -> None:
    """By how much the sums that were kept differ. An older exporter keeps none."""
    try:
        line = beside_sealed(answers, window, found.total)
    except WrongQuestion:
        return
    if line is not None:
        messages().print(line, style="dim", markup=False)


def _check_events(table: pa.Table, heard: Heard) -> None:
    """Refuse events that tell of other blocks or other replicas than the rows do."""
    if heard.key_id not in set(table["hash_key_id"].to_pylist()):
        raise PrefixscopeError(
            "the events cannot be compared with these rows: their blocks were named with another "
            "key; use the log that has token ids, or leave the events out"
        )
    named = set(table["replica"].to_pylist()) - {""}
    if named and not named & set(heard.replicas):
        raise PrefixscopeError(
            f"the events tell of {', '.join(heard.replicas)} and the rows of "
            f"{', '.join(sorted(named))}: put each recording into a folder named as its replica"
        )


def _span(text: str) -> timedelta:
    """A length of time as people write it: 7d, 24h."""
    now = datetime.now(UTC)
    try:
        found = now - parse_time(text, now)
    except ValueError as error:
        raise typer.BadParameter(f"--warm-up {text!r} is no span like 7d, 24h or 0s") from error
    if found < timedelta():
        raise typer.BadParameter(f"--warm-up {text!r} is no span like 7d, 24h or 0s")
    return found


def _audits(table: pa.Table, isolation: bool, routing: bool, rules: AuditRules) -> Audits:
    return Audits(
        Audit(table, rules) if isolation else None, RoutedAudit(table) if routing else None
    )


def _explained(
    chains: Chains, assumed: Assumed, heard: Heard, by: str | None, window: Window, audits: Audits
) -> Waterfall:
    if heard.stays is not None and is_observed(chains.table):
        _check_events(chains.table, heard)
    if len(chains.table) >= _LONG_ROWS or chains.table.nbytes >= _LONG_BYTES:
        naming = f"Naming the causes of {counted(len(chains.table), 'request')}"
        messages().print(naming, style="dim")
    return waterfall(chains.table, assumed, heard, by, window.since, audits.asked())
