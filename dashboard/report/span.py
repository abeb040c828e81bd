"""Which data there is of the week, on which basis its ratio stands, and its hours and weeks."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from dashboard.figures.numbers import percent, points, whole
from dashboard.figures.rows import Row, Rows, count, number, reported_cached
from dashboard.report.asking import Asking, utc
from dashboard.report.detail_values import HourCell
from dashboard.report.week import Basis, DataState, Headline
from dashboard.report.weeks import Slot, Week, a_week_earlier
from replay.counted import counted

WEEKS = 13
_HOUR = timedelta(hours=1)
_QUESTION = {"log": "hit_ratio", "engine": "engine_hit_ratio", "none": "hit_ratio"}


@dataclass
class Sums:
    """Tokens of an hour or a week; ratios are sum / sum."""

    requests: int = 0
    prompt_tokens: int = 0
    ineligible_tokens: int = 0
    reported_tokens: int = 0
    cached_tokens: int = 0
    rows: int = 0

    def add(self, row: Row) -> None:
        self.rows += 1
        self.requests += count(row, "requests") or 0
        self.prompt_tokens += count(row, "prompt_tokens") or 0
        self.ineligible_tokens += count(row, "ineligible_prompt_tokens") or 0
        self.reported_tokens += count(row, "reported_prompt_tokens") or 0
        self.cached_tokens += int(reported_cached(row) or 0)

    @property
    def ratio(self) -> float | None:
        return self.cached_tokens / self.reported_tokens if self.reported_tokens > 0 else None

    @property
    def coverage(self) -> float | None:
        eligible = self.prompt_tokens - self.ineligible_tokens
        return self.reported_tokens / eligible if eligible > 0 else None


@dataclass
class Course:
    """The 13 weeks on the headline's basis, hour by hour."""

    basis: Basis
    weeks: tuple[Week, ...]
    by_week: dict[str, Sums] = field(default_factory=dict)
    by_slot: dict[tuple[str, Slot], Sums] = field(default_factory=dict)
    by_model: dict[tuple[str, Slot, str], Sums] = field(default_factory=dict)
    slot_since: dict[Slot, datetime] = field(default_factory=dict)  # of the report's week

    def week(self, week: Week) -> Sums:
        return self.by_week.get(week.name, Sums())

    def slot(self, week: Week, slot: Slot) -> Sums | None:
        return self.by_slot.get((week.name, slot))


def basis_of(ask: Asking) -> Basis:
    """The log leads where it reports, else the engines' counters; they are never blended."""
    if number(ask.first("hit_ratio"), "token_hit_ratio") is not None:
        return "log"
    if number(ask.first("engine_hit_ratio"), "token_hit_ratio") is not None:
        return "engine"
    return "none"


def data_state(ask: Asking, basis: Basis, course: Course) -> DataState:
    """What the store has of the week, and why that may not be the whole week."""
    state, week = ask.first("store_state"), ask.week
    first, last = reach(state, basis)
    hot_since = utc(state.get("hot_since"))
    return DataState(
        level=count(state, "level"),
        demo=bool(state.get("demo")),
        data_from=first,
        data_until=last_data(state),
        partial=_partial(week, first, last),
        hours_with_traffic=sum(
            bool((sums := course.slot(week, slot)) and sums.prompt_tokens) for slot in week.slots()
        ),
        hours=week.hours,
        rolled_up=hot_since is not None and hot_since > week.since,
    )


def last_data(state: Row) -> datetime | None:
    """Time of the latest fact of any kind; None of an empty store."""
    names = ("last_ts", "engine_last_ts", "events_last_ts")
    known = [moment for name in names if (moment := utc(state.get(name)))]
    return max(known, default=None)


def first_data(state: Row) -> datetime | None:
    """Time of the earliest request or sample; None of an empty store, or one of events alone."""
    known = [moment for name in ("first_ts", "engine_first_ts") if (moment := utc(state.get(name)))]
    return min(known, default=None)


def reach(state: Row, basis: Basis) -> tuple[datetime | None, datetime | None]:
    """First and last moment of which the basis tells; of none, of anything."""
    log = utc(state.get("first_ts")), utc(state.get("last_ts"))
    engine = utc(state.get("engine_first_ts")), utc(state.get("engine_last_ts"))
    if basis != "none":
        return log if basis == "log" else engine
    begins = [moment for moment in (log[0], engine[0]) if moment]
    ends = [moment for moment in (log[1], engine[1]) if moment]
    return min(begins, default=None), max(ends, default=None)


def _partial(week: Week, first: datetime | None, last: datetime | None) -> str:
    """Why the week is not whole; an hour at either end says nothing."""
    if first is None or last is None:
        return "the store has no data"
    if first >= week.until or last < week.since:
        return f"the store has data from {shown(week, first)} until {shown(week, last)} only"
    parts = []
    if first > week.since + _HOUR:
        parts.append(f"data begins {shown(week, first)}")
    if last < week.until - _HOUR:
        parts.append(f"data ends {shown(week, last)}")
    return " and ".join(parts)


def shown(week: Week, moment: datetime) -> str:
    """A moment by the week's clocks: "Mon 2026-11-23 00:00"."""
    return f"{week.local(moment):%a %Y-%m-%d %H:%M}"


def is_whole(week: Week, state: Row, basis: Basis) -> bool:
    """Does the data reach over the whole week?"""
    return not _partial(week, *reach(state, basis))


def headline(ask: Asking, basis: Basis) -> Headline:
    """The ratio with what it is made of, and the week before on the same basis."""
    week, row = ask.week, ask.first(_QUESTION[basis])
    since, until = compared(ask, basis)
    before = {} if basis == "none" else ask.first(_QUESTION[basis], since=since, until=until)
    is_log = basis != "engine"
    made = Headline(
        basis=basis,
        token_hit_ratio=number(row, "token_hit_ratio"),
        token_hit_ratio_before=number(before, "token_hit_ratio"),
        coverage_ratio=number(row, "coverage_ratio") if is_log else None,
        coverage_ratio_before=number(before, "coverage_ratio") if is_log else None,
        requests=count(row, "requests") if is_log else None,
        prompt_tokens=count(row, "prompt_tokens"),
        reported_prompt_tokens=count(row, "reported_prompt_tokens"),
        cached_tokens=_cached(row),
        computed_tokens=count(row, "computed_tokens"),
        ineligible_prompt_tokens=count(row, "ineligible_prompt_tokens") or 0,
        compared_since=since,
        compared_until=until,
        sentence="",
    )
    whole_week = until == week.since
    return replace(made, sentence=_sentence(made, week, whole_week))


def compared(ask: Asking, basis: Basis) -> tuple[datetime, datetime]:
    """The week before; where this one is not over, its part up to the same time of the week."""
    week, before = ask.week, ask.week.back(1)
    _, last = reach(ask.first("store_state"), basis)
    if last is None or not week.since < last < week.until - _HOUR:
        return before.since, before.until
    return before.since, min(a_week_earlier(last, week.zone), before.until)


def _cached(row: Row) -> int | None:
    cached = reported_cached(row)
    return None if cached is None or number(row, "token_hit_ratio") is None else int(cached)


def _sentence(made: Headline, week: Week, whole_week: bool) -> str:
    """The ratio, its change and its coverage in one sentence."""
    if made.token_hit_ratio is None:
        return _no_ratio(made, week)
    label = "Token hit ratio" if made.basis == "log" else "Token hit ratio by engine counters"
    sums = f"{whole(made.cached_tokens)} of {whole(made.reported_prompt_tokens)} prompt tokens"
    said = f"{label} {percent(made.token_hit_ratio)} in {week.name} ({sums} from cache)"
    earlier = "the week before" if whole_week else "the same part of the week before"
    if made.change_ratio is None:
        said += f", nothing to compare with in {earlier}"
    elif abs(made.change_ratio) < 0.0005:
        said += f", as in {earlier}"
    else:
        said += (
            f", {points(made.change_ratio)} against {earlier} "
            f"({percent(made.token_hit_ratio_before)})"
        )
    if made.basis == "log":
        said += f"; {percent(made.coverage_ratio)} of the eligible prompt tokens say so (coverage)"
    return f"{said}."


def _no_ratio(made: Headline, week: Week) -> str:
    if made.requests:
        return (
            f"No token hit ratio in {week.name}: {counted(made.requests, 'request')} with "
            f"{whole(made.prompt_tokens)} prompt tokens, and none says what came from cache."
        )
    return f"No token hit ratio in {week.name}: no traffic is known."


def course(ask: Asking, basis: Basis) -> Course:
    """Sums of the 13 weeks by week and hour, from one answer in steps of an hour or less."""
    week = ask.week
    weeks = tuple(week.back(n) for n in range(WEEKS - 1, -1, -1))
    made = Course(basis, weeks)
    for slot_start in _starts(week):
        made.slot_since.setdefault(week.slot(slot_start), slot_start)
    name = "engine_hit_ratio_over_time" if basis == "engine" else "hit_ratio_over_time"
    window = {"since": weeks[0].since, "until": week.until}
    rows = ask.rows(name, by="model", step_seconds=step_seconds(weeks), **window)
    begins = [each.since for each in weeks]
    for row in rows:
        moment = utc(row["ts"])
        if moment is None or moment >= week.until:
            continue
        # An hour of a roll-up that began before the border is of the week it began in.
        of = weeks[max(bisect_right(begins, moment) - 1, 0)]
        made.by_week.setdefault(of.name, Sums()).add(row)
        slot = of.slot(moment)
        made.by_slot.setdefault((of.name, slot), Sums()).add(row)
        made.by_model.setdefault((of.name, slot, str(row["model"])), Sums()).add(row)
    return made


def step_seconds(weeks: Iterable[Week]) -> int:
    """An hour, or less where the zone's clocks do not strike with those of UTC."""
    borders = [int(week.since.timestamp()) for week in weeks]
    return next(step for step in (3600, 1800, 900, 60) if all(b % step == 0 for b in borders))


def _starts(week: Week) -> Iterable[datetime]:
    moment = week.since
    while moment < week.until:
        yield moment
        moment += timedelta(minutes=15)


def last_busy(made: Course, week: Week) -> datetime:
    """The end of the week's last hour with traffic; of the week itself where it has none."""
    ends = [
        made.slot_since[slot] + _HOUR
        for slot in week.slots()
        if (sums := made.slot(week, slot)) and sums.prompt_tokens
    ]
    return max(ends, default=week.until)


def cells(
    ask: Asking, made: Course, drops: Iterable[datetime], load: Mapping[Slot, Row]
) -> tuple[HourCell, ...]:
    """Every hour the week's clocks show; without traffic its measures are not known."""
    week, dropped = ask.week, {ask.week.slot(moment) for moment in drops}
    found = []
    for slot in week.slots():
        sums, work = made.slot(week, slot), load.get(slot, {})
        traffic = sums if sums and sums.prompt_tokens else None
        found.append(
            HourCell(
                slot=slot,
                since=made.slot_since[slot],
                token_hit_ratio=traffic.ratio if traffic else None,
                coverage_ratio=traffic.coverage if traffic and made.basis != "engine" else None,
                reported_prompt_tokens=traffic.reported_tokens if traffic else None,
                prompt_tokens=traffic.prompt_tokens if traffic else None,
                is_drop=slot in dropped,
                kv_usage_ratio=number(work, "kv_usage_ratio"),
                computed_tokens_per_second=number(work, "computed_tokens_per_second"),
            )
        )
    return tuple(found)


def load_by_slot(ask: Asking) -> dict[Slot, Row]:
    """Work and KV usage of the week by the hour; of an hour in parts the first speaks."""
    rows: Rows = ask.rows("load_over_time", step_seconds=3600)
    found: dict[Slot, Row] = {}
    for row in rows:
        moment = utc(row["ts"])
        if moment is not None:
            found.setdefault(ask.week.slot(max(moment, ask.week.since)), row)
    return found
