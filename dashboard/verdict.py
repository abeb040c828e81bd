"""The first line of the on-call page: what a colleague would say, in at most four clauses."""

from dataclasses import dataclass

from dashboard.figures.numbers import percent, points, relative, seconds, signed_percent
from dashboard.figures.rows import Rows, number
from dashboard.figures.safe import code_span

RATIO_NOISE = 0.005  # half a point: below it a ratio counts as unchanged
TTFT_NOISE = 0.10  # buckets are 8 % wide
LOAD_NOISE = 0.25
LOW_COVERAGE = 0.9


@dataclass(frozen=True)
class Facts:
    """What the line is made of. None = not known; names are already safe for Markdown."""

    label: str
    ratio: float | None
    ratio_before: float | None
    before_words: str
    where: str = ""
    coverage: float | None = None
    p50_seconds: float | None = None
    p50_before_seconds: float | None = None
    p95_seconds: float | None = None
    p95_before_seconds: float | None = None
    load: float | None = None
    load_before: float | None = None
    outliers: tuple[str, ...] = ()
    down: tuple[str, ...] = ()


def verdict(facts: Facts) -> str:
    """One line of Markdown. Without a ratio it says so and goes on with what is known."""
    parts = [_ratio(facts), _ttft(facts), _load(facts), _replicas(facts), _coverage(facts)]
    return "; ".join(part for part in parts if part) + "."


def where_words(by: str, movers: Rows, noise: float = RATIO_NOISE) -> str:
    """Which value of a dimension computes most beyond before, when one clearly leads.

    One clearly leads when it has more than half of all extra computed tokens.
    """
    extra = {row[by]: number(row, "extra_computed_tokens") or 0.0 for row in movers}
    worse = sum(value for value in extra.values() if value > 0)
    value = max(extra, key=lambda name: extra[name], default=None)
    if value is None or worse <= 0 or extra[value] <= worse / 2:
        return ""
    change = next(number(row, "change_ratio") for row in movers if row[by] == value)
    if change is None or change > -noise:
        return ""
    return f"mostly {by} {code_span(value)} ({points(change)})"


def _ratio(facts: Facts) -> str:
    if facts.ratio is None:
        return "No token hit ratio in this window"
    said = f"{facts.label} {percent(facts.ratio)}"
    if not facts.before_words:
        return said
    if facts.ratio_before is None:
        return f"{said} (nothing to compare with in {facts.before_words})"
    change = facts.ratio - facts.ratio_before
    if abs(change) < RATIO_NOISE:
        return f"{said}, as in {facts.before_words}"
    direction = "above" if change > 0 else "below"
    where = f", {facts.where}" if facts.where else ""
    return f"{said}, {abs(change) * 100:.1f} points {direction} {facts.before_words}{where}"


def _ttft(facts: Facts) -> str:
    """The slow end first: p95 if it moved, else the median if that did."""
    if facts.p95_seconds is None:
        return "TTFT not known"
    slow = relative(facts.p95_seconds, facts.p95_before_seconds)
    middle = relative(facts.p50_seconds, facts.p50_before_seconds)
    if slow is None:
        return f"TTFT p95 {seconds(facts.p95_seconds)}"
    if abs(slow) >= TTFT_NOISE:
        return f"TTFT p95 {seconds(facts.p95_seconds)}, {_moved(slow)}"
    if middle is not None and abs(middle) >= TTFT_NOISE:
        return f"TTFT p50 {seconds(facts.p50_seconds)}, {_moved(middle)} (p95 unchanged)"
    return f"TTFT unchanged (p95 {seconds(facts.p95_seconds)})"


def _moved(change: float) -> str:
    return f"{'up' if change > 0 else 'down'} {signed_percent(abs(change)).lstrip('+')}"


def _load(facts: Facts) -> str:
    change = relative(facts.load, facts.load_before)
    if change is None or abs(change) < LOAD_NOISE:
        return ""
    return f"prompt load {_moved(change)}"


def _replicas(facts: Facts) -> str:
    parts = []
    if facts.down:
        parts.append(f"{_named(facts.down)} {'does' if len(facts.down) == 1 else 'do'} not answer")
    if len(facts.outliers) == 1:
        parts.append(f"replica {facts.outliers[0]} is the outlier")
    elif facts.outliers:
        parts.append(f"outliers: {_named(facts.outliers)}")
    return "; ".join(parts)


def _named(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def _coverage(facts: Facts) -> str:
    if facts.coverage is None or facts.coverage >= LOW_COVERAGE:
        return ""
    return f"only {percent(facts.coverage)} of the prompt tokens report a cached count"
