"""Turns finished exchanges into rows, in a thread of its own.

The thread that serves hands an exchange over and goes on. When more come than can be worked
on, hashes are left out first and whole rows last; both are counted.
"""

import asyncio
import concurrent.futures
import json
import queue
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from prefixscope.tap.asked import given_token_ids, hashed, prompts_asked, tokenize_request
from prefixscope.tap.rows import Exchange, Prompt, row_of, scope_of
from prefixscope.tap.settings import TapSettings, replica_name
from prefixscope.tap.sinks import FileSink, PostSink, Sink, SinkWorker, tap_log
from prefixscope.tap.tokenizing import App, tokens_asked
from prefixscope.tap.watching import parsed_object

_TOKENIZE_SECONDS = 10.0
_GAP_SECONDS = 0.2
_TURN_SECONDS = 0.01
_FEW_ROWS = 50
_REMEMBERED_IDS = 65_536
_ATTEMPT_HEADERS = (("x-envoy-attempt-count", 0), ("x-stainless-retry-count", 1))


class Recorder:
    """Takes exchanges, writes rows. `take` never waits and never raises.

    `busy` tells whether a request waits for its first token. This thread takes turns with the
    one that serves, so its work is put off until none does, as long as few rows wait.
    """

    def __init__(self, settings: TapSettings, key: str, app: App, busy: Callable[[], bool]) -> None:
        self._busy = busy
        self._settings = settings
        self._key = key
        self._app = app
        self._replica = replica_name(settings)
        self._exchanges: queue.Queue[tuple[Exchange, asyncio.AbstractEventLoop] | None] = (
            queue.Queue(settings.queue_rows)
        )
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._seen_ids: OrderedDict[str, int] = OrderedDict()
        self._workers = [SinkWorker(sink, settings.queue_rows) for sink in _sinks(settings)]
        self._closing = False
        self._asked: concurrent.futures.Future[list[int] | None] | None = None
        self._dropped_exchanges = 0
        self.dropped_hashes = 0
        self.faults = 0
        self._thread = threading.Thread(target=self._run, name="prefixscope-tap-rows", daemon=True)
        self._thread.start()

    @property
    def dropped_rows(self) -> int:
        return self._dropped_exchanges + sum(worker.dropped_rows for worker in self._workers)

    def take(self, exchange: Exchange, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if self._waiting_bytes + exchange.body_bytes > 4 * self._settings.body_bytes:
                exchange.body, exchange.body_bytes = None, 0
                exchange.flags.append("body_dropped")
            self._waiting_bytes += exchange.body_bytes
        try:
            self._exchanges.put_nowait((exchange, loop))
        except queue.Full:
            self._done_with(exchange)
            self._dropped_exchanges += 1

    def close(self, seconds: float) -> None:
        """Finish what waits, within `seconds`; what cannot be written counts as dropped. The
        tokenizer is not asked any more."""
        self._closing = True
        if self._asked is not None:
            self._asked.cancel()
        try:
            self._exchanges.put(None, timeout=seconds)
        except queue.Full:
            tap_log.warning("%d requests were not recorded", self._exchanges.qsize())
        self._thread.join(seconds)
        for worker in self._workers:
            worker.close(seconds)

    def _run(self) -> None:
        while (item := self._exchanges.get()) is not None:
            exchange, loop = item
            try:
                self._record(exchange, loop)
            except Exception as error:  # noqa: BLE001 - one request's row must not end the thread
                self.fault(error)
            finally:
                self._done_with(exchange)

    def fault(self, error: BaseException) -> None:
        """Count a mistake of the tap's own. Its text may quote what it stumbled over, so only
        its type and place are told."""
        self.faults += 1
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        line = trace.tb_lineno if trace is not None else 0
        if self.faults <= 10:
            tap_log.warning("a row was lost: %s in line %d", type(error).__name__, line)

    def _done_with(self, exchange: Exchange) -> None:
        with self._lock:
            self._waiting_bytes -= exchange.body_bytes

    def _record(self, exchange: Exchange, loop: asyncio.AbstractEventLoop) -> None:
        if self._exchanges.qsize() < _FEW_ROWS and not self._closing:
            # Clients that ask one thing after another ask the next at once: let it come first.
            time.sleep(_TURN_SECONDS)
        self._wait_for_a_gap()
        body = self._body(exchange)
        prompt = self._prompt(exchange, body, loop)
        row = row_of(exchange, self._settings, self._replica, self._key, body, prompt)
        self._identify(row, exchange)
        counted = {"rows_dropped": self.dropped_rows, "hashes_dropped": self.dropped_hashes}
        if any(counted.values()):
            row["tap"] = counted
        line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
        for worker in self._workers:
            worker.put(line)

    @staticmethod
    def _body(exchange: Exchange) -> dict[str, Any]:
        if exchange.body is None:
            return {}
        body = parsed_object(b"".join(exchange.body))
        if not body:
            exchange.flags.append("body_unreadable")
        if exchange.stream is None and isinstance(body.get("stream"), bool):
            exchange.stream = body["stream"]
        return body

    def _identify(self, row: dict[str, Any], exchange: Exchange) -> None:
        """Every row has an id; one that a client uses again is a further attempt."""
        own = row.get("request_id")
        row["request_id"] = own or row.get("response_id") or f"tap-{secrets.token_hex(8)}"
        if own is None:
            return
        attempt = self._seen_ids.pop(own, 0) + 1
        for name, offset in _ATTEMPT_HEADERS:
            text = exchange.headers.get(name, "")
            if text.isdecimal() and len(text) < 5:
                attempt = max(attempt, int(text) + offset)
        self._seen_ids[own] = attempt
        if len(self._seen_ids) > _REMEMBERED_IDS:
            self._seen_ids.popitem(last=False)
        row["attempt"] = attempt

    # ------------------------------------------------------------------ hashes

    def _prompt(
        self, exchange: Exchange, body: Mapping[str, Any], loop: asyncio.AbstractEventLoop
    ) -> Prompt | None:
        """Hashes of the prompt where they are wanted and its token ids can be had."""
        if self._settings.hashes == "off" or not self._key or not body:
            return None
        if prompts_asked(exchange.kind, body) > 1:
            return None
        if (tokens := self._token_ids(exchange, body, loop)) is None:
            return None
        stated = exchange.answer.counts().get("prompt_tokens")
        if stated is not None and stated != len(tokens):
            # These are not the tokens the engine saw.
            exchange.flags.append("hashes_mismatch")
            return None
        scope = scope_of(self._settings, self._key, body).get("scope", "")
        self._wait_for_a_gap()
        try:
            return Prompt(len(tokens), *hashed(tokens, scope, self._key))
        except ValueError:  # no token ids at all, as the engine will have said too
            exchange.flags.append("hashes_impossible")
            return None

    def _token_ids(
        self, exchange: Exchange, body: Mapping[str, Any], loop: asyncio.AbstractEventLoop
    ) -> list[int] | None:
        known = given_token_ids(exchange.kind, body) or exchange.answer.prompt_token_ids
        if known is not None or not self._settings.tokenize:
            return known
        if (
            exchange.status() == "error"
            or (request := tokenize_request(exchange.kind, body)) is None
        ):
            return None
        if self._exchanges.qsize() > self._settings.queue_rows // 2:
            self.dropped_hashes += 1
            exchange.flags.append("hashes_dropped")
            return None
        return self._tokenized(exchange, request, loop)

    def _wait_for_a_gap(self) -> None:
        end = time.monotonic() + _GAP_SECONDS
        while self._busy() and self._exchanges.qsize() < _FEW_ROWS and not self._closing:
            if time.monotonic() >= end:
                return
            time.sleep(0.002)

    def _tokenized(
        self, exchange: Exchange, request: Mapping[str, Any], loop: asyncio.AbstractEventLoop
    ) -> list[int] | None:
        self._wait_for_a_gap()
        question = tokens_asked(self._app, exchange.scope, request)
        try:
            asked = self._asked = asyncio.run_coroutine_threadsafe(question, loop)
        except RuntimeError:  # the server has stopped
            question.close()
            return None
        tokens: list[int] | None = None
        try:
            tokens = asked.result(_TOKENIZE_SECONDS)
        except concurrent.futures.TimeoutError:
            asked.cancel()
        except Exception as error:  # noqa: BLE001 - whatever the application fails with
            tap_log.debug("tokenize: %s", type(error).__name__)
        if tokens is None:
            self.dropped_hashes += 1
            exchange.flags.append("hashes_dropped")
        return tokens


def _sinks(settings: TapSettings) -> list[Sink]:
    sinks: list[Sink] = []
    if settings.file:
        sinks.append(FileSink(Path(settings.file), settings.file_bytes, settings.files_kept))
    if settings.post:
        token = settings.post_token
        if not token and settings.post_token_file:
            token = Path(settings.post_token_file).read_text(encoding="utf-8").strip()
        sinks.append(PostSink(settings.post, token))
    return sinks
