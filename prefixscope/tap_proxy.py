"""A reverse proxy for the tap to sit in, where the engine takes no middleware of ours.

It hands bytes on as they come, in both directions, compressed or not, and gives the connection
to the engine up when the client goes. One upstream; no retries, no caching, no redirects.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Any

import httpx
import uvicorn

from prefixscope.tap import Tap
from prefixscope.tap.settings import TapSettings
from prefixscope.tap.tokenizing import Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

# They are about one connection, not about the message (RFC 9110, 7.6.1).
_HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
        b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
_CONNECT_SECONDS = 10.0

# Only what the upstream sends is sent: no date and server of ours, no log of addresses.
PROXY_OPTIONS: dict[str, Any] = {
    "log_level": "warning", "access_log": False, "server_header": False, "date_header": False,
}  # fmt: skip

Header = tuple[bytes, bytes]


class ClientGone(Exception):
    """The client closed its connection before its request was whole."""


class UpstreamBroke(Exception):
    """The engine's answer ended early, so that ours must not look complete either."""


class Upstream:
    """An ASGI application that answers with what one upstream answers."""

    def __init__(self, url: str) -> None:
        self._url = httpx.URL(url)
        self._client: httpx.AsyncClient | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._relay(scope, receive, send)
        else:
            # Websockets are not relayed: refuse the handshake.
            await receive()
            await send({"type": "websocket.close", "code": 1011})

    @property
    def client(self) -> httpx.AsyncClient:
        """Made where the event loop is; answers may take as long as they like."""
        if self._client is None:
            self._client = httpx.AsyncClient(
                timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=100),
                trust_env=False,
            )
        return self._client

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if self._client is not None:
            await self._client.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def _relay(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Relay until the answer has ended or the client has gone, whichever comes first."""
        whole = asyncio.Event()
        relay = asyncio.create_task(self._exchange(scope, receive, send, whole))
        gone = asyncio.create_task(_left(receive, whole))
        try:
            await asyncio.wait((relay, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            finished = relay.done()
            for task in (relay, gone):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await gone
            if not finished:
                with suppress(asyncio.CancelledError):
                    await relay
        if finished:
            with suppress(ClientGone):
                relay.result()

    async def _exchange(
        self, scope: Scope, receive: Receive, send: Send, whole: asyncio.Event
    ) -> None:
        request = httpx.Request(
            scope["method"],
            self._url.copy_with(raw_path=_target(self._url, scope)),
            headers=_onward(scope["headers"], without=(b"host",)),
            content=_body(receive, whole) if _has_body(scope["headers"]) else None,
        )
        if not _has_body(scope["headers"]):
            whole.set()
            await receive()
        try:
            answer = await self.client.send(request, stream=True)
        except httpx.HTTPError as error:
            logger.warning("upstream %s: %s", self._url, type(error).__name__)
            await _bad_gateway(send, type(error).__name__)
            return
        try:
            await _answer(answer, send)
        finally:
            await answer.aclose()


async def _answer(answer: httpx.Response, send: Send) -> None:
    headers = _onward(answer.headers.raw)
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    try:
        async for piece in answer.aiter_raw():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    except httpx.HTTPError as error:
        raise UpstreamBroke(type(error).__name__) from None
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _bad_gateway(send: Send, reason: str) -> None:
    text = {"error": {"message": f"prefixscope tap: no answer from the engine: {reason}"}}
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 502, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(text).encode()})


async def _body(receive: Receive, whole: asyncio.Event) -> AsyncIterator[bytes]:
    """The request's body as it comes."""
    more = True
    while more:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        more = message.get("more_body", False)
        if piece := message.get("body", b""):
            yield piece
    whole.set()


async def _left(receive: Receive, whole: asyncio.Event) -> None:
    """Returns when the client has gone. Its request must be whole before it is listened for:
    two cannot read at a time."""
    await whole.wait()
    while (await receive())["type"] != "http.disconnect":
        pass


def _has_body(headers: Iterable[Header]) -> bool:
    """A request has a body where it says how long it is, or that it comes in chunks."""
    lengths = {name.lower(): value for name, value in headers}
    return b"transfer-encoding" in lengths or lengths.get(b"content-length", b"0") != b"0"


def _onward(headers: Iterable[Header], without: tuple[bytes, ...] = ()) -> list[Header]:
    """The headers that are about the message, as they are."""
    pairs = [(name.lower(), value) for name, value in headers]
    named = {
        token.strip().lower()
        for name, value in pairs
        if name == b"connection"
        for token in value.split(b",")
    }
    return [pair for pair in pairs if pair[0] not in _HOP_BY_HOP | named | set(without)]


def _target(url: httpx.URL, scope: Scope) -> bytes:
    """Path and query as the client sent them, below the path of the upstream."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    return url.raw_path.rstrip(b"/") + path + (b"?" + query if query else b"")


def serve_tap(upstream: str, host: str, port: int, settings: TapSettings) -> None:
    """Run the proxy until Ctrl-C or SIGTERM; rows that wait are written before it returns."""
    app = Tap(Upstream(upstream), settings)
    uvicorn.run(app, host=host, port=port, timeout_graceful_shutdown=10, **PROXY_OPTIONS)
