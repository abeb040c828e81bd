"""Puts the exporter together and runs it: store, intake, scraper, housekeeping, HTTP server."""

import logging
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

import duckdb
import uvicorn
from starlette.applications import Starlette

from exporter.blocks.tracker import Tracker
from exporter.causes.watch import CauseWatch
from exporter.collector import Collector, Inputs
from exporter.drops import DropWatch
from exporter.engine_totals import EngineTotals
from exporter.errors import PrefixscopeError
from exporter.geometry import bytes_per_token, keep_geometry, kept_geometry
from exporter.isolation.judge import IsolationWatch
from exporter.layout_found.watch import LayoutWatch
from exporter.prices import ModelPrices
from exporter.prompts.naming import PromptReader
from exporter.records import EngineSample
from exporter.server import Services, build_app
from exporter.server_settings import split_address
from exporter.sources.events.keeper import BlockKeeper
from exporter.sources.events.settings import EventSettings
from exporter.sources.events.worker import EventWorker
from exporter.sources.intake import Intake
from exporter.sources.names import SourceNames
from exporter.sources.objects.follow import ObjectFollower
from exporter.sources.objects.place import is_object_path
from exporter.sources.prometheus.history import History
from exporter.sources.prometheus.live import PrometheusSource
from exporter.sources.scrape import Scraper
from exporter.sources.spend_logs.follow import SpendLogFollower
from exporter.sources.spend_logs.place import is_database_path
from exporter.sources.tail import LogSettings, Tailer
from exporter.store.blocks import known_streams
from exporter.store.counters import Snapshot
from exporter.store.owner import remove_owner, write_owner
from exporter.store.store import Store
from exporter.templates_found.watch import TemplateWatch
from exporter.verdicts import VerdictWatch
from prefixscope import __version__
from prefixscope.housekeeping import Housekeeping
from prefixscope.settings import Settings, server_token
from prefixscope.weekly.schedule import ReportWorker

_log = logging.getLogger(__name__)

# How long answers under way may take to finish when the exporter is asked to stop.
GRACE_SECONDS = 10
# A shipper whose connection is closed just as it posts may lose its batch: LiteLLM posts every 5 s
# and does not send again. So it is the client that ends an idle connection (Go's after 90 s).
IDLE_CONNECTION_SECONDS = 120
# How long it is remembered what caches held: minutes are sealed two minutes late.
HELD_FOR = timedelta(minutes=6)
# How long a scrape of /metrics waits for the writer before it shows what is counted so far.
FOLD_PATIENCE_SECONDS = 0.1


class Worker(Protocol):
    """Something that runs in the background for as long as the exporter does."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End after the work in hand."""

    @property
    def alive(self) -> bool:
        """Whether it is running."""


@dataclass(frozen=True)
class Judges:
    """What judges in the background for alerts."""

    drops: DropWatch
    verdicts: VerdictWatch
    causes: CauseWatch

    def judged(self) -> dict[str, datetime]:
        """When each last judged."""
        return {
            "drops": self.drops.judged_at,
            "verdicts": self.verdicts.judged_at,
            "causes": self.causes.judged_at,
        }


@dataclass(frozen=True)
class Running:
    """An exporter at work and where it answers."""

    url: str
    server_stopped: threading.Event

    def wait(self) -> None:
        """Block until something stops the server; that nobody asked for it is an error.

        Not by joining the thread: in Python 3.11 a join that Ctrl-C interrupts takes the thread
        for ended, and the store would be closed while requests are still being answered.
        """
        self.server_stopped.wait()
        raise PrefixscopeError("the HTTP server has stopped; the log says why")


def _opened(settings: Settings) -> Store:
    """The store, with the tokenizers that prompts in rows are read by."""
    prompts = PromptReader.of(settings.prompts)  # first: a wrong path need not open a store
    store = Store.open(settings.store.directory, settings.store)
    store.prompts = prompts
    return store


@contextmanager
def running(settings: Settings) -> Iterator[Running]:
    """The exporter at work, for as long as the block lasts.

    Stops in the opposite order of the start: first nobody comes in, last the store is closed.
    """
    token = server_token(settings.server)
    with ExitStack() as stack:
        listener = stack.enter_context(listen(settings.server.listen))
        url = url_of(listener, settings.server.listen)
        store = _opened(settings)
        stack.callback(store.close)
        keep_geometry(store, bytes_per_token(settings.geometry))
        store.set_meta("zone", settings.drops.zone)
        totals = EngineTotals(timedelta(seconds=settings.store.live_window_seconds))
        totals.restore(store.cursor())
        targets = settings.scrape.targets
        live_window = timedelta(seconds=settings.store.live_window_seconds)
        tracker = Tracker(store.key, live_window=live_window, remember=HELD_FOR)
        tracker.restore(known_streams(store))

        def sampled(samples: Sequence[EngineSample]) -> None:
            totals.add(samples)
            tracker.sampled(samples)

        sources = [
            PrometheusSource(store, source, targets, sampled)
            for source in settings.scrape.prometheus_source
        ]

        def keep_only(polled: set[str]) -> None:
            totals.keep_only(polled.union(*(source.replicas for source in sources)))

        scraper = Scraper(store, settings.scrape, sampled, keep_only)
        names = settings.names
        tailers = [_follower(store, log, names.get(log.source)) for log in settings.logs]
        prices = ModelPrices(store, settings.prices)
        events = _events(store, tracker, settings.events, [scraper, *sources])
        drops, verdicts = DropWatch(store, settings.drops), VerdictWatch(store)
        causes = CauseWatch(store, settings.causes, tracker.held_since)
        workers: list[Worker] = [
            *(Housekeeping(store, prices), drops, verdicts, LayoutWatch(store), scraper),
            causes,
            *(*sources, *tailers, *events, *_if_wanted(store, settings)),
        ]
        for worker in workers:
            worker.start()
            stack.callback(worker.stop)
        intake, history = Intake(store, names=names), History(store, targets)
        judges = Judges(drops, verdicts, causes)
        link = settings.server.external_url or url
        services = _services(
            store, intake, history, totals, scraper, sources, workers, tracker, judges, link
        )
        app = build_app(services, settings.server, token)
        server_stopped = stack.enter_context(_serving(app, listener))
        write_owner(store.directory, url)
        stack.callback(remove_owner, store.directory)
        yield Running(url, server_stopped)


def _if_wanted(store: Store, settings: Settings) -> list[Worker]:
    """What only some settings ask for."""
    finders = [TemplateWatch(store)] if settings.templates.find else []
    reports = [ReportWorker(store, settings.report)] if settings.report.folder else []
    audits = [IsolationWatch(store, settings.isolation)] if settings.isolation.audit else []
    return [*finders, *audits, *reports]


def _follower(store: Store, log: LogSettings, names: SourceNames | None) -> Worker:
    """What follows an entry under `logs`: files, a prefix of an object store, or a database."""
    if is_object_path(log.path):
        return ObjectFollower(store, log, names)
    if is_database_path(log.path):
        return SpendLogFollower(store, log, names)
    return Tailer(store, log, names=names)


def _events(
    store: Store,
    tracker: Tracker,
    entries: Sequence[EventSettings],
    watched: Sequence[Scraper | PrometheusSource],
) -> list[Worker]:
    """What hears KV-cache events and keeps what they tell. The last to start is the first to
    stop: what was heard then still reaches the store."""
    if not entries:
        return []
    hearing = EventWorker(
        tracker, entries, lambda: [target for one in watched for target in one.targets]
    )
    return [BlockKeeper(store, tracker), hearing]


def _services(
    store: Store,
    intake: Intake,
    history: History,
    totals: EngineTotals,
    scraper: Scraper,
    sources: Sequence[PrometheusSource],
    workers: Sequence[Worker],
    tracker: Tracker,
    judges: Judges,
    external_url: str,
) -> Services:
    """What the server serves from."""

    def counters() -> Snapshot:
        """With the rows of this moment, unless the writer is busy or cannot write."""
        try:
            store.fold_settled(FOLD_PATIENCE_SECONDS)
        except duckdb.Error:
            _log.exception("/metrics shows what was counted before")
        return store.counters.snapshot()

    inputs = Inputs(
        counters=counters,
        engines=totals.snapshot,
        targets=lambda: [*scraper.rows, *(row for source in sources for row in source.rows)],
        store_file=store.path,
        version=__version__,
        blocks=tracker.snapshot,
        bytes_per_token=kept_geometry(store),
        drops=judges.drops.current,
        verdicts=judges.verdicts.current,
        crossed=judges.causes.crossed,
        external_url=external_url,
        judged=judges.judged,
    )

    def not_ready() -> str | None:
        if not all(worker.alive for worker in workers):
            return "a worker has stopped; see the log"
        if not all(source.tried for source in sources):
            return "waiting for the first answer of every Prometheus"
        return None if scraper.tried_all else "waiting for the first scrape of every target"

    def problems() -> list[str]:
        """What does not work and stops nothing."""
        reports = [worker for worker in workers if isinstance(worker, ReportWorker)]
        return [problem for worker in reports for problem in worker.problems]

    return Services(
        store=store,
        intake=intake,
        collector=Collector(inputs),
        version=__version__,
        not_ready=not_ready,
        problems=problems,
        history=history,
    )


def listen(address: str) -> socket.socket:
    """A listening socket; an address in use is an error that says what to change."""
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise PrefixscopeError(
            f"cannot listen on {address}: {error.strerror or error}; stop what uses it, or set "
            "server.listen (PREFIXSCOPE_SERVER__LISTEN) to another address"
        ) from error


def url_of(listener: socket.socket, address: str) -> str:
    """Where this machine reaches the listener: the port it got, loopback for "every address"."""
    host, _ = split_address(address)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - read, not bound
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"


@contextmanager
def _serving(app: Starlette, listener: socket.socket) -> Iterator[threading.Event]:
    """The HTTP server in a thread of its own; signals stay with the main thread.

    Gives the event that is set once the server has stopped, asked or not.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_keep_alive=IDLE_CONNECTION_SECONDS,
    )
    server = uvicorn.Server(config)
    stopped = threading.Event()

    def serve() -> None:
        try:
            server.run([listener])
        finally:
            stopped.set()

    thread = threading.Thread(target=serve, name="http")
    thread.start()
    try:
        yield stopped
    finally:
        server.should_exit = True
        thread.join()
