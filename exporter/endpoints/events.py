"""Where `ingest` sends recorded KV-cache events when an exporter holds the store."""

import json
from collections.abc import AsyncIterator
from dataclasses import asdict

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from exporter.endpoints import body, otlp
from exporter.errors import PrefixscopeError
from exporter.sources.events.recorded import EventsSummary, ingest_events
from exporter.sources.packed import open_input
from exporter.store.store import Store

EVENTS_PATH = "/v1/kv-events"


def routes(store: Store) -> list[Route]:
    """One endpoint. Recordings are taken one after the other: each holds a state of its own."""
    turn = CapacityLimiter(1)

    async def post_events(request: Request) -> Response:
        """Take a recorded stream of any length; answers after everything is committed."""
        chunks = request.stream()
        try:
            source, replica = (_name(request, key) for key in ("source", "replica"))
            summary = await run_sync(lambda: _ingest(store, chunks, source, replica), limiter=turn)
        except PrefixscopeError:
            # The sender reads the answer only when it has sent everything.
            async for _ in chunks:
                pass
            raise
        return Response(json.dumps(asdict(summary)), media_type="application/json")

    return [Route(EVENTS_PATH, post_events, methods=["POST"])]


def _ingest(store: Store, chunks: AsyncIterator[bytes], source: str, replica: str) -> EventsSummary:
    stream = open_input(body.buffered(chunks))
    return ingest_events(store, stream, source=source, replica=replica, name="the body")


def _name(request: Request, key: str) -> str:
    text = request.query_params.get(key) or ""
    if not text or not otlp.is_source(text):
        raise PrefixscopeError(f"{key} is a name of at most 100 printable characters")
    return text
