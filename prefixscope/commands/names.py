"""`names`: which naming rule gives which value to the rows of a file, before anything is stored."""

import secrets
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from rich.console import Console
from rich.text import Text

from dashboard.figures.numbers import percent
from exporter.errors import PrefixscopeError
from exporter.sources.name_sample import Sample, sample_names
from exporter.sources.names import Rule, SourceNames
from exporter.sources.packed import open_input
from exporter.store.store import KEY_NAME
from prefixscope import output
from prefixscope.consoles import messages, terminal
from prefixscope.loading import open_file
from prefixscope.output import Output
from prefixscope.settings import Settings, load_settings
from prefixscope.tables import Row, rows_table
from replay.counted import counted

_COLUMNS = (("line", "line", str), ("field", "field", str), ("value", "value", str),
            ("given by", "given_by", str))  # fmt: skip
_SUMMARY_COLUMNS = (("field", "field", str), ("given by", "given_by", str),
                    ("rows", "rows", str), ("share", "share", str))  # fmt: skip


def names(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Request logs (plain, gzip, zstd), - for standard input."
        ),
    ],
    config: Annotated[
        Path,
        typer.Option("--config", envvar="PREFIXSCOPE_CONFIG", help="The YAML file of settings."),
    ],
    source: Annotated[
        str | None,
        typer.Option(help="Source whose rules apply.", show_default="the only one with rules"),
    ] = None,
    log_format: Annotated[
        str, typer.Option("--format", help="Format of the logs, or auto; see: prefixscope formats.")
    ] = "auto",
    rows: Annotated[int, typer.Option(min=0, help="Rows shown; the summary counts more.")] = 20,
    with_paths: Annotated[
        bool, typer.Option("--paths", help="List the paths in the rows that rules can name.")
    ] = False,
    as_: Annotated[Output, typer.Option("--output", help="How to write the rows.")] = Output.TABLE,
) -> None:
    """Show which naming rule gives which route, template, tenant, session. Stores nothing.

    Example: prefixscope names gateway.jsonl --config prefixscope.yml --source gateway
    """
    if as_ is Output.ARROW:
        raise typer.BadParameter("names writes table, json or csv")
    settings = load_settings(config)
    chosen = _chosen(config, settings, source)
    key = _key(settings)
    console = terminal()
    entries: list[Row] = []
    for file in files:
        with open_file(file) as raw:
            sample = sample_names(
                open_input(raw),
                settings.names.get(chosen),
                name=str(file),
                format=_format(settings, chosen, log_format),
                key=key,
                defaults=_defaults(settings, chosen),
            )
        shown = _shown(sample, rows)
        if as_ is Output.TABLE:
            _print(console, file, chosen, sample, shown)
            if with_paths:
                _print_paths(console, sample)
        entries += [{"file": str(file), **entry} for entry in shown]
    if as_ is not Output.TABLE:
        write = output.to_json if as_ is Output.JSON else output.to_csv
        typer.echo(write(pa.Table.from_pylist(entries, _SCHEMA)), nl=False)


_NOBODY = "no rule"
# More paths than anybody reads.
_PATHS = 200
_SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("line", pa.int64()),
        ("field", pa.string()),
        ("value", pa.string()),
        ("given_by", pa.string()),
    ]
)


def _chosen(config: Path, settings: Settings, source: str | None) -> str:
    """The source named, else the only one that has rules."""
    known = ", ".join(settings.names) or "none"
    if source is None:
        if len(settings.names) != 1:
            raise PrefixscopeError(
                f"{config}: say whose rules to try with --source; sources with rules: {known}"
            )
        return next(iter(settings.names))
    if source not in settings.names and all(log.source != source for log in settings.logs):
        raise PrefixscopeError(
            f"{config}: neither names nor logs has the source {source!r}; "
            f"sources with rules: {known}"
        )
    return source


def _format(settings: Settings, source: str, given: str) -> str:
    """The format asked for, else the one the followed logs of the source are known to have."""
    stated = {log.format for log in settings.logs if log.source == source}
    return stated.pop() if given == "auto" and len(stated) == 1 else given


def _defaults(settings: Settings, source: str) -> dict[str, object]:
    """What the settings say of rows that do not say it."""
    return dict(next((log.defaults for log in settings.logs if log.source == source), {}))


def _key(settings: Settings) -> str:
    """The key of the store, so that hashes are those that will be kept; without one, another."""
    file = settings.store.directory / KEY_NAME
    try:
        return file.read_text(encoding="ascii").strip()
    except OSError:
        if any(r.hashed for names in settings.names.values() for r in _all_rules(names)):
            messages().print(
                f"There is no readable {file} yet: hashes are shown with a key of their own and "
                "will be others in the store.",
                style="dim",
            )
        return secrets.token_hex(32)


def _all_rules(names: SourceNames) -> list[Rule]:
    return [rule for rules in names.rules().values() for rule in rules]


def _shown(sample: Sample, rows: int) -> list[Row]:
    """One entry for each field of each of the first rows."""
    shown: list[Row] = []
    for row in sample.rows[:rows]:
        if row.rejected is not None:
            rejected = f"row is rejected: {row.rejected}"
            shown.append(
                {"line": row.line_number, "field": None, "value": None, "given_by": rejected}
            )
            continue
        for field, rules in sample.rules.items():
            given = row.names.get(field)
            value = given and printable(given.value)
            shown.append(
                {
                    "line": row.line_number,
                    "field": field,
                    "value": value,
                    "given_by": _rule_name(given.rule, rules) if given else _NOBODY,
                }
            )
    return shown


def printable(value: str) -> str:
    """A name from a log, without what could steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)


def _rule_name(number: int | None, rules: tuple[Rule, ...]) -> str:
    """`rule 2: field metadata.team`, in the order of the settings."""
    if number is None:
        return "default of the source"
    rule = rules[number - 1]
    return "the format" if rule == Rule(mapped=True) else f"rule {number}: {rule}"


def _print(console: Console, file: Path, source: str, sample: Sample, shown: list[Row]) -> None:
    """Rows, then counts, then what looks wrong."""
    console.print(Text(f"{file}: {sample.log_format.name} ({sample.decided_because})", "bold"))
    if shown:
        cells = [{name: "–" if v is None else v for name, v in row.items()} for row in shown]
        console.print(rows_table(_COLUMNS, cells))
    stored = len(sample.stored())
    rejected = len(sample.rows) - stored
    console.print(
        Text(f"\nSource {source}: {counted(stored, 'row')} named, {rejected:,} rejected", "bold")
    )
    if stored:
        console.print(rows_table(_SUMMARY_COLUMNS, _summary(sample)))
    for hint in _hints(sample):
        console.print(Text(hint, "yellow"))


def _print_paths(console: Console, sample: Sample) -> None:
    """Paths without values, those of most rows first."""
    console.print(Text("\nPaths", "bold"))
    ordered = sorted(sample.paths.items(), key=lambda item: (-item[1], item[0]))
    rows = [{"path": printable(path), "rows": f"{count:,}"} for path, count in ordered]
    console.print(rows_table([("path", "path", str), ("rows", "rows", str)], rows[:_PATHS]))
    if len(rows) > _PATHS:
        console.print(f"… and {len(rows) - _PATHS:,} in fewer rows")


def _summary(sample: Sample) -> list[Row]:
    """Every rule of every field, those that named no row too: they may be misspelt."""
    stored = len(sample.stored())
    rows: list[Row] = []
    for field, rules in sample.rules.items():
        tally = sample.tally(field)
        numbers: list[int | None] = [*range(1, len(rules) + 1)]
        numbers += [None] if None in tally else []
        rows += [
            _summed(field, _rule_name(number, rules), tally.get(number, 0), stored)
            for number in numbers
        ]
        if tally.get(0):
            rows.append(_summed(field, _NOBODY, tally[0], stored))
    return rows


def _summed(field: str, given_by: str, count: int, stored: int) -> Row:
    return {
        "field": field, "given_by": given_by, "rows": f"{count:,}",
        "share": percent(count / stored),
    }  # fmt: skip


def _hints(sample: Sample) -> list[str]:
    """What a person should look at again."""
    hints = []
    for field, rules in sample.rules.items():
        named = sum(field in row.names for row in sample.stored())
        if sample.looks_like_ids(field):
            hints.append(
                f"{field}: {counted(sample.distinct(field), 'different value')} in "
                f"{counted(named, 'named row')}: these look like ids, not names; on /metrics most "
                "of them will count as other"
            )
        for number, rule in enumerate(rules, 1):
            sought = rule.header is not None or rule.field is not None
            if sought and sample.stored() and not sample.tally(field).get(number):
                hints.append(f"{field}: rule {number} ({rule}) named no row of this sample")
    return hints
