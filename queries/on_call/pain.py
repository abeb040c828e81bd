"""Does it hurt: first-token time, prefill and the queue, each with what it is compared with."""

from dataclasses import dataclass
from zoneinfo import ZoneInfo

from queries.on_call.strip import of_engines
from queries.on_call.words import (
    Row,
    Rows,
    moment,
    number,
    percent,
    seconds,
    weekday_clock,
    whole,
)
from replay.counted import counted

# As in `hurts` of peak_drop.
SLOW_RATIO = 1.25
BUSY_RATIO = 0.9

_POINTS = {
    "client": "at the client",
    "gateway": "at the gateway",
    "engine_arrival": "at the engine, from arrival",
    "engine_scheduled": "at the engine, without its queue",
    "histogram": "by the engines' histograms",
}


@dataclass(frozen=True)
class Measure:
    """One figure in words. `bad`: it stands out for the worse, as `trouble` names it; None =
    cannot be told."""

    name: str
    value: str
    against: str
    bad: bool | None
    trouble: str = ""


@dataclass(frozen=True)
class Pain:
    """The figures and what they come to. `hurts` None = neither can be compared. `dropped`: there
    is a drop it could come from."""

    hurts: bool | None
    dropped: bool
    measures: tuple[Measure, ...]

    @property
    def words(self) -> str:
        """The answer in a line."""
        if self.hurts is None:
            return "Not known whether it hurts"
        trouble = " and ".join(measure.trouble for measure in self.measures if measure.bad)
        if self.hurts and not trouble:
            return "It hurts, by the judgement of the drop"
        if not self.hurts:
            return "It does not hurt: first tokens and prefill as usual"
        if self.dropped:
            return f"It hurts: {trouble}"
        return f"{trouble.capitalize()}, not because of a drop"


def pain(
    row: Row, replicas: Rows, zone: ZoneInfo, *, dropped: bool, judged: bool | None = None
) -> Pain:
    """From the row of `pain` and the rows of `replicas`. Of a drop `judged` says whether it hurts,
    as `peak_drop` found, so that the verdict and this line never differ."""
    slow, busy = _ttft(row), _computed(row, zone)
    told = [measure.bad for measure in (slow, busy) if measure.bad is not None]
    own = any(told) if told else None
    return Pain(
        judged if dropped and judged is not None else own, dropped, (slow, busy, _waiting(replicas))
    )


def _ttft(row: Row) -> Measure:
    now, usual = number(row, "ttft_p90_seconds"), number(row, "usual_ttft_p90_seconds")
    if now is None:
        return Measure("TTFT p90", "unknown", "no row and no engine measures it", None)
    where = _POINTS.get(str(row["ttft_point"]), "at an unknown point")
    if not usual:
        return Measure("TTFT p90", seconds(now), f"{where}; no earlier week to compare with", None)
    weeks = row["ttft_weeks"]
    return Measure(
        "TTFT p90", seconds(now),
        f"{now / usual - 1:+.0%} of the usual {seconds(usual)} in these hours"
        f" ({counted(weeks, 'week')}), {where}".replace("%", " %"),
        now > SLOW_RATIO * usual, "slow first tokens",
    )  # fmt: skip


def _computed(row: Row, zone: ZoneInfo) -> Measure:
    now, peak = (number(row, f"{which}computed_tokens_per_second") for which in ("", "peak_"))
    if now is None:
        return Measure("computed tokens/s", "unknown", "nothing counts cached tokens", None)
    if not peak:
        return Measure("computed tokens/s", whole(now), "no earlier hour to compare with", None)
    at = moment(row["peak_hour"])
    return Measure(
        "computed tokens/s", whole(now),
        f"{percent(now / peak)} of its highest hour in four weeks, {whole(peak)} "
        f"({weekday_clock(at, zone)}, {at.astimezone(zone):%d %b})",
        now > BUSY_RATIO * peak, "prefill near its highest",
    )  # fmt: skip


def _waiting(replicas: Rows) -> Measure:
    told = [number(row, "waiting_requests") for row in of_engines(replicas)]
    known = [value for value in told if value is not None]
    if not known:
        return Measure("waiting requests", "unknown", "no engine tells its queue", None)
    return Measure("waiting requests", whole(sum(known)), _over(len(known), len(told)), None)


def _over(known: int, replicas: int) -> str:
    if known == replicas:
        return f"over {counted(known, 'replica')}"
    return f"over {known} of {counted(replicas, 'replica')}"
