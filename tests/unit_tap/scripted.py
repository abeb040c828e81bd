"""An upstream that says exactly what a test wants, and real servers and clients around it.

Real engines cannot be made to fail on demand; what they say when all is well is tested against
a real one in tests/engine.
"""

import asyncio
import contextlib
import gzip
import http.client
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from prefixscope.tap import Tap
from prefixscope.tap.settings import TapSettings
from prefixscope.tap.tokenizing import App, Receive, Scope, Send
from prefixscope.tap_proxy import PROXY_OPTIONS, Upstream
from tests.running import eventually

FINGERPRINT = "vllm-0.32.0-c1059d89"
USAGE = {"prompt_tokens": 784, "total_tokens": 792, "completion_tokens": 8,
         "prompt_tokens_details": {"cached_tokens": 768, "created_cache_tokens": 16}}  # fmt: skip
CHAT = "/v1/chat/completions"


def compact(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def event(document: object) -> bytes:
    return b"data: " + compact(document) + b"\n\n"


def chunk(delta: object, finish: str | None = None, index: int = 0, **more: object) -> bytes:
    """One event of a chat stream, members in the order vLLM writes them."""
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
    front = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
    return event({**front, "choices": [choice], **more})


def usage_chunk(usage: object = USAGE, **more: object) -> bytes:
    front = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
    return event({**front, "choices": [], "usage": usage, **more})


TEXTS = ["Grü", 'ße, "usage": {', "\n\n", "data: [DONE]", "日本", " end"]


def chat_stream(request: dict[str, Any]) -> list[bytes]:
    """As vLLM streams: where usage is asked for, the fingerprint moves to the usage event."""
    asked = (request.get("stream_options") or {}).get("include_usage")
    moved: dict[str, object] = {} if asked else {"system_fingerprint": FINGERPRINT}
    choices = range(request.get("n", 1))
    events = [chunk({"role": "assistant", "content": ""}, index=index) for index in choices]
    for text in TEXTS:
        events += [chunk({"content": text}, index=index) for index in choices]
    if request.get("tools"):
        call = {"index": 0, "id": "call_1", "function": {"name": "f", "arguments": '{"usage": 1}'}}
        events.append(chunk({"tool_calls": [call]}))
    events += [chunk({"content": "."}, "stop", index, **moved) for index in choices]
    if asked:
        events.append(usage_chunk(system_fingerprint=FINGERPRINT))
    return [*events, b"data: [DONE]\n\n"]


def chat_answer(request: dict[str, Any]) -> bytes:
    message = {"role": "assistant", "content": "".join(TEXTS) * request.get("repeat", 1)}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return compact({
        "id": "chatcmpl-2", "object": "chat.completion", "model": "tiny", "choices": choices,
        "system_fingerprint": FINGERPRINT, "usage": USAGE, "prompt_logprobs": None,
    })  # fmt: skip


@dataclass
class Script:
    """An ASGI application. `pieces` says what it streams; `case` in the request what goes wrong."""

    pieces: Callable[[dict[str, Any]], list[bytes]] = chat_stream
    answer: Callable[[dict[str, Any]], bytes] = chat_answer
    seen: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    tokens: Callable[[dict[str, Any]], list[int] | None] = lambda request: None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for word in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{word}.complete"})
            return
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        request = json.loads(body) if body else {}
        if scope["path"].endswith("/tokenize"):
            await self._tokenize(request, send)
            return
        self.seen.append(request)
        self.paths.append(scope["path"])
        self.headers.append({k.decode(): v.decode() for k, v in scope["headers"]})
        if request.get("case") == "gzip" and "gzip" not in self.headers[-1]["accept-encoding"]:
            request["case"] = ""
        await self._reply(request, receive, send)

    async def _tokenize(self, request: dict[str, Any], send: Send) -> None:
        tokens = self.tokens(request)
        status, answer = (404, {}) if tokens is None else (200, {"tokens": tokens})
        await respond(send, status, compact(answer))

    async def _reply(self, request: dict[str, Any], receive: Receive, send: Send) -> None:
        case = request.get("case", "")
        if case.startswith("status "):
            await respond(send, int(case.split()[1]), b'{"error":{"message":"no"}}')
        elif case == "raises":
            raise RuntimeError("the engine is broken")
        elif not request.get("stream"):
            packed = gzip.compress(self.answer(request), mtime=0) if case == "gzip" else None
            await respond(send, 200, packed or self.answer(request), packed is not None)
        else:
            await self._stream(request, case, receive, send)

    async def _stream(
        self, request: dict[str, Any], case: str, receive: Receive, send: Send
    ) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-own", b"1")]
        if case == "gzip":
            headers.append((b"content-encoding", b"gzip"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        gone = asyncio.create_task(receive())
        async for piece in self._cut(request, case):
            if gone.done():
                self.left.set()
                return
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            if case == "breaks":
                raise RuntimeError("the engine is broken")
        await asyncio.wait({gone}, timeout=request.get("linger", 0))
        if gone.done():
            self.left.set()
            return
        gone.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _cut(self, request: dict[str, Any], case: str) -> AsyncIterator[bytes]:
        pieces = self.pieces(request)
        if case == "gzip":
            pieces = [gzip.compress(b"".join(pieces), mtime=0)]
        if case == "crlf":
            pieces = [piece.replace(b"\n\n", b"\r\n\r\n") for piece in pieces]
        if (size := request.get("cut")) is not None:
            whole = b"".join(pieces)
            pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
        for piece in pieces:
            yield piece
            await asyncio.sleep(request.get("pause", 0))
        while case == "endless" and not self.left.is_set():
            yield chunk({"content": "more"})
            await asyncio.sleep(0.01)


async def respond(send: Send, status: int, body: bytes, packed: bool = False) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if packed:
        headers.append((b"content-encoding", b"gzip"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


# ---------------------------------------------------------------- servers and clients


@contextlib.contextmanager
def serving(app: App, as_proxy: bool = False) -> Iterator[int]:
    """A real server on loopback in a thread; its port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    options: dict[str, Any] = {"access_log": False, "date_header": False}
    config = uvicorn.Config(app, log_config=None, **(PROXY_OPTIONS if as_proxy else options))
    config.timeout_graceful_shutdown = 2
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(60)
        listener.close()
        assert not thread.is_alive()


@dataclass(frozen=True)
class Reply:
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    cut_short: bool = False


def ask(
    port: int, request: object, path: str = CHAT, headers: dict[str, str] | None = None
) -> Reply:
    """Everything a client receives, undone from chunks only."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    sent = {"Content-Type": "application/json", **(headers or {})}
    try:
        connection.request("POST", path, request if isinstance(request, bytes) else
                           json.dumps(request), sent)  # fmt: skip
        reply = connection.getresponse()
        try:
            body, cut_short = reply.read(), False
        except http.client.IncompleteRead as error:
            body, cut_short = error.partial, True
        return Reply(reply.status, reply.getheaders(), body, cut_short)
    finally:
        connection.close()


def tap_settings_for(folder: Path, **settings: object) -> TapSettings:
    given = {"file": str(folder / "tap.ndjson"), "replica": "r1", **settings}
    return TapSettings(**given)  # type: ignore[arg-type]


@contextlib.contextmanager
def tapped(
    script: Script, folder: Path, proxied: bool = False, **settings: object
) -> Iterator[tuple[int, Tap]]:
    """The script with a tap in it, as middleware or as a proxy in front."""
    with contextlib.ExitStack() as stack:
        inner: App = script
        if proxied:
            inner = Upstream(f"http://127.0.0.1:{stack.enter_context(serving(script))}")
        tap = Tap(inner, tap_settings_for(folder, **settings))
        yield stack.enter_context(serving(tap, as_proxy=proxied)), tap


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """Every row written, rotated files first; to be read after the server has ended."""
    paths = sorted(folder.glob("tap.ndjson*"), key=lambda path: (path.name == "tap.ndjson", path))
    return [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]


def until(ready: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    eventually("such end of what runs beside", ready)
