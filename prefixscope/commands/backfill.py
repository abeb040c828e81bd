"""`backfill`: the engines' past out of a Prometheus, what providers say was used out of reports."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from exporter.errors import PrefixscopeError
from exporter.sources.prometheus.api import PrometheusApi
from exporter.sources.prometheus.backfill import BackfillSettings, BackfillSummary
from exporter.sources.prometheus.backfill import backfill as fill
from exporter.sources.prometheus.settings import PrometheusSourceSettings
from exporter.sources.usage_reports.table import Grain
from prefixscope.backfill_report import report
from prefixscope.client import connect
from prefixscope.commands import options
from prefixscope.commands.load import refuse_demo
from prefixscope.commands.usage import take_usage
from prefixscope.consoles import messages
from prefixscope.history_client import history_of
from prefixscope.place import Place
from prefixscope.settings import Settings, load_settings
from prefixscope.usage_client import Asked
from queries.times import parse_time

TOKEN_NAME, PASSWORD_NAME = "PREFIXSCOPE_PROMETHEUS_TOKEN", "PREFIXSCOPE_PROMETHEUS_PASSWORD"


Address = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Address of the Prometheus, Thanos, Mimir or VictoriaMetrics; may be left out where "
        "--config names one.",
    ),
]
Usage = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PROVIDER|FILE",
        help="Usage reports in place of a Prometheus: openai or anthropic (with OPENAI_ADMIN_KEY "
        "or ANTHROPIC_ADMIN_KEY set), else a saved answer of their API, taken whole; - reads "
        "standard input; may be given several times.",
    ),
]
UsageGrain = Annotated[Grain, typer.Option(help="Buckets a provider is asked for with --usage.")]
Account = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="With --usage: which organization's report, where you have several of one provider.",
    ),
]
Every = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0,
        help="Time between two pages kept; sums stay exact. 0 keeps every scrape.",
    ),
]
Jobs = Annotated[list[str] | None, typer.Option(help="Only this job; may be given several times.")]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        metavar="'NAME: VALUE'",
        help="Sent with every request, like 'X-Scope-OrgID: team'; may be given several times.",
    ),
]
TokenFile = Annotated[
    Path | None, typer.Option(help=f"File with a bearer token; or set {TOKEN_NAME}.")
]
Username = Annotated[str | None, typer.Option(help="User of basic authentication.")]
PasswordFile = Annotated[
    Path | None, typer.Option(help=f"File with its password; or set {PASSWORD_NAME}.")
]
CaFile = Annotated[Path | None, typer.Option(help="Certificates to trust, as PEM.")]
CertFile = Annotated[Path | None, typer.Option(help="Our own certificate, as PEM.")]
KeyFile = Annotated[Path | None, typer.Option(help="Key of our own certificate.")]
SkipVerify = Annotated[bool, typer.Option("--insecure-skip-verify", help="Trust any certificate.")]
Config = Annotated[
    Path | None,
    typer.Option(
        envvar="PREFIXSCOPE_CONFIG",
        metavar="FILE",
        help="Settings that name our targets, and how a Prometheus is reached.",
    ),
]


def backfill(
    prometheus: Address = None,
    usage: Usage = None,
    since: Annotated[str, typer.Option(help="From then on: 30d, or an ISO time.")] = "30d",
    until: Annotated[str | None, typer.Option(help="Up to then.", show_default="now")] = None,
    every: Every = 60,
    job: Jobs = None,
    header: Headers = None,
    bearer_token_file: TokenFile = None,
    username: Username = None,
    password_file: PasswordFile = None,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
    insecure_skip_verify: SkipVerify = False,
    config: Config = None,
    grain: UsageGrain = "1d",
    account: Account = "",
    store: options.StoreFolder = None,
    url: options.Url = None,
    token: options.Token = None,
) -> None:
    """Fill in what engines counted before prefixscope watched them; again continues.

    Spans that were scraped, or filled before, stay as they are. With --usage: keep what providers
    say was used, to compare it with your own rows.

    Example: prefixscope backfill --prometheus http://prometheus:9090 --since 30d
    """
    now = datetime.now(UTC)
    begin = _time(since, "--since", now)
    end = _time(until, "--until", now) if until else now
    if begin >= end:
        raise typer.BadParameter("--since must be earlier than --until")
    place = options.place(url, store, token)
    if usage:
        if prometheus is not None:
            raise typer.BadParameter("give --prometheus or --usage, not both")
        asked = Asked(begin, end if until else None, grain, account)
        if not take_usage(usage, asked, place):
            raise typer.Exit(1)
        return
    settings = load_settings(config)
    given = {
        "url": prometheus, "bearer_token_file": bearer_token_file, "username": username,
        "password_file": password_file, "ca_file": ca_file, "cert_file": cert_file,
        "key_file": key_file, "insecure_skip_verify": insecure_skip_verify or None,
        "headers": dict(map(_header, header)) if header else None, "jobs": job,
    }  # fmt: skip
    source = _source(settings, given)
    wanted = BackfillSettings(every, tuple(source.jobs), tuple(source.ha_labels), source.role)
    summary = _run(source, wanted, settings, place, begin.timestamp(), min(end, now).timestamp())
    console = Console(highlight=False, soft_wrap=True)
    for line in report(summary):
        console.print(line)
    if not summary.targets:
        raise typer.Exit(1)


def _run(
    source: PrometheusSourceSettings, wanted: BackfillSettings, settings: Settings, place: Place,
    since: float, until: float,
) -> BackfillSummary:  # fmt: skip
    """Fill with a bar on standard error, which only a terminal shows."""
    console = messages()
    with connect(place, create=True) as holder:
        if place.url is None and place.store is None:
            refuse_demo(holder)
        console.print(f"Reading {source.url} into {holder.where}", style="dim", markup=False)
        bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(),
            TimeRemainingColumn(), console=console, transient=True,
            disable=not console.is_terminal,
        )  # fmt: skip
        with bar:
            task = bar.add_task("Looking for engines", total=None)

            def progress(target: str, seconds: float) -> None:
                if target:
                    bar.update(task, description=target, advance=seconds)
                else:
                    bar.update(task, total=seconds)

            api = PrometheusApi(source)
            history = history_of(holder, settings.scrape.targets)
            return fill(api, history, wanted, since, until, progress)


def _source(settings: Settings, given: dict[str, Any]) -> PrometheusSourceSettings:
    """How the Prometheus is reached: as the settings say for its address, then as given."""
    known = settings.scrape.prometheus_source
    if given["url"] is None:
        if len(known) != 1:
            raise typer.BadParameter(
                "give --prometheus URL, or --config with one scrape.prometheus_source"
            )
        given["url"] = known[0].url
    told = {key: value for key, value in given.items() if value is not None}
    try:
        plain = PrometheusSourceSettings(url=told["url"])
        base = next((one for one in known if one.url == plain.url), None)
        values = base.model_dump(exclude_unset=True) if base else {}
        return PrometheusSourceSettings.model_validate({**values, **told, **_from_environment()})
    except ValidationError as error:
        # The value is left out: it may be a secret.
        fault = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"]) or "--prometheus"
        reason = fault["msg"].removeprefix("Value error, ")
        raise PrefixscopeError(f"{where}: {reason}") from None


def _from_environment() -> dict[str, str]:
    names = {"bearer_token": TOKEN_NAME, "password": PASSWORD_NAME}
    return {key: os.environ[name] for key, name in names.items() if os.environ.get(name)}


def _header(text: str) -> tuple[str, str]:
    """`Name: value`; what is wrong is said without the value."""
    name, separator, value = text.partition(":")
    if not separator or not name.strip():
        raise typer.BadParameter("--header is 'NAME: VALUE'")
    return name.strip(), value.strip()


def _time(text: str, option: str, now: datetime) -> datetime:
    try:
        return parse_time(text, now)
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from error
