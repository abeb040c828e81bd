"""Callers of the demo's engine: five templates that share prefixes well, badly and not at all.

Together they need more KV memory than the engine has, so that what one asks pushes out what
another would have reused.
"""

import itertools
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import requests

from prefixscope.demo_engine.engine import MODEL
from prefixscope.demo_engine.words import prose

_log = logging.getLogger(__name__)

TENANTS = ("acme", "birch", "cedar")
AT_ONCE = 3
_PAUSE_SECONDS = (0.2, 1.2)
_PATIENCE_SECONDS = 120
_TURNS = 5
_DOCUMENTS = 40

Message = dict[str, str]


@dataclass(frozen=True)
class Call:
    """One request: what a gateway would know about it, and its messages.

    `salt` keeps what it leaves in the cache from other tenants.
    """

    route: str
    template: str
    tenant: str
    messages: list[Message]
    session: str | None = None
    salt: str | None = None
    answer_tokens: int = 16

    def body(self) -> dict[str, Any]:
        """As the chat API takes it, streamed, with usage at the end."""
        options = {"stream": True, "stream_options": {"include_usage": True}}
        salt = {} if self.salt is None else {"cache_salt": self.salt}
        return {
            "model": MODEL, "messages": self.messages, "temperature": 0, "ignore_eos": True,
            "max_tokens": self.answer_tokens, **options, **salt,
        }  # fmt: skip

    def headers(self, request_id: str) -> dict[str, str]:
        """The names, in the headers the tap looks at by default."""
        session = {} if self.session is None else {"x-prefixscope-session": self.session}
        return {
            "x-request-id": request_id,
            "x-prefixscope-route": self.route,
            "x-prefixscope-template": self.template,
            "x-prefixscope-template-version": "1",
            "x-prefixscope-tenant": self.tenant,
            **session,
        }


def _system(text: str, *turns: str) -> list[Message]:
    roles = itertools.cycle(("user", "assistant"))
    said = [{"role": role, "content": turn} for role, turn in zip(roles, turns, strict=False)]
    return [{"role": "system", "content": text}, *said]


def _question(chooser: random.Random) -> str:
    return prose(f"question {chooser.random()}", chooser.randint(8, 30))


def support_desk(chooser: random.Random) -> Iterator[Call]:
    """A long fixed instruction, then the question. One tenant keeps its cache to itself."""
    while True:
        tenant = chooser.choice(TENANTS)
        salt = "cedar-only" if tenant == "cedar" else None
        messages = _system(prose("support policy", 650), _question(chooser))
        yield Call("chat", "support-desk", tenant, messages, salt=salt)


def search_answer(chooser: random.Random) -> Iterator[Call]:
    """A short instruction, then one of many documents: little is shared for long."""
    while True:
        document = prose(f"document {chooser.randrange(_DOCUMENTS)}", 450)
        messages = _system(prose("search policy", 90), document + " " + _question(chooser))
        yield Call("search", "search-answer", chooser.choice(TENANTS), messages)


def dated_report(chooser: random.Random) -> Iterator[Call]:
    """The time of day in front of a long fixed instruction: nothing behind it is ever shared."""
    while True:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        messages = _system(f"Now: {now} " + prose("report policy", 350), _question(chooser))
        yield Call("batch", "dated-report", chooser.choice(TENANTS[:2]), messages)


def conversation(chooser: random.Random) -> Iterator[Call]:
    """Turns that repeat everything said before: each finds the one before it, if it is in time."""
    while True:
        session, tenant = f"s-{chooser.randrange(10**9)}", chooser.choice(TENANTS)
        turns: list[str] = []
        for _ in range(_TURNS):
            turns.append(_question(chooser))
            messages = _system(prose("assistant policy", 300), *turns)
            yield Call("chat", "conversation", tenant, messages, session=session)
            turns.append(prose(f"answer {chooser.random()}", 60))


def extract_fields(chooser: random.Random) -> Iterator[Call]:
    """Short prompts: a fixed instruction of a few blocks."""
    while True:
        messages = _system(prose("extract policy", 140), prose(f"{chooser.random()}", 40))
        yield Call("batch", "extract-fields", chooser.choice(TENANTS[1:]), messages)


# How often each is called, out of all weights.
MIX: dict[Callable[[random.Random], Iterator[Call]], int] = {
    support_desk: 5, conversation: 4, search_answer: 3, dated_report: 1, extract_fields: 2,
}  # fmt: skip


def calls(seed: int) -> Iterator[Call]:
    """What one caller sends, without end, always the same for a seed but for the time of day."""
    chooser = random.Random(seed)  # noqa: S311 - it only has to be reproducible
    streams = [stream(chooser) for stream in MIX]
    while True:
        (stream,) = chooser.choices(streams, weights=list(MIX.values()))
        yield next(stream)


@dataclass
class Traffic:
    """Some callers at once, each waiting for its answer and pausing a little."""

    url: str
    pause_seconds: tuple[float, float] = _PAUSE_SECONDS
    answered: int = 0
    failed: int = 0
    _began: int = field(default_factory=lambda: int(time.time()))
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Begin. What is asked depends on the time, so that a second run is no repetition."""
        for caller in range(AT_ONCE):
            seed = self._began + caller
            thread = threading.Thread(target=self._call, args=(seed,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self, seconds: float = 5) -> None:
        """End after the calls in hand, or without them after so long."""
        self._stop.set()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _call(self, seed: int) -> None:
        chooser = random.Random(seed)  # noqa: S311 - pauses only
        with requests.Session() as session:
            for call in calls(seed):
                self._send(session, call)
                if self._stop.wait(chooser.uniform(*self.pause_seconds)):
                    return

    def _send(self, session: requests.Session, call: Call) -> None:
        """One call to its end. A failed one is counted and told; the next goes on."""
        with self._lock:
            request_id = f"demo-{self._began}-{next(self._numbers)}"
        try:
            reply = session.post(
                f"{self.url}/v1/chat/completions",
                json=call.body(),
                headers=call.headers(request_id),
                stream=True,
                timeout=_PATIENCE_SECONDS,
            )
            reply.raise_for_status()
            for _ in reply.iter_content(4096):
                pass
        except requests.RequestException as error:
            with self._lock:
                self.failed += 1
            if not self._stop.is_set():
                _log.warning("a call of the demo failed: %s", error)
            return
        with self._lock:
            self.answered += 1
