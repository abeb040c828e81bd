"""`doctor`: is everything wired? Gathers, examines, prints; the exit status is for CI."""

import json
import logging
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from exporter.errors import PrefixscopeError
from prefixscope.client import connect
from prefixscope.commands import options
from prefixscope.commands.names import printable
from prefixscope.commands.operate import Listing
from prefixscope.consoles import terminal
from prefixscope.doctor import gather
from prefixscope.doctor.facts import Facts
from prefixscope.doctor.findings import Finding, Severity, exit_status, worst
from prefixscope.doctor.look import Looking
from prefixscope.doctor.together import examine, level_of
from prefixscope.settings import load_settings
from queries.times import parse_time

_STYLES = {
    Severity.OK: "green",
    Severity.NOTE: "cyan",
    Severity.WARNING: "yellow",
    Severity.FAULT: "bold red",
}


def doctor(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option("--config", envvar="PREFIXSCOPE_CONFIG", help="The YAML file of settings."),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option("--target", help="A metric page, HOST:PORT or URL; may be repeated."),
    ] = None,
    url: options.Url = None,
    store: options.StoreFolder = None,
    token: options.Token = None,
    probe: Annotated[
        bool,
        typer.Option("--probe", help="Ask each vLLM and SGLang for a one-token completion too."),
    ] = False,
    since: Annotated[
        str, typer.Option(help="How far back rows and counters are looked at: 24h, 7d, ISO time.")
    ] = "24h",
    pause: Annotated[
        float, typer.Option(min=0, help="Seconds between the two readings of a page.")
    ] = 1.0,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 for warnings too, not for faults alone.")
    ] = False,
    as_: Annotated[Listing, options.OUTPUT] = Listing.TABLE,
) -> None:
    """Check targets, engine flags, logs and clocks; name each fix, the level and the next step.

    Exit status: 0 fine (notes and warnings allowed), 1 a fault, 2 wrong usage.

    Example: prefixscope doctor --config prefixscope.yml --strict
    """
    # What is wrong is said once, as a finding.
    logging.getLogger("exporter").addHandler(logging.NullHandler())
    began = _moment(since)
    how = Looking(pause_seconds=pause, probes=probe)
    chosen = _chosen(context)
    if target and chosen == "target":
        facts = gather.from_addresses(_checked(target), how)
    elif config is not None and chosen in ("config", None):
        facts = gather.from_settings(load_settings(config), how, began)
    else:
        facts = _ask(None if chosen == "store" else url, store, token, began)
    findings = examine(facts)
    if as_ is Listing.JSON:
        print(json.dumps(_plain(facts, findings), indent=2, ensure_ascii=False))
    else:
        _print(terminal(), findings)
    raise typer.Exit(exit_status(findings, strict))


def _chosen(context: typer.Context) -> str | None:
    """The one place named on the command line, which goes before what the environment says."""
    given = [
        name for name in ("config", "target", "url", "store") if _on_command_line(context, name)
    ]
    if len(given) > 1:
        raise typer.BadParameter(f"give one of {' and '.join(f'--{name}' for name in given)}")
    return given[0] if given else None


def _on_command_line(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _moment(text: str) -> datetime:
    try:
        return parse_time(text, datetime.now(UTC))
    except ValueError as error:
        raise typer.BadParameter(f"--since: {error}") from error


def _checked(targets: list[str]) -> list[str]:
    """Addresses that can be one; anything else is wrong usage."""
    for address in targets:
        try:
            gather.target_of(address)
        except ValueError as error:
            raise typer.BadParameter(f"--target {address!r} is no HOST:PORT or URL") from error
    return targets


def _ask(url: str | None, store: Path | None, token: str | None, since: datetime) -> Facts:
    """Ask the exporter or the store; without any address the usual ones."""
    try:
        with connect(options.place(url, store, token)) as answers:
            return gather.from_answers(answers, since)
    except PrefixscopeError as error:
        if url is None and store is None:
            raise typer.BadParameter(
                "name what to check: --config FILE, --target URL, or a running exporter with --url"
            ) from error
        raise


def _plain(facts: Facts, findings: list[Finding]) -> dict[str, object]:
    """Everything, for programs."""
    level = level_of(facts)
    return {
        "worst": worst(findings).word,
        "level": level.number,
        "sees": level.sees,
        "next_step": level.next_step or None,
        "findings": [
            {**asdict(finding), "severity": finding.severity.word} for finding in findings
        ],
    }


def _print(console: Console, findings: list[Finding]) -> None:
    """By place, in the order of the findings; the level last. Names from elsewhere are text."""
    *rest, level = findings
    for place in dict.fromkeys(finding.where for finding in rest):
        console.print(Text(printable(place), "bold"))
        for finding in (f for f in rest if f.where == place):
            _print_finding(console, finding)
    console.print(Text(f"\n{level.says[0].upper()}{level.says[1:]}", "bold"))
    if level.fix:
        console.print(Text(f"Next step: {level.fix}"))
    counts = {s: sum(f.severity is s for f in rest) for s in reversed(Severity)}
    told = [f"{n} {s.word}{'s' if n > 1 else ''}" for s, n in counts.items() if n and s]
    console.print(Text(", ".join(told) or "Everything is fine.", _STYLES[worst(rest)]))


def _print_finding(console: Console, finding: Finding) -> None:
    severity = Text(f"  {finding.severity.word:<8} ", _STYLES[finding.severity])
    mark = f" [{finding.check}]" if finding.severity > Severity.OK else ""
    console.print(severity.append(printable(finding.says), "default").append(mark, "dim"))
    if finding.fix:
        console.print(Text(f"           fix: {printable(finding.fix)}"))
