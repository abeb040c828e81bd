"""The exporter over HTTP: /metrics, health, intake, the query API and /now.

Work that touches the store runs in threads, each with a cursor of its own, and only so many at
a time; the event loop itself stays free to answer scrapes and probes.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import TypeVar

import anyio
import duckdb
import pyarrow as pa
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from exporter import metrics_text
from exporter.access import Access
from exporter.collector import Collector
from exporter.endpoints import (
    events,
    history,
    now,
    now_address,
    rows,
    runbooks,
    templates,
    usage,
)
from exporter.endpoints.answers import (
    STATUS_CODES,
    QueryTimeout,
    json_answer,
    own_error,
    person_error,
    store_error,
)
from exporter.server_settings import ServerSettings
from exporter.sources.intake import Intake
from exporter.sources.prometheus.history import History
from exporter.store.store import Store
from queries import registry

ARROW_STREAM = "application/vnd.apache.arrow.stream"
# Our pages need no script and nothing from elsewhere, so a browser may refuse both.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}

Result = TypeVar("Result")


@dataclass(frozen=True)
class Services:
    """What the server serves from. `not_ready` says what is still missing, None = ready;
    `problems` what does not work and stops nothing. Without `history` none is taken."""

    store: Store
    intake: Intake
    collector: Collector
    version: str
    not_ready: Callable[[], str | None] = lambda: None
    problems: Callable[[], list[str]] = list
    history: History | None = None


def build_app(services: Services, settings: ServerSettings, token: str | None = None) -> Starlette:
    """The application; `token` None = loopback without a token."""
    api = _Api(services, settings)
    past = services.history
    return Starlette(
        routes=[
            Route("/", api.landing),
            Route("/-/healthy", api.healthy),
            Route("/-/ready", api.ready),
            Route("/metrics", api.metrics),
            Route("/now", api.now),
            Route("/api/v1/queries", api.queries),
            Route("/api/v1/query/{name}", api.query),
            *rows.routes(services.intake, settings),
            *(history.routes(past, settings.max_body_bytes) if past else []),
            *usage.routes(services.store, settings.max_body_bytes),
            *events.routes(services.store),
            *templates.routes(services.store),
            *runbooks.routes(),
        ],
        middleware=[Middleware(Access, token=token)],
        exception_handlers={
            **dict.fromkeys(STATUS_CODES, person_error),
            duckdb.OperationalError: store_error,
            Exception: own_error,
        },
    )


class _Api:
    """The endpoints, with the limits they share."""

    def __init__(self, services: Services, settings: ServerSettings) -> None:
        self._services = services
        self._settings = settings
        self._query_slots = anyio.CapacityLimiter(settings.query_threads)
        self._now = now.NowPage(self._ask_rows, services.version)
        self._page_slot = anyio.CapacityLimiter(1)

    async def landing(self, _request: Request) -> Response:
        """Where is what: for whoever opens the address in a browser."""
        # Relative: a reverse proxy may serve us below a path.
        links = "".join(
            f'<li><a href="{path.lstrip("/")}">{path}</a> {text}</li>' for path, text in LINKS
        )
        return HTMLResponse(
            f"<!doctype html><title>prefixscope</title><h1>prefixscope "
            f"{escape(self._services.version)}</h1><ul>{links}</ul>",
            headers=PAGE_HEADERS,
        )

    async def healthy(self, _request: Request) -> Response:
        """The process lives; below that what does not work and stops nothing."""
        return PlainTextResponse("\n".join(["prefixscope ok", *self._services.problems(), ""]))

    async def ready(self, _request: Request) -> Response:
        """The store is open and every target has been tried once."""
        missing = self._services.not_ready()
        return PlainTextResponse(
            f"prefixscope {missing or 'ok'}\n", status_code=503 if missing else 200
        )

    async def metrics(self, request: Request) -> Response:
        """All metrics, in the format the reader prefers. Asks the store nothing."""
        openmetrics = metrics_text.wants_openmetrics(request.headers.get("accept", ""))
        page = await run_sync(lambda: self._services.collector.render(openmetrics=openmetrics))
        kind = (
            metrics_text.OPENMETRICS_CONTENT_TYPE if openmetrics else metrics_text.TEXT_CONTENT_TYPE
        )
        return Response(page, headers={"content-type": kind})

    async def now(self, request: Request) -> Response:
        """The on-call page, without a script: where alerts link to, with filters."""
        asked = request.query_params.multi_items()

        def page() -> HTMLResponse:
            try:
                html = self._now.page(asked, datetime.now(UTC))
            except now_address.WrongAddress as error:
                return HTMLResponse(now.wrong_page(str(error)), 400, headers=PAGE_HEADERS)
            return HTMLResponse(html, headers=PAGE_HEADERS)

        # One at a time: the rest would find its page made, and others keep their query slots.
        return await run_sync(page, limiter=self._page_slot)

    async def queries(self, _request: Request) -> Response:
        """What can be asked, with parameters and columns."""
        questions = registry.questions().values()
        return json_answer([asked.model_dump(exclude={"sql"}) for asked in questions])

    async def query(self, request: Request) -> Response:
        """The answer to one question as flat JSON rows, or as an Arrow stream."""
        name, given = request.path_params["name"], dict(request.query_params)
        arrow = ARROW_STREAM in request.headers.get("accept", "")

        def answer() -> Response:
            table = self._ask(name, given)
            if arrow:
                return Response(arrow_stream(table), media_type=ARROW_STREAM)
            return json_answer(registry.rows(table))

        return await self._in_query_slot(answer)

    async def _in_query_slot(self, work: Callable[[], Result]) -> Result:
        """Run in a thread, no more than `query_threads` at once."""
        return await run_sync(work, limiter=self._query_slots)

    def _ask_rows(self, name: str, params: Mapping[str, object]) -> list[dict[str, object]]:
        return registry.rows(self._ask(name, params))

    def _ask(self, name: str, params: Mapping[str, object]) -> pa.Table:
        """Run one question on a cursor of its own, stopped when it takes too long."""
        cursor = self._services.store.cursor()
        seconds = self._settings.query_timeout_seconds
        timer = threading.Timer(seconds, cursor.interrupt)
        timer.start()
        try:
            return registry.run(cursor, name, params)
        except duckdb.InterruptException as error:
            raise QueryTimeout(
                f"the question took longer than {seconds:g} s: narrow since and until, "
                "or raise server.query_timeout_seconds"
            ) from error
        finally:
            timer.cancel()
            cursor.close()


LINKS = (
    ("/now", "what is going on"),
    ("/metrics", "for Prometheus"),
    ("/api/v1/queries", "every question that can be asked"),
    ("/-/healthy", "is the process alive"),
    ("/-/ready", "is it ready to answer"),
)


def arrow_stream(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
