"""Does it hurt: TTFT, prefill load and the queue, each with what it is compared with."""

from dataclasses import dataclass
from datetime import UTC, datetime

from dashboard.answers import Answers
from dashboard.figures.latency import quantile
from dashboard.figures.rows import Row, Rows, at_point, number, points_of
from dashboard.filters import Window
from dashboard.headline import Headline
from dashboard.sources import came_from
from dashboard.words import point_name


@dataclass(frozen=True)
class Ttft:
    """Quantiles over all outcomes of one TTFT point, and where they come from."""

    p50_seconds: float | None
    p95_seconds: float | None
    p50_before_seconds: float | None
    p95_before_seconds: float | None
    measured: str


def ttft(answers: Answers) -> Ttft:
    """TTFT of the point with most requests; the engines' histogram where no row has one."""
    rows = answers.rows("ttft_distribution")
    points = points_of(rows)
    if not points:
        return _engine_ttft(answers)
    point = points[0]
    now, before = at_point(rows, point), at_point(answers.rows_before("ttft_distribution"), point)
    others = f" Other points, not mixed in: {len(points) - 1}." if len(points) > 1 else ""
    return Ttft(
        quantile(now, 0.5),
        quantile(now, 0.95),
        quantile(before, 0.5),
        quantile(before, 0.95),
        f"All outcomes, measured at the {point_name(point)}, from buckets 8 % wide.{others} "
        f"{came_from(answers, 'log')}",
    )


def _engine_ttft(answers: Answers) -> Ttft:
    now, before = answers.first("engine_ttft"), answers.first_before("engine_ttft")
    return Ttft(
        number(now, "p50_seconds"),
        number(now, "p95_seconds"),
        number(before, "p50_seconds"),
        number(before, "p95_seconds"),
        "From the engines' own histograms, interpolated: hits and misses cannot be told apart. "
        f"{came_from(answers, 'engine')}",
    )


@dataclass(frozen=True)
class Load:
    """Mean computed tokens a second over the window, and before."""

    computed: float | None
    computed_before: float | None


def load(answers: Answers, lead: Headline) -> Load:
    """Means on the headline's own basis, over the part of each window the store knows."""
    now = _seconds(answers, answers.window, lead)
    before = None if answers.before is None else _seconds(answers, answers.before, lead)
    return Load(
        _per_second(lead.row, now),
        _per_second(lead.before, before),
    )


def _seconds(answers: Answers, window: Window, lead: Headline) -> float:
    """Length of the part of a window in which the store already had data."""
    first = answers.state.get("engine_first_ts" if lead.basis == "engine" else "first_ts")
    since = window.since
    if isinstance(first, datetime):
        since = max(since, first.replace(tzinfo=UTC))
    return (window.until - since).total_seconds()


def _per_second(row: Row, seconds: float | None) -> float | None:
    tokens = number(row, "computed_tokens")
    if tokens is None or not seconds or seconds <= 0:
        return None
    return tokens / seconds


def waiting(replicas: Rows) -> int | None:
    """Requests waiting now over all replicas that tell; None if none does."""
    known = [number(row, "waiting_requests") for row in replicas]
    told = [value for value in known if value is not None]
    return int(sum(told)) if told else None
