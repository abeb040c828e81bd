"""The fleet: sessions through a router to replicas with block pools. Times are Unix seconds.

A block's number stands for its chain hash: it is handed out once for one content after one
beginning. A prompt's blocks become reusable when its prefill starts (engines: when it ends), which
only matters to requests a fraction of a second apart.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate, count, islice

from bench.alerts.faults import Fault, Kind
from bench.alerts.world import (
    BLOCK_TOKENS,
    DAYS,
    REPLICA_BLOCKS,
    REPLICAS,
    START,
    TEMPLATES,
    TENANTS,
    Template,
    World,
)
from replay.blocks import BlockPool, Lease, reusable_blocks

SAMPLE_SECONDS = 300.0
LONGEST_TOKENS = 6_500  # a session ends before it outgrows the smallest pool
RESET_SECONDS = 1_200.0
DEPLOYED_BLOCKS = 80  # larger weights leave less for KV
PREFILL_TOKENS_PER_SECOND = 2_400.0
DECODE_TOKENS_PER_SECOND = 4.5
TIME_IN_FRONT_TOKENS = 16
BATCH_PER_HOUR = 60.0
CAMPAIGN_PER_HOUR = 160.0
BATCH = Template("batch", "documents", 0, 300, 200, 2_400)
CAMPAIGN = Template("search", "search", 0, 700, 130, 120, document_tokens=1_200, documents=4_000)
_TENANT_WEIGHTS = tuple(accumulate(1 / (rank + 1) for rank in range(len(TENANTS))))


@dataclass(slots=True)
class Session:
    """One conversation; `chain` and `tokens` grow with every turn."""

    name: int
    template: Template
    version: str
    tenant: str
    scope: str | None
    turns: int
    replica: int
    turn: int = 1
    tokens: int = 0
    chain: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Replica:
    """One engine process: a pool, one prefill at a time, and the counters of its page."""

    name: str
    fingerprint: str = "weights-1"
    pool: BlockPool = field(default_factory=lambda: BlockPool(REPLICA_BLOCKS))
    running: list[tuple[float, int, Lease]] = field(default_factory=list)
    ready: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    finished: int = 0
    restarted: bool = False

    def release(self, moment: float) -> None:
        """Give back what has ended by then."""
        while self.running and self.running[0][0] <= moment:
            self.pool.end(heappop(self.running)[2])

    def restart(self, fingerprint: str, capacity_blocks: int = REPLICA_BLOCKS) -> None:
        """An empty pool and counters anew; what ran is lost."""
        self.pool, self.running = BlockPool(capacity_blocks), []
        self.fingerprint, self.restarted = fingerprint, True


@dataclass(frozen=True, slots=True)
class Served:
    """One request as it was served."""

    moment: float
    session: int
    turn: int
    template: str
    route: str
    version: str
    tenant: str
    scope: str | None
    replica: str
    fingerprint: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    queue_seconds: float
    ttft_seconds: float


@dataclass(frozen=True, slots=True)
class Sample:
    """What a scrape adds: increases over SAMPLE_SECONDS, gauges at its end."""

    moment: float
    replica: str
    prompt_tokens: int
    cached_tokens: int
    finished: int
    running: int
    waiting: int
    kv_usage_ratio: float
    capacity_blocks: int
    restarted: bool


class Fleet:
    """All of it as one clock. `run` gives what is seen, in the order of time."""

    def __init__(self, world: World, faults: list[Fault]) -> None:
        self._world = world
        self._faults = faults
        self._draw = random.Random(f"fleet {world.seed}")
        self._replicas = [Replica(f"replica-{number}") for number in range(REPLICAS)]
        self._heads: dict[tuple[object, ...], list[int]] = {}
        self._next_block = count()
        self._names = count(1)
        self._order = count()
        self._events: list[tuple[float, int, Session | None]] = []
        self._next_reset = 0.0

    def run(self, days: float = DAYS) -> Iterator[Served | Sample]:
        """Everything that happens in so many days."""
        start = START.timestamp()
        self._openings(start)
        next_sample = start + SAMPLE_SECONDS
        while self._events[0][0] < start + days * 86_400:
            moment, _, session = heappop(self._events)
            while next_sample <= moment:
                yield from self._samples(next_sample)
                next_sample += SAMPLE_SECONDS
            self._restarts(moment)
            if session is None:
                self._openings(moment)
            else:
                yield self._ask(session, moment)

    def _on(self, kind: Kind, moment: float) -> Fault | None:
        return next((f for f in self._faults if f.kind == kind and f.at(moment)), None)

    def _restarts(self, moment: float) -> None:
        """Restarts one after another while something is wrong, all at once for a deploy."""
        if self._on("reset", moment) and moment >= self._next_reset:
            replica = self._draw.choice(self._replicas)
            replica.restart(replica.fingerprint)
            self._next_reset = moment + RESET_SECONDS / REPLICAS
        wanted = "weights-2" if self._on("deploy", moment) else "weights-1"
        for replica in self._replicas:
            if replica.fingerprint != wanted:
                capacity = DEPLOYED_BLOCKS if wanted == "weights-2" else REPLICA_BLOCKS
                replica.restart(wanted, capacity)

    # ------------------------------------------------------------------ sessions

    def _openings(self, moment: float) -> None:
        """Draw the sessions of the next ten minutes, and come back then."""
        span = 600.0
        for template, rate in zip(TEMPLATES, self._world.weights(moment), strict=True):
            self._open(template, moment, span, rate)
        if self._on("memory_pressure", moment):
            self._open(BATCH, moment, span, BATCH_PER_HOUR / 3_600)
        if self._on("mix", moment):
            self._open(CAMPAIGN, moment, span, CAMPAIGN_PER_HOUR / 3_600)
        heappush(self._events, (moment + span, next(self._order), None))

    def _open(self, template: Template, moment: float, span: float, rate: float) -> None:
        when = moment
        while (when := when + self._draw.expovariate(rate)) < moment + span:
            heappush(self._events, (when, next(self._order), self._session(template, when)))

    def _session(self, template: Template, moment: float) -> Session:
        draw = self._draw
        turns = 1
        while draw.random() > 1 / template.turns and turns < 12:
            turns += 1
        name = next(self._names)
        layout = self._on("layout", moment)
        timed = layout is not None and layout.template == template.name
        version = f"v{self._world.version(template.name, moment)}"
        session = Session(
            name=name,
            template=template,
            version=f"{version}-timed" if timed else version,
            tenant=draw.choices(TENANTS, cum_weights=_TENANT_WEIGHTS)[0],
            scope=f"session-{name}" if self._on("isolation", moment) else None,
            turns=turns,
            replica=name % REPLICAS,
        )
        self._begin(session, timed)
        return session

    def _begin(self, session: Session, timed: bool) -> None:
        """The part of the prompt before the conversation."""
        template = session.template
        tokens = template.head_tokens + TIME_IN_FRONT_TOKENS * timed
        if timed or session.scope is not None:
            # Nobody else's blocks: of this session alone.
            session.tokens = tokens + template.document_tokens
            return
        key: tuple[object, ...] = (template.name, session.version)
        chain = self._head(key, [], tokens)
        if template.document_tokens:
            document = int(template.documents * self._draw.random() ** 2)
            tokens += template.document_tokens
            chain = self._head((*key, session.tenant, document), chain, tokens)
        session.tokens, session.chain = tokens, chain.copy()

    def _head(self, key: tuple[object, ...], before: list[int], tokens: int) -> list[int]:
        if key not in self._heads:
            self._heads[key] = self._extended(before.copy(), tokens)
        return self._heads[key]

    def _extended(self, chain: list[int], tokens: int) -> list[int]:
        chain.extend(islice(self._next_block, max(0, tokens // BLOCK_TOKENS - len(chain))))
        return chain

    # ------------------------------------------------------------------ requests

    def _ask(self, session: Session, moment: float) -> Served:
        draw, template = self._draw, session.template
        session.tokens += self._length(template.user_tokens)
        prompt = session.tokens
        if session.version.endswith("-timed"):
            session.chain = []  # the time has changed: so has every block behind it
        self._extended(session.chain, prompt)
        output = self._length(template.output_tokens)
        session.tokens += output
        self._extended(session.chain, session.tokens - 1)
        spread = self._on("routing", moment) is not None
        replica = self._replicas[draw.randrange(REPLICAS) if spread else session.replica]
        served = self._serve(replica, session, moment, prompt, output)
        if session.turn < session.turns and session.tokens < LONGEST_TOKENS:
            session.turn += 1
            think = 1 + draw.expovariate(1 / template.think_seconds)
            ended = moment + served.ttft_seconds + output / DECODE_TOKENS_PER_SECOND
            heappush(self._events, (ended + think, next(self._order), session))
        return served

    def _serve(
        self, replica: Replica, session: Session, moment: float, prompt: int, output: int
    ) -> Served:
        broken = self._on("reuse_stopped", moment) is not None
        start = max(moment, replica.ready)
        replica.release(start)
        chain = session.chain if not broken else self._extended([], prompt + output - 1)
        while (lease := self._lease(replica, chain, prompt, output)) is None:
            start = replica.running[0][0]
            replica.release(start)
        replica.pool.end_prefill(lease)
        cached = lease.hit_blocks * BLOCK_TOKENS
        seconds = 0.03 + (prompt - cached) / PREFILL_TOKENS_PER_SECOND
        seconds *= self._draw.lognormvariate(0, 0.07)
        replica.ready = start + seconds
        slower = 1 + 0.08 * len(replica.running)
        ended = replica.ready + output / DECODE_TOKENS_PER_SECOND * slower
        heappush(replica.running, (ended, next(self._order), lease))
        replica.prompt_tokens += prompt
        replica.cached_tokens += cached
        replica.finished += 1
        return Served(
            moment, session.name, session.turn, session.template.name, session.template.route,
            session.version, session.tenant, session.scope, replica.name, replica.fingerprint,
            prompt, cached, output, start - moment, replica.ready - moment,
        )  # fmt: skip

    @staticmethod
    def _lease(replica: Replica, chain: list[int], prompt: int, output: int) -> Lease | None:
        return replica.pool.start(
            tuple(chain),
            prompt_blocks=prompt // BLOCK_TOKENS,
            reusable=reusable_blocks(prompt, BLOCK_TOKENS),
            total_blocks=-(-(prompt + output) // BLOCK_TOKENS),
        )

    def _length(self, mean: int) -> int:
        return max(1, int(mean * (0.3 + min(self._draw.expovariate(1 / 0.7), 2.7))))

    def _samples(self, moment: float) -> Iterator[Sample]:
        for replica in self._replicas:
            replica.release(moment)
            yield Sample(
                moment, replica.name, replica.prompt_tokens, replica.cached_tokens,
                replica.finished, len(replica.running), int(replica.ready > moment),
                replica.pool.running_blocks / replica.pool.capacity_blocks,
                replica.pool.capacity_blocks, replica.restarted,
            )  # fmt: skip
            replica.prompt_tokens = replica.cached_tokens = replica.finished = 0
            replica.restarted = False
