"""What the one chart shows: six hours of the ratio over its expected band, the load, the marks.

Only numbers and words, so that a page, a terminal and a dashboard can each draw it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from queries.on_call.expected import Expected
from queries.on_call.words import (
    UNKNOWN,
    Quoted,
    Row,
    Rows,
    band,
    clock,
    moment,
    number,
    percent,
    whole,
)

LENGTH = timedelta(hours=6)
STEP_SECONDS = 300
MOST_MARKS = 12


@dataclass(frozen=True)
class Mark:
    """Something that happened: `letter` names it in the chart, `words` beside it."""

    letter: str
    at: datetime
    words: str


@dataclass(frozen=True)
class Chart:
    """Steps without traffic are None: a gap, neither 0 nor a straight line."""

    since: datetime
    until: datetime
    zone: ZoneInfo
    times: tuple[datetime, ...]
    ratios: tuple[float | None, ...]
    loads: tuple[float | None, ...]
    load_name: str
    bands: tuple[Expected, ...]
    marks: tuple[Mark, ...]

    @property
    def words(self) -> str:
        """The chart for those who cannot see it."""
        known = [(at, ratio) for at, ratio in zip(self.times, self.ratios, strict=True)
                 if ratio is not None]  # fmt: skip
        if not known:
            return "No hit ratio in these six hours."
        low, high = min(known, key=lambda point: point[1]), max(known, key=lambda point: point[1])
        ends = [clock(at, self.zone, self.until) for at in (low[0], high[0])]
        usual = band(self.bands[-1].low, self.bands[-1].high) if self.bands else UNKNOWN
        peak = max((load for load in self.loads if load is not None), default=None)
        return (
            f"Hit ratio over six hours: lowest {percent(low[1])} at {ends[0]}, highest "
            f"{percent(high[1])} at {ends[1]}; expected in the last hour {usual}. Highest load "
            f"{whole(peak)} {self.load_name}."
        )


def chart(
    ends: tuple[datetime, datetime], zone: ZoneInfo, ratio: Rows, load: Rows,
    expected: Sequence[Expected], marks: Sequence[Mark],
) -> Chart:  # fmt: skip
    """Lay both series on one row of steps, from the first whole one on."""
    by_time = [
        {moment(row["ts"]): number(row, column) for row in rows}
        for rows, column in ((ratio, "token_hit_ratio"), (load, "prompt_tokens_per_second"))
    ]
    step = timedelta(seconds=STEP_SECONDS)
    times, at = [], _step_start(ends[0] + step - timedelta(microseconds=1))
    while at < ends[1]:
        times.append(at)
        at += step
    engine = any(row["basis"] == "engine" for row in load)
    return Chart(
        *ends, zone, tuple(times),
        tuple(by_time[0].get(at) for at in times), tuple(by_time[1].get(at) for at in times),
        f"prompt tokens/s{' by engine counters' if engine else ''}",
        tuple(expected), tuple(marks),
    )  # fmt: skip


def _step_start(instant: datetime) -> datetime:
    """Steps lie on whole multiples of their length since 1970, as the questions lay them."""
    whole_seconds = int(instant.timestamp()) // STEP_SECONDS * STEP_SECONDS
    return datetime.fromtimestamp(whole_seconds, instant.tzinfo)


def marks(
    resets: Rows, versions: Rows, alerts: Rows, ends: tuple[datetime, datetime], quoted: Quoted
) -> tuple[Mark, ...]:
    """Resets, version changes and alerts within the chart, oldest first; the newest MOST_MARKS."""
    told = [(moment(row["ts"]), _reset(row, quoted)) for row in resets]
    told += [(moment(row["ts"]), _version(row, quoted)) for row in versions]
    told += [
        (moment(row["since"]), f"alert {quoted(row['alert'])}")
        for row in alerts
        if row["since"] is not None and row["state"] == "firing"
    ]
    # A reset is told once for every tier.
    seen = sorted({(at, words) for at, words in told if ends[0] <= at < ends[1]})[-MOST_MARKS:]
    return tuple(Mark("ABCDEFGHIJKL"[i], at, words) for i, (at, words) in enumerate(seen))


def _reset(row: Row, quoted: Quoted) -> str:
    return f"reset of {quoted(row['replica'])} ({quoted(row['reason'])})"


def _version(row: Row, quoted: Quoted) -> str:
    kind = {"template": "template", "model": "model", "engine": "engine of"}[str(row["kind"])]
    return (
        f"{kind} {quoted(row['subject'])}: {quoted(row['version_before'])} → "
        f"{quoted(row['version'])}"
    )
