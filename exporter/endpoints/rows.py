"""Where request rows and spans arrive: `POST /v1/requests` and `POST /v1/traces`.

A batch is held in memory within a limit, and only so many wait for the writer: the next sender is
told to come back. A file is a stream of any size that waits in its sender's hands.
"""

import io
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import BinaryIO, Literal, TypeVar

import anyio
import duckdb
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from exporter.endpoints import body, otlp
from exporter.endpoints.answers import TooManyBatches, disk_refuses, json_answer, status_of
from exporter.errors import PrefixscopeError
from exporter.server_settings import ServerSettings
from exporter.sources.intake import IngestSummary, Intake
from exporter.sources.packed import open_input

DEFAULT_SOURCE = "http"
_PARAMETERS = ("source", "format", "input")
# Files taken in side by side; the writer is one, so more would only take turns.
FILES_AT_ONCE = 2

Result = TypeVar("Result")


def routes(intake: Intake, settings: ServerSettings) -> list[Route]:
    taking = _Taking(intake, settings)
    return [
        Route("/v1/requests", taking.post_requests, methods=["POST"]),
        Route("/v1/traces", taking.post_traces, methods=["POST"]),
    ]


class _Taking:
    """The two endpoints, with the limits they share."""

    def __init__(self, intake: Intake, settings: ServerSettings) -> None:
        self._intake = intake
        self._settings = settings
        self._batch_slots = anyio.CapacityLimiter(settings.max_waiting_batches)
        self._file_slots = anyio.CapacityLimiter(FILES_AT_ONCE)
        self._waiting_batches = 0
        self._span_sources = otlp.Sources()

    async def post_requests(self, request: Request) -> Response:
        """Take request rows; answers after they are committed, with counts and reasons.

        A body is a batch: held whole, within the size limit. With `input=file` it is a file as
        it lies on disk: read as a stream, of any size, and known again when sent once more.
        """
        # A misspelt source would send rows into another stream without a word.
        if unknown := set(request.query_params) - set(_PARAMETERS):
            raise PrefixscopeError(
                f"unknown parameter {', '.join(sorted(unknown))[:100]}: "
                f"known are {', '.join(_PARAMETERS)}"
            )
        whole_file = request.query_params.get("input") == "file"
        take = self._take_file if whole_file else self._take_batch
        return json_answer(summary_json(await take(request)))

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
        except (PrefixscopeError, duckdb.OperationalError) as error:
            told = disk_refuses(error) or error
            if not isinstance(told, PrefixscopeError):
                raise
            code, headers = status_of(told)
            return Response(otlp.failed(kind, str(told)), code, headers, media_type=kind)
        return Response(answer, media_type=kind)

    def _take_spans(self, data: bytes, kind: str, source: str | None) -> Mapping[str, int]:
        """Hand the rows of each service to the one path in; what was refused, by reason."""
        return otlp.refused_spans([
            self._intake.ingest(
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
        return self._intake.ingest(
            lines,
            source=source_name(request.query_params.get("source") or DEFAULT_SOURCE),
            format=request.query_params.get("format") or "auto",
            origin=origin,
            name="the body",
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
