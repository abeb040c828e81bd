"""`alerts`: what fires, for teams without Prometheus."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NoReturn
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import typer

from exporter.errors import PrefixscopeError
from prefixscope import alert_webhook, output
from prefixscope.client import Answers, Exporter, connect
from prefixscope.commands import options
from prefixscope.consoles import messages, terminal
from prefixscope.output import Output
from prefixscope.place import Place
from prefixscope.settings import DEFAULT_STORE
from queries import registry
from queries.times import parse_time

FIRING_STATUS = 3
STATE_NAME = "alerts-told.json"
PARTS = ("rest", "route", "template", "tenant", "stale")
# What an alert is about, and the word before it; a subject says by itself what it is.
_ABOUT = {
    **{name: f"{name} " for name in ("model", "route", "template", "tenant", "replica")},
    "subject": "",
}


def alerts(
    at: Annotated[
        str | None,
        typer.Option(
            help="The moment to judge: 2h (back from now) or an ISO time.", show_default="now"
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also list alerts that are silent or cannot be told.")
    ] = False,
    webhook: Annotated[
        str | None,
        typer.Option(
            envvar="PREFIXSCOPE_ALERTS_WEBHOOK",
            help="Post what began and what is over there, in Alertmanager's format.",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="File that knows what was told.", show_default=f"{STATE_NAME} in the store"
        ),
    ] = None,
    external_url: Annotated[
        str, typer.Option(help="Where people reach the exporter, for links.", show_default="--url")
    ] = "",
    watch: Annotated[
        int | None, typer.Option(min=5, help="Ask again every so many seconds, until stopped.")
    ] = None,
    zone: Annotated[
        str | None,
        typer.Option(help="Time zone of the hours compared.", show_default="the exporter's"),
    ] = None,
    store: options.StoreFolder = None,
    url: options.Url = None,
    token: options.Token = None,
    as_: Annotated[Output, options.OUTPUT] = Output.TABLE,
) -> None:
    """List the alerts that fire. Exit status 3 while any does: made for cron.

    Status 0: none fires. 1: it could not be told, or the webhook did not take it. 2: wrong usage.
    The alerts are those of deploy/prometheus, judged by the question `alerts`.

    Example: prefixscope alerts --webhook http://127.0.0.1:8080/hook
    """
    if webhook is not None and urlsplit(webhook).scheme not in ("http", "https"):
        raise typer.BadParameter("--webhook is no http or https address")
    if watch is not None and at is not None:
        raise typer.BadParameter("--watch asks of the present: leave --at out")
    kept = None if webhook is None else _state_file(state, store, url)
    asking = Asking(options.place(url, store, token), zone, webhook, kept, external_url)
    if watch is not None:
        _watch(asking, watch, as_, everything=everything)
    table = asking.once(_moment(at))
    _write(as_, table, everything=everything)
    raise typer.Exit(FIRING_STATUS if "firing" in table["state"].to_pylist() else 0)


def _watch(asking: "Asking", seconds: int, as_: Output, *, everything: bool) -> NoReturn:
    """Whoever watches goes on: an exporter that is being restarted is one to wait for."""
    while True:
        try:
            _write(as_, asking.once(datetime.now(UTC)), everything=everything)
        except PrefixscopeError as error:
            messages().print(f"error: {error}", style="red", markup=False)
        time.sleep(seconds)


class Asking:
    """Asks for the alerts, and tells the webhook where there is one."""

    def __init__(
        self,
        place: Place,
        zone: str | None,
        webhook: str | None,
        state: Path | None,
        external_url: str,
    ) -> None:
        self._place = place
        self._zone = zone
        self._webhook = webhook
        self._state = state
        self._external_url = external_url

    def once(self, moment: datetime) -> pa.Table:
        """Every alert with its state."""
        with connect(self._place) as answers:
            messages().print(f"Asking {answers.where}", style="dim")
            params = {"until": moment.isoformat(), "all": "1", "zone": self._zone_of(answers)}
            # Asked one after the other: each has the memory of the store to itself.
            parts = [answers.ask("alerts", {**params, "part": part}) for part in PARTS]
            table = pa.concat_tables(parts)
            link = self._external_url or (answers.url if isinstance(answers, Exporter) else "")
        if self._webhook is not None and self._state is not None:
            now = alert_webhook.firing(registry.rows(table), link)
            alert_webhook.tell(self._webhook, self._state, now, moment, link)
        return table

    def _zone_of(self, answers: Answers) -> str:
        """As the exporter compares hours, so that both say the same."""
        if self._zone is not None:
            return self._zone
        return str(registry.rows(answers.ask("store_state", {}))[0]["zone"])


def _state_file(state: Path | None, store: Path | None, url: str | None) -> Path:
    """Beside the store; of an exporter elsewhere nobody knows a folder."""
    if state is not None:
        return state
    folder = DEFAULT_STORE if store is None else store
    if url is not None or not folder.is_dir():
        raise typer.BadParameter("--webhook needs --state FILE here: there is no folder of a store")
    return folder / STATE_NAME


def _moment(at: str | None) -> datetime:
    if at is None:
        return datetime.now(UTC)
    try:
        return parse_time(at)
    except ValueError as error:
        raise typer.BadParameter(f"--at: {error}") from error


def _write(as_: Output, table: pa.Table, *, everything: bool) -> None:
    if not everything:
        told = pa.array(["firing", "pending"])
        table = table.filter(pc.is_in(table["state"], value_set=told))
    if as_ is not Output.TABLE:
        output.write(as_, table)
        return
    console = terminal()
    if not table.num_rows:
        console.print("no alert fires")
    for row in registry.rows(table):
        since = f" since {str(row['since'])[:16].replace('T', ' ')} UTC" if row["since"] else ""
        head = f"{row['severity']} {row['state']} {row['alert']}{since}"
        console.print(head, style="bold", markup=False, soft_wrap=True)
        about = ", ".join(f"{label}{row[name]}" for name, label in _ABOUT.items() if row[name])
        for line in filter(None, (about, row["description"], row["runbook"])):
            console.print(f"  {line}", markup=False, soft_wrap=True)
