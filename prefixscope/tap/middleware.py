"""The middleware itself: passes everything on, and looks at what passes.

Whatever goes wrong in the tap is counted and told in the log; it never reaches a client.
"""

import asyncio
import atexit
import logging
import threading
import time
from collections.abc import MutableMapping
from typing import Any

from prefixscope.tap.asking import UsageHider, asking_body
from prefixscope.tap.key import tap_key
from prefixscope.tap.recorder import Recorder
from prefixscope.tap.rows import Exchange
from prefixscope.tap.settings import TapSettings, replica_name, tap_settings
from prefixscope.tap.sinks import tap_log
from prefixscope.tap.tokenizing import App, Message, Receive, Scope, Send
from prefixscope.tap.usage import KINDS, Answer, merge_stated
from prefixscope.tap.watching import DocumentWatch, StreamWatch, Unpacked
from replay.hashes import hash_key_id

_CLOSE_SECONDS = 5.0


class Tap:
    """ASGI middleware: `Tap(app)` with settings from the environment, or given.

    Raises BadTapSettings for settings it cannot work with. Threads are started with the first
    request, so that a process may fork before.
    """

    def __init__(self, app: App, settings: TapSettings | None = None) -> None:
        self.app = app
        self.settings = settings or tap_settings()
        self._key = tap_key(self.settings)
        self._starting = threading.Lock()
        self._recorder: Recorder | None = None
        self._moved: dict[bytes, bytes] = {}
        # Requests that wait for the beginning of their answer; see `Recorder`.
        self.waiting_requests = 0
        atexit.register(self.close)
        _say_start(self.settings, self._key)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
            return
        kind = _kind(scope)
        if kind is None:
            await self.app(scope, receive, send)
            return
        passing = Passing(self, kind, scope, receive, send)
        await passing.run()

    @property
    def recorder(self) -> Recorder:
        with self._starting:
            if self._recorder is None:
                self._recorder = Recorder(
                    self.settings, self._key, self.app, lambda: self.waiting_requests > 0
                )
            return self._recorder

    @property
    def moved(self) -> dict[bytes, bytes]:
        """What servers move into the usage event, as last seen; see `UsageHider`."""
        return self._moved

    def close(self, seconds: float = _CLOSE_SECONDS) -> None:
        """Write what waits, for at most so long, and stop. The next request would start anew."""
        with self._starting:
            recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.close(seconds)

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Close with the application. One that knows no lifespan is closed with the process."""
        ended = False

        async def receiving() -> Message:
            nonlocal ended
            message = await receive()
            ended = ended or message["type"] == "lifespan.shutdown"
            return message

        try:
            await self.app(scope, receiving, send)
        finally:
            if ended:
                await asyncio.get_running_loop().run_in_executor(None, self.close)


class Passing:
    """One request on its way through."""

    def __init__(self, tap: Tap, kind: str, scope: Scope, receive: Receive, send: Send) -> None:
        self._tap = tap
        self._scope = scope
        self._receive = receive
        self._send = send
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        self._exchange = Exchange(
            kind, scope, headers, time.time(), time.perf_counter(), Answer(kind)
        )
        self._watch: StreamWatch | DocumentWatch | Unpacked | None = None
        self._hider: UsageHider | None = None
        self._asked = False
        self._over = False
        self._has_begun = False

    async def run(self) -> None:
        exchange = self._exchange
        self._tap.waiting_requests += 1
        try:
            if self._tap.settings.include_usage:
                await self._ask_for_usage()
            await self._tap.app(self._scope, self._receiving, self._sending)
        except asyncio.CancelledError:
            exchange.left = exchange.left or not exchange.answered
            raise
        except BaseException:
            exchange.raised = True
            raise
        finally:
            self._begun()
            self._guarded(self._finish)

    def _begun(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._tap.waiting_requests -= 1

    def _guarded(self, step: Any, *arguments: Any) -> Any:  # noqa: ANN401 - passes on
        """Run a step of the tap's own; a mistake in it is counted and costs no request."""
        try:
            return step(*arguments)
        except Exception as error:  # noqa: BLE001 - see above
            self._tap.recorder.fault(error)
            return None

    # ------------------------------------------------------------------ the request

    async def _receiving(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            # After the answer, or after the application has given up, this says nothing.
            if not self._exchange.answered and not self._over:
                self._exchange.left = True
        elif message["type"] == "http.request" and not self._asked:
            self._guarded(self._keep, message.get("body", b""))
        return message

    def _keep(self, piece: bytes) -> None:
        exchange = self._exchange
        if exchange.body is None or not piece:
            return
        exchange.body.append(piece)
        exchange.body_bytes += len(piece)
        if exchange.body_bytes > self._tap.settings.body_bytes:
            exchange.body, exchange.body_bytes = None, 0
            exchange.flags.append("body_too_large")

    async def _ask_for_usage(self) -> None:
        """Read the whole request, as the engine must, and hand it on with the question."""
        messages: list[Message] = []
        while not messages or messages[-1].get("more_body", False):
            messages.append(await self._receiving())
        body = b"".join(message.get("body", b"") for message in messages)
        changed = self._guarded(asking_body, self._exchange.kind, body)
        self._asked = True
        if changed is not None:
            self._hider = UsageHider(
                self._tap.moved, hide_null=self._tap.settings.null_usage == "hide"
            )
            self._scope = _scope_for(self._scope, len(changed))
            messages = [{"type": "http.request", "body": changed, "more_body": False}]
        waiting, direct = messages[::-1], self._receive

        async def receive() -> Message:
            return waiting.pop() if waiting else await direct()

        self._receive = receive

    # ------------------------------------------------------------------ the answer

    async def _sending(self, message: Message) -> None:
        now = time.perf_counter()
        if message["type"] == "http.response.start":
            self._guarded(self._begin, message)
        elif message["type"] == "http.response.body":
            await self._pass_on(message, now)
            return
        await self._send(message)

    def _begin(self, message: Message) -> None:
        exchange = self._exchange
        exchange.http_status = message["status"]
        headers = {name.lower(): value for name, value in message.get("headers", ())}
        content_type = headers.get(b"content-type", b"").lower()
        encoding = headers.get(b"content-encoding", b"").lower().decode("latin-1")
        if b"text/event-stream" in content_type:
            exchange.stream = True
        elif exchange.http_status == 200:
            exchange.stream = False
        if not exchange.stream or exchange.http_status != 200 or encoding:
            self._hider = None
        if exchange.stream or b"json" in content_type:
            watch = StreamWatch if exchange.stream else DocumentWatch
            self._watch = watch(exchange.answer)
            if encoding not in ("", "identity"):
                self._watch = Unpacked(self._watch, encoding)
                if encoding not in ("gzip", "x-gzip", "deflate"):
                    exchange.flags.append("answer_unreadable")

    async def _pass_on(self, message: Message, now: float) -> None:
        self._begun()
        piece, more = message.get("body", b""), message.get("more_body", False)
        shown = piece
        if self._hider is not None:
            shown = self._hider.feed(piece) + (b"" if more else self._hider.end())
        if shown is piece:
            await self._send(message)
        elif shown or not more:
            await self._send({**message, "body": shown})
        if not more:
            self._exchange.answered = True
            # As the first token: when it was there, not when the network had taken it.
            self._exchange.ended = now
        self._guarded(self._look, piece, more, now)

    def _look(self, piece: bytes, more: bool, now: float) -> None:
        """After it was passed on."""
        if self._watch is not None:
            if piece:
                self._watch.feed(piece, now)
            if not more:
                self._watch.end()

    def _finish(self) -> None:
        self._over = True
        exchange = self._exchange
        if exchange.ended is None:
            exchange.ended = time.perf_counter()
        state = self._scope.get("state")
        if isinstance(state, MutableMapping) and not exchange.answer.usage:
            # vLLM leaves its count there for middleware, streamed or not.
            stated = getattr(state.get("request_metadata"), "final_usage_info", None)
            names = ("prompt_tokens", "completion_tokens")
            merge_stated(
                exchange.answer.usage, {name: getattr(stated, name, None) for name in names}
            )
        self._tap.recorder.take(exchange, asyncio.get_running_loop())


def _kind(scope: Scope) -> str | None:
    """Which of the recorded APIs a request is for; None for every other."""
    if scope["type"] != "http" or scope.get("method") != "POST":
        return None
    path = scope["path"]
    return next((kind for end, kind in KINDS.items() if path.endswith(end)), None)


def _scope_for(scope: Scope, body_bytes: int) -> Scope:
    """The scope of the changed request: its length, and no compression, which cannot be read
    and changed on the way."""
    left_out = (b"content-length", b"accept-encoding", b"transfer-encoding")
    headers = [pair for pair in scope["headers"] if pair[0].lower() not in left_out]
    headers.append((b"content-length", str(body_bytes).encode()))
    headers.append((b"accept-encoding", b"identity"))
    return {**scope, "headers": headers}


def _say_start(settings: TapSettings, key: str) -> None:
    if not tap_log.isEnabledFor(logging.INFO):
        # vLLM and uvicorn configure their own loggers only.
        tap_log.setLevel(logging.INFO)
    if not tap_log.hasHandlers():
        tap_log.addHandler(logging.StreamHandler())
    tap_log.info(
        "prefixscope tap: replica %s, rows to %s, hashes %s%s. Records what passes this process "
        "alone: beside other replicas that is a sample%s.",
        replica_name(settings),
        " and ".join(filter(None, (settings.file, settings.post))),
        settings.hashes,
        f" (key {hash_key_id(key)})" if key else "",
        f" ({settings.sample})" if settings.sample else "",
    )
