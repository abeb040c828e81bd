"""Stores with one night each: Sunday 29 November 2026, 03:05 UTC, and the same nights before.

Six hours from 21:05 on with 30 requests of 1,000 prompt tokens in five minutes (360,000 tokens an
hour) and two replicas' samples, and the same in each of the four weeks before. What a scene adds
is said by its function.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from queries import registry
from queries.on_call.words import Rows
from tests import empty_store

CLOCK = datetime(2026, 11, 29, 3, 5, tzinfo=UTC)
SINCE = CLOCK - timedelta(hours=6)
STEPS, STEP = 72, timedelta(minutes=5)
RATIO = 0.72
BEGAN = datetime(2026, 11, 29, 2, 20, tzinfo=UTC)
Row = dict[str, object]


class Night:
    """The tables of a store, filled by step and asked."""

    def __init__(self) -> None:
        self.connection = empty_store.in_memory()

    def ask(self, name: str, params: Mapping[str, object]) -> Rows:
        """All but the alerts, which cost more than everything else together."""
        return [] if name == "alerts" else self.ask_all(name, params)

    def ask_all(self, name: str, params: Mapping[str, object]) -> Rows:
        return registry.rows(registry.run(self.connection.cursor(), name, params))

    def requests(
        self,
        begin: datetime,
        ratio: float,
        *,
        steps: int = 1,
        each_step: int = 30,
        **columns: object,
    ) -> None:
        """Requests of 1,000 prompt tokens, spread evenly from `begin` on."""
        row: Row = {
            "source": "gateway", "source_format": "ndjson", "attempt": 1, "status": "ok",
            "outcome": "partial", "prompt_basis": "inclusive", "batch": 1, "model": "llama",
            "replica": "a", "template": "checkout", "template_version": "v7", "route": "shop",
            "ttft_seconds": 0.4, "ttft_point": "gateway", "prompt_tokens": 1_000,
            "cached_tokens": round(1_000 * ratio), **columns,
        }  # fmt: skip
        names, marks = ", ".join(row), ", ".join("?" for _ in row)
        count = steps * each_step
        gap = steps * STEP.total_seconds() / count
        self.connection.execute(
            f"INSERT INTO requests (ts, arrived, position, {names}) "
            f"SELECT ?::TIMESTAMP + to_seconds((i + 0.5) * {gap}) AS moment, moment, i, {marks} "
            f"FROM range({count}) AS r (i)",
            [_naive(begin), *row.values()],
        )

    def pages(self, begin: datetime, kv_usage: float, *, steps: int = 1, **columns: object) -> None:
        """A sample of each replica for each step from `begin` on."""
        row: Row = {
            "engine": "vllm", "role": "unified", "model": "llama", "reset": False, "gap": False,
            "version": "0.32.0", "kv_usage_ratio": kv_usage, "kv_capacity_tokens": 100_000,
            "running_requests": 4, "waiting_requests": 1, "prompt_tokens": 15_000,
            "cached_tokens": round(15_000 * RATIO), **columns,
        }  # fmt: skip
        names, marks = ", ".join(row), ", ".join("?" for _ in row)
        self.connection.execute(
            f"INSERT INTO engine_samples (target, replica, since, ts, {names}) "
            f"SELECT r, r, ?::TIMESTAMP + to_seconds(300 * i), "
            f"?::TIMESTAMP + to_seconds(300 * (i + 1)), {marks} "
            f"FROM range({steps}) AS s (i), (VALUES ('a'), ('b')) AS v (r)",
            [_naive(begin), _naive(begin), *row.values()],
        )

    def targets(self, **columns: object) -> None:
        """Both answer, unless `columns` (of replica b) say otherwise."""
        for name in ("a", "b"):
            row: Row = {"target": name, "engine": "vllm", "up": True, "frozen": False,
                        **(columns if name == "b" else {})}  # fmt: skip
            self.connection.execute(
                f"INSERT INTO targets ({', '.join(row)}) VALUES ({', '.join('?' for _ in row)})",
                list(row.values()),
            )

    def fold(self) -> None:
        """The roll-up by the hour, as the store keeps it."""
        self.connection.execute(
            "INSERT INTO hour_rollup (hour, model, route, template, tenant, requests, "
            "prompt_tokens, reported_prompt_tokens, cached_tokens) "
            "SELECT date_trunc('hour', ts), model, route, template, tenant, count(*), "
            "sum(prompt_tokens), sum(prompt_tokens) FILTER (cached_tokens IS NOT NULL), "
            "sum(cached_tokens) FROM requests GROUP BY ALL"
        )


def _naive(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None)


def _jitter(week: int, step: int) -> float:
    """A little unrest, the same in every run: at most two points either way."""
    return 0.01 * ((week * 7 + step // 12 * 3) % 5 - 2)


def usual(night: Night, weeks: int = 4, kv_usage: float = 0.4) -> None:
    """The nights before."""
    for week in range(1, weeks + 1):
        begin = SINCE - timedelta(weeks=week)
        for hour in range(6):
            at = begin + timedelta(hours=hour)
            night.requests(at, RATIO + _jitter(week, 12 * hour), steps=12)
        night.pages(begin, kv_usage, steps=STEPS)


def tonight(night: Night, until: datetime = CLOCK, ratio_then: float = RATIO) -> None:
    """Requests as usual from 21:05 until then, and pages for all six hours."""
    steps = (until - SINCE) // STEP
    night.requests(SINCE, RATIO, steps=steps)
    night.pages(SINCE, 0.4, steps=steps)
    night.pages(until, 0.4, steps=STEPS - steps, cached_tokens=round(15_000 * ratio_then))
    night.targets()


def healthy() -> Night:
    """As every Sunday."""
    night = Night()
    usual(night)
    tonight(night)
    night.fold()
    return night


def template() -> Night:
    """Half of the traffic is template search. At 02:20 checkout comes as v8 and keeps a fifth, and
    TTFT rises to three times."""
    night = Night()
    usual(night)
    tonight(night, BEGAN, 0.45)
    night.connection.execute(
        "UPDATE requests SET template = 'search', template_version = 's3' WHERE position % 2 = 0"
    )
    slow = 1.2
    night.requests(BEGAN, 0.15, steps=9, each_step=15, template_version="v8", ttft_seconds=slow)
    night.requests(
        BEGAN, 0.60, steps=9, each_step=15, template="search", template_version="s3",
        ttft_seconds=slow,
    )  # fmt: skip
    night.fold()
    return night


def pressure() -> Night:
    """Half of the earlier nights' hours were at 90 % KV usage and a ratio of 0.52, and so is this
    one, which usually is a quiet one."""
    night = Night()
    usual(night)
    for week in range(1, 5):
        busy = SINCE - timedelta(weeks=week) + timedelta(hours=30)
        night.requests(busy, 0.52, steps=STEPS)
        night.pages(busy, 0.9, steps=STEPS)
    night.requests(SINCE, RATIO, steps=60)
    night.requests(CLOCK - timedelta(hours=1), 0.52, steps=12)
    night.pages(SINCE, 0.4, steps=60)
    night.pages(CLOCK - timedelta(hours=1), 0.91, steps=12)
    night.targets()
    night.fold()
    return night


def no_cause() -> Night:
    """From 02:00 on every prompt keeps two thirds of what it kept, and nothing says why."""
    night = Night()
    usual(night)
    tonight(night, CLOCK - timedelta(minutes=65), 0.47)
    night.requests(CLOCK - timedelta(minutes=65), 0.47, steps=13)
    night.fold()
    return night


def telemetry() -> Night:
    """From 02:05 on two of three rows come without a cached count; replica b does not answer."""
    night = Night()
    usual(night)
    night.requests(SINCE, RATIO, steps=60)
    last = CLOCK - timedelta(hours=1)
    night.requests(last, RATIO, steps=12, each_step=10)
    night.requests(last, 0, steps=12, each_step=20, cached_tokens=None, outcome="unknown")
    night.pages(SINCE, 0.4, steps=STEPS)
    night.targets(up=False, error="timed out")
    night.fold()
    return night


def engine_only() -> Night:
    """No log at all."""
    night = Night()
    for week in range(5):
        night.pages(SINCE - timedelta(weeks=week), 0.4, steps=STEPS)
    night.targets()
    return night


SCENES: dict[str, Callable[[], Night]] = {
    "healthy": healthy, "template": template, "pressure": pressure, "no-cause": no_cause,
    "telemetry": telemetry, "no-data": Night, "engine-only": engine_only,
}  # fmt: skip
