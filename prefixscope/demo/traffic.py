"""The demo's traffic as one running clock: sessions open, calls arrive, start, end, and repeat.

The same clock makes five weeks of history in seconds and then goes on in real time. Everything is
drawn from one seeded generator in the order of events, so the same seed gives the same calls
however the clock is advanced.
"""

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random

from prefixscope.demo.events import ChainNames
from prefixscope.demo.fleet import Call, Replica
from prefixscope.demo.prompts import PromptBook, Session
from prefixscope.demo.scenario import (
    BLOCK_TOKENS,
    CANCELLED_RATIO,
    ERROR_RATIO,
    PREFILL_TOKENS_PER_SECOND,
    RESTARTED_BLOCKS,
    TENANT_WEIGHTS,
    TENANTS,
    LoadCurve,
    Story,
)

DRAIN_SECONDS = 600.0
BOOT_SECONDS = 45.0

Event = Callable[[float], None]


class Traffic:
    """All replicas, all sessions and the events between them. Times are Unix seconds.

    `end` is where history ends; it places the incidents and sets the fleet's clock. The traffic
    itself goes on after it. `names` gives rows their hash chains, once `tell_events` was called.
    """

    names: ChainNames | None = None

    def __init__(self, *, start: float, end: float, requests_per_second: float, seed: int) -> None:
        self.story = story = Story.between(start, end)
        self.replicas = [
            # No two processes start at the same moment.
            Replica(f"replica-{number}", speed, start - 41.7 * number)
            for number, speed in enumerate(PREFILL_TOKENS_PER_SECOND)
        ]
        self._draws = Random(seed)  # noqa: S311 - invented traffic, not secrets
        self._book = PromptBook(self._draws)
        self._load = LoadCurve(requests_per_second, end)
        self._events: list[tuple[float, int, Event]] = []
        self._order = count()
        self._names = count(1)
        self._numbers = count(1)
        self._turn_at_router = 0
        self._ended: list[Call] = []
        self._at(start, self._open_session)
        self._at(story.restart - DRAIN_SECONDS, self._drain)

    def advance(self, until: float) -> list[Call]:
        """Let time pass; returns the calls that have ended since the last time, oldest first."""
        while self._events[0][0] <= until:
            now, _, event = heappop(self._events)
            event(now)
        for replica in self.replicas:
            replica.release(until)
        ended, self._ended = self._ended, []
        return ended

    def tell_events(self, moment: float) -> None:
        """From now on the replicas keep their KV-cache events."""
        for replica in self.replicas:
            replica.events.begin(moment)

    def _at(self, moment: float, event: Event) -> None:
        heappush(self._events, (moment, next(self._order), event))

    def _open_session(self, now: float) -> None:
        # Thinning: candidates come at the peak rate and are kept in proportion to the load.
        peak = self._load.peak_sessions_per_second
        if self._draws.random() * peak < self._load.sessions_per_second(now):
            session = self._new_session(now)
            self._book.open(session)
            self._ask(session, now)
        self._at(now + self._draws.expovariate(peak), self._open_session)

    def _new_session(self, now: float) -> Session:
        template = self._load.template(now, self._draws.random())
        changed = template.next_version is not None and now >= self.story.version_change
        version = template.next_version if changed else template.version
        turns = 1
        while self._draws.random() > 1 / template.turns:
            turns += 1
        self._turn_at_router += 1
        return Session(
            name=f"demo-session-{next(self._names)}",
            template=template,
            version=version or template.version,
            tenant=self._draws.choices(TENANTS, cum_weights=TENANT_WEIGHTS)[0],
            turns=turns,
            replica=self._turn_at_router % len(self.replicas),
        )

    def _ask(self, session: Session, now: float) -> None:
        prompt_tokens = self._book.ask(session)
        call = self._call(session, now, next(self._numbers), attempt=1)
        call.prompt_tokens = prompt_tokens
        call.output_tokens = self._book.answer(session)
        self._send(call)

    def _call(self, session: Session, now: float, number: int, attempt: int) -> Call:
        return Call(
            number=number,
            attempt=attempt,
            arrived=round(now, 3),
            name=session.name,
            turn=session.turn,
            template=session.template,
            version=session.version,
            tenant=session.tenant,
            session=session,
        )

    def _send(self, call: Call) -> None:
        if self._draws.random() < ERROR_RATIO:
            self._fail(call)
            return
        if call.template.stream and self._draws.random() < CANCELLED_RATIO:
            call.status = "cancelled"
            call.output_tokens = max(1, int(call.output_tokens * self._draws.random()))
        # Of the last generated token there is no KV yet.
        whole_blocks = (call.prompt_tokens + call.output_tokens - 1) // BLOCK_TOKENS
        call.chain = call.session.chain[:whole_blocks]
        call.prefill_noise = self._draws.lognormvariate(0.0, 0.07)
        call.gateway_seconds = round(0.008 + self._draws.expovariate(1 / 0.006), 6)
        replica = self._route(call.session)
        replica.submit(call)
        self._start_calls(replica, call.arrived)

    def _fail(self, call: Call) -> None:
        """End an attempt at the gateway and send the request once more."""
        call.status = "error"
        call.ended = round(call.arrived + 0.05 + self._draws.random(), 6)
        again = self._call(call.session, call.ended + 0.5, call.number, call.attempt + 1)
        again.prompt_tokens, again.output_tokens = call.prompt_tokens, call.output_tokens
        call.prompt_tokens = call.output_tokens = 0
        self._at(call.ended, lambda _: self._ended.append(call))
        self._at(again.arrived, lambda _: self._send(again))

    def _route(self, session: Session) -> Replica:
        """Keep a session on its replica; while that one drains, move it to the next for good."""
        while not self.replicas[session.replica].accepting:
            session.replica = (session.replica + 1) % len(self.replicas)
        return self.replicas[session.replica]

    def _start_calls(self, replica: Replica, now: float) -> None:
        for call in replica.advance(now):
            self._at(call.ended, partial(self._end, replica, call))
        if replica.waiting:
            self._at(replica.next_start(), lambda moment: self._start_calls(replica, moment))

    def _end(self, replica: Replica, call: Call, _: float) -> None:
        replica.counters.add(call)
        self._ended.append(call)
        session = call.session
        if call.status == "ok" and session.turn < session.turns and self._book.fits(session):
            session.turn += 1
            think_seconds = self._draws.expovariate(1 / session.template.think_seconds)
            self._at(call.ended + 1 + think_seconds, lambda now: self._ask(session, now))

    def _drain(self, _: float) -> None:
        self.replicas[self.story.restarted_replica].accepting = False
        self._at(self.story.restart, self._restart)

    def _restart(self, now: float) -> None:
        replica = self.replicas[self.story.restarted_replica]
        replica.advance(now)
        if replica.running_requests or replica.waiting:
            self._at(now + 60, self._restart)
            return
        replica.restart(now, boot_seconds=BOOT_SECONDS, capacity_blocks=RESTARTED_BLOCKS)
        self._at(now + BOOT_SECONDS, lambda _: self._accept(replica))

    @staticmethod
    def _accept(replica: Replica) -> None:
        replica.accepting = True
