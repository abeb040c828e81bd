"""The exporter over HTTP: /metrics, health, intake, the query API and /now.

Work that touches the store runs in threads, each with a cursor of its own, and only so many at
a time; the event loop itself stays free to answer scrapes and probes.
"""

import io
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from html import escape
from typing import BinaryIO, Literal, TypeVar

import anyio
import duckdb
import pyarrow as pa
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from exporter import (
    body,
    events_http,
    history_http,
    metrics_text,
    now,
    now_address,
    otlp,
    runbooks_http,
    templates_http,
    usage_http,
)
from exporter.access import Access
from exporter.collector import Collector
from exporter.errors import PrefixscopeError
from exporter.server_settings import ServerSettings
from exporter.sources.intake import IngestSummary, Intake
from exporter.sources.packed import open_input
from exporter.sources.prometheus.history import History
from exporter.store.store import Store
from queries import registry

ARROW_STREAM = "application/vnd.apache.arrow.stream"
DEFAULT_SOURCE = "http"
# Our pages need no script and nothing from elsewhere, so a browser may refuse both.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}
# Files taken in side by side; the writer is one, so more would only take turns.
FILES_AT_ONCE = 2

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


class QueryTimeout(PrefixscopeError):
    """A question took longer than the setting allows."""


class TooManyBatches(PrefixscopeError):
    """As many POSTs as the setting allows are being taken in."""


# What a person's mistake is called in HTTP. Anything not here is ours: 500 and a traceback.
STATUS_CODES: dict[type[Exception], int] = {
    body.BodyTooLarge: 413,
    body.UnknownEncoding: 415,
    otlp.UnknownContentType: 415,
    QueryTimeout: 503,
    TooManyBatches: 429,
    registry.UnknownQuestion: 404,
    runbooks_http.UnknownRunbook: 404,
    registry.BadParameter: 400,
    PrefixscopeError: 400,
}


def build_app(services: Services, settings: ServerSettings, token: str | None = None) -> Starlette:
    """The application; `token` None = loopback without a token."""
    api = _Api(services, settings)
    history = services.history
    past = history_http.routes(history, settings.max_body_bytes) if history else []
    return Starlette(
        routes=[
            Route("/", api.landing),
            Route("/-/healthy", api.healthy),
            Route("/-/ready", api.ready),
            Route("/metrics", api.metrics),
            Route("/now", api.now),
            Route("/v1/requests", api.post_requests, methods=["POST"]),
            Route("/v1/traces", api.post_traces, methods=["POST"]),
            Route("/api/v1/queries", api.queries),
            Route("/api/v1/query/{name}", api.query),
            *past,
            *usage_http.routes(services.store, settings.max_body_bytes),
            *events_http.routes(services.store),
            *templates_http.routes(services.store),
            *runbooks_http.routes(),
        ],
        middleware=[Middleware(Access, token=token)],
        exception_handlers={**dict.fromkeys(STATUS_CODES, _person_error), Exception: _own_error},
    )


class _Api:
    """The endpoints, with the limits they share."""

    def __init__(self, services: Services, settings: ServerSettings) -> None:
        self._services = services
        self._settings = settings
        self._query_slots = anyio.CapacityLimiter(settings.query_threads)
        self._batch_slots = anyio.CapacityLimiter(settings.max_waiting_batches)
        self._file_slots = anyio.CapacityLimiter(FILES_AT_ONCE)
        self._waiting_batches = 0
        self._span_sources = otlp.Sources()
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
        return _json([asked.model_dump(exclude={"sql"}) for asked in questions])

    async def query(self, request: Request) -> Response:
        """The answer to one question as flat JSON rows, or as an Arrow stream."""
        name, given = request.path_params["name"], dict(request.query_params)
        arrow = ARROW_STREAM in request.headers.get("accept", "")

        def answer() -> Response:
            table = self._ask(name, given)
            if arrow:
                return Response(arrow_stream(table), media_type=ARROW_STREAM)
            return _json(registry.rows(table))

        return await self._in_query_slot(answer)

    async def post_requests(self, request: Request) -> Response:
        """Take request rows; answers after they are committed, with counts and reasons.

        A body is a batch: held whole, within the size limit. With `input=file` it is a file as
        it lies on disk: read as a stream, of any size, and known again when sent once more.
        """
        whole_file = request.query_params.get("input") == "file"
        take = self._take_file if whole_file else self._take_batch
        return _json(summary_json(await take(request)))

    async def post_traces(self, request: Request) -> Response:
        """Take the spans of model calls, as an OpenTelemetry exporter or collector sends them.

        Errors are answered in the words and the encoding of that protocol.
        """
        kind = otlp.PROTOBUF
        try:
            kind = otlp.content_type(request.headers.get("content-type", ""))
            given = request.query_params.get("source")
            source = source_name(given) if given else None

            def take(packed: bytes) -> bytes:
                return otlp.accepted(kind, self._take_spans(packed, kind, source))

            answer = await self._take_packed(request, take)
        except PrefixscopeError as error:
            code, headers = _status_of(error)
            return Response(otlp.failed(kind, str(error)), code, headers, media_type=kind)
        return Response(answer, media_type=kind)

    def _take_spans(self, data: bytes, kind: str, source: str | None) -> Mapping[str, int]:
        """Hand the rows of each service to the one path in; what was refused, by reason."""
        return otlp.refused_spans([
            self._services.intake.ingest(
                lines, source=name, format="otlp", origin="http", name="the body"
            )
            for name, lines in otlp.batches(
                otlp.read(data, kind), self._span_sources, source
            ).items()
        ])  # fmt: skip

    async def _take_batch(self, request: Request) -> IngestSummary:
        def take(data: bytes) -> IngestSummary:
            return self._ingest(request, io.BytesIO(body.as_lines(data)), "http")

        return await self._take_packed(request, take)

    async def _take_packed(self, request: Request, take: Callable[[bytes], Result]) -> Result:
        """Read and unpack a body within the limits and take it in a thread, if there is room."""
        if self._waiting_batches >= self._settings.max_waiting_batches:
            raise TooManyBatches("the writer is busy: send this again in a second")
        self._waiting_batches += 1
        try:
            limit = self._settings.max_body_bytes
            packed = await body.read_limited(request.stream(), limit)
            encoding = request.headers.get("content-encoding", "")
            return await run_sync(
                lambda: take(body.unpack(packed, encoding, limit)), limiter=self._batch_slots
            )
        finally:
            self._waiting_batches -= 1

    async def _take_file(self, request: Request) -> IngestSummary:
        """A file waits in its sender's hands until it is its turn, so it needs no 429."""
        chunks = request.stream()

        def ingest() -> IngestSummary:
            return self._ingest(request, open_input(body.buffered(chunks)), "file")

        try:
            return await run_sync(ingest, limiter=self._file_slots)
        except PrefixscopeError:
            # The sender reads the answer only when it has sent everything.
            async for _ in chunks:
                pass
            raise

    def _ingest(
        self, request: Request, lines: BinaryIO, origin: Literal["file", "http"]
    ) -> IngestSummary:
        """Hand lines to the one path in, under the names the request gives."""
        return self._services.intake.ingest(
            lines,
            source=source_name(request.query_params.get("source") or DEFAULT_SOURCE),
            format=request.query_params.get("format") or "auto",
            origin=origin,
            name="the body",
        )

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


def source_name(text: str) -> str:
    """A stream's name: short and printable, since it becomes a label and a column."""
    if not otlp.is_source(text):
        raise PrefixscopeError("source is a name of at most 100 printable characters")
    return text


def summary_json(summary: IngestSummary) -> dict[str, object]:
    """Counts and reasons, with the ratios that follow from them; no traffic is null."""
    return {
        **asdict(summary),
        "rejected": summary.rejected,
        "coverage_ratio": summary.coverage_ratio,
        "token_hit_ratio": summary.token_hit_ratio,
    }


def arrow_stream(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _json(value: object, status_code: int = 200) -> Response:
    """Strict JSON: a NaN that slipped through is an error, never output."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return Response(text, status_code, media_type="application/json")


def _status_of(error: Exception) -> tuple[int, dict[str, str]]:
    """The status of an error, and for a shipper that should wait how long."""
    code = next((code for kind, code in STATUS_CODES.items() if isinstance(error, kind)), 400)
    return code, {"Retry-After": "1"} if code in (429, 503) else {}


async def _person_error(_request: Request, error: Exception) -> Response:
    """Say what is wrong."""
    code, headers = _status_of(error)
    response = _json({"error": str(error)}, code)
    response.headers.update(headers)
    return response


async def _own_error(_request: Request, _error: Exception) -> Response:
    """Our fault: the traceback goes to the log, not to the reader."""
    return _json({"error": "internal error; the exporter's log has the details"}, 500)
