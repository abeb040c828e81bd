"""What happened: drops as the alerts judge them, caches that lost all, hours without data."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from statistics import median

from dashboard.figures.numbers import percent, points
from dashboard.figures.rows import Row, Rows, count, number
from dashboard.figures.safe import plain
from dashboard.report import suspects
from dashboard.report.asking import Asking, utc
from dashboard.report.span import Course, reach, shown
from dashboard.report.text import told
from dashboard.report.week import Headline, Incident, Peak, WeekPoint
from dashboard.report.weeks import Slot, Week
from replay.counted import counted

MOST_INCIDENTS = 20
WINDOW = timedelta(hours=1)
# An hour that usually has so many requests has none by chance never.
LEAST_WEEKS, BUSY_REQUESTS = 2, 20
RATIO_NOISE = 0.005


def judged(ask: Asking, lead: Headline, made: Course) -> Rows:
    """The hours that fell furthest, as the alerts judge them, on the headline's basis."""
    rows = [
        row
        for since, until in suspects.runs(made, ask.week)
        for row in ask.rows("peak_drop", zone=ask.week.zone, since=since, until=until)
    ]
    return sorted(
        (row for row in rows if row["basis"] == lead.basis),
        key=lambda row: (row["ts"], str(row["model"])),
    )


def drops_of(rows: Rows) -> list[Row]:
    """The hours that were drops."""
    return [row for row in rows if row["is_drop"]]


def peak(week: Week, rows: Rows, why: Callable[[Row], str] = lambda _row: "") -> Peak | None:
    """The judged hour that fell furthest below its usual ratio, in tokens; None if none fell.
    `why` tells which causes of missed tokens grew in it, '' where that is not known."""
    fell = [row for row in rows if row["is_drop"] is not None and _lost_tokens(row) > 0]
    if not fell:
        return None
    worst = max(fell, key=lambda row: (_lost_tokens(row), row["ts"], str(row["model"])))
    since, ratio = utc(worst["ts"]), number(worst, "token_hit_ratio")
    expected = number(worst, "expected_ratio")
    if since is None or ratio is None or expected is None:
        return None
    return Peak(
        ts=since,
        until=since + WINDOW,
        model=plain(worst["model"]),
        token_hit_ratio=ratio,
        usual_ratio=_usual(worst),
        expected_ratio=expected,
        expected_low_ratio=number(worst, "expected_low_ratio"),
        expected_high_ratio=number(worst, "expected_high_ratio"),
        pressure_ratio=number(worst, "pressure_ratio"),
        reported_prompt_tokens=count(worst, "reported_prompt_tokens") or 0,
        was_expected=not worst["is_drop"],
        drop_class=str(worst["class"] or ""),
        evidence=told(worst["evidence"]),
        contributor=told(worst["contributor"], 80),
        severity=str(worst["severity"] or ""),
        sentence=f"{_peak_sentence(week, worst, since)} {why(worst)}".rstrip(),
    )


def _usual(row: Row) -> float:
    """What these hours usually reach, whatever the load."""
    return (number(row, "expected_ratio") or 0.0) + (number(row, "load_part_ratio") or 0.0)


def _lost_tokens(row: Row) -> float:
    ratio = number(row, "token_hit_ratio")
    if ratio is None or number(row, "expected_ratio") is None:
        return 0.0
    return (_usual(row) - ratio) * (number(row, "reported_prompt_tokens") or 0.0)


def _peak_sentence(week: Week, row: Row, since: datetime) -> str:
    said = (
        f"{shown(week, since)}, model {plain(row['model'])}: "
        f"{percent(number(row, 'token_hit_ratio'))} where these hours usually reach "
        f"{percent(_usual(row))}."
    )
    pressure = number(row, "pressure_ratio")
    load = "" if pressure is None else f" at {percent(pressure)} KV usage"
    if not row["is_drop"]:
        return f"{said} Expected: {_expected_words(row, load)}."
    band = "–".join(percent(number(row, f"expected_{end}_ratio")) for end in ("low", "high"))
    return f"{said} Not expected ({band}{load}): {_class_words(row)}."


def _expected_words(row: Row, load: str) -> str:
    """How much of the fall load explains; what is left is no more than chance."""
    part, left = number(row, "load_part_ratio") or 0.0, number(row, "drop_ratio") or 0.0
    if part < RATIO_NOISE:
        return "within what such hours stray by chance"
    rest = ", the rest is within chance" if left >= RATIO_NOISE else ""
    return f"load{load} explains {points(part).lstrip('+')}{rest}"


def _class_words(row: Row) -> str:
    evidence = told(row["evidence"])
    return f"{row['class']}{f' ({evidence})' if evidence else ''}"


def incidents(ask: Asking, drops: Sequence[Row], made: Course) -> tuple[tuple[Incident, ...], int]:
    """Those of the week in order of time, bounded, and how many more there were."""
    week = ask.week
    _, last = reach(ask.first("store_state"), made.basis)
    found = [*_drop_incidents(drops), *_resets(ask.rows("block_resets")), *_gaps(week, made, last)]
    found.sort(key=lambda each: (each.ts, each.kind, each.subject))
    if len(found) <= MOST_INCIDENTS:
        return tuple(found), 0
    # Drops first: what is left out is the least telling.
    kept = sorted(found, key=lambda each: (each.kind != "drop", each.ts))[:MOST_INCIDENTS]
    kept.sort(key=lambda each: (each.ts, each.kind, each.subject))
    return tuple(kept), len(found) - MOST_INCIDENTS


def _drop_incidents(drops: Sequence[Row]) -> Iterator[Incident]:
    """Hours in a row of one model are one incident, told by its worst hour."""
    by_model: dict[str, list[Row]] = {}
    for row in drops:
        by_model.setdefault(str(row["model"]), []).append(row)
    for model, rows in by_model.items():
        for run in _runs(rows):
            worst = max(run, key=_lost_tokens)
            since = utc(run[0]["ts"])
            assert since is not None
            yield Incident(
                ts=since,
                kind="drop",
                subject=plain(model),
                sentence=f"{_fell_words(worst)}{_lasting(len(run))}: {_class_words(worst)}",
                severity="page" if any(row["severity"] == "page" for row in run) else "ticket",
            )


def _fell_words(row: Row) -> str:
    """From what to what; where every count was lost there is no ratio."""
    ratio, expected = (number(row, column) for column in ("token_hit_ratio", "expected_ratio"))
    if ratio is None:
        return "no ratio is told"
    return f"{percent(ratio)} where {percent(expected)} was expected"


def _runs(rows: Sequence[Row]) -> Iterator[list[Row]]:
    run: list[Row] = []
    for row in rows:
        if run and row["ts"] - run[-1]["ts"] > WINDOW:
            yield run
            run = []
        run.append(row)
    if run:
        yield run


def _lasting(hours: int) -> str:
    return f", for {counted(hours, 'hour')}" if hours > 1 else ""


def _resets(rows: Rows) -> Iterator[Incident]:
    """Caches that lost all they held: what follows is no fault of prompts.

    Resets within an hour of each other, of whichever replicas, are one incident.
    """
    ordered = sorted(rows, key=lambda row: (row["ts"], str(row["replica"]), str(row["tier"])))
    for run in _runs(ordered):
        since, replicas = utc(run[0]["ts"]), sorted({str(row["replica"]) for row in run})
        assert since is not None
        reasons = sorted({str(row["reason"]).replace("_", " ") for row in run})
        times = f" {len(run):,} times" if len(run) > 1 else ""
        subject = plain(replicas[0]) if len(replicas) == 1 else counted(len(replicas), "replica")
        said = f"cache cleared{times}: {', '.join(reasons)}"
        yield Incident(since, "reset", subject, said, "")


def _gaps(week: Week, made: Course, last: datetime | None) -> Iterator[Incident]:
    """Hours without any traffic that always have some; not those after the last fact there is."""
    since: datetime | None = None
    hours = 0
    for slot in week.slots():
        here = made.slot(week, slot)
        is_over = last is not None and made.slot_since[slot] + WINDOW <= last
        if is_over and not (here and here.prompt_tokens) and _usually_busy(made, slot):
            since = since or made.slot_since[slot]
            hours += 1
            continue
        if since:
            yield _gap(since, hours)
        since, hours = None, 0
    if since:
        yield _gap(since, hours)


def _gap(since: datetime, hours: int) -> Incident:
    said = f"no traffic for {counted(hours, 'hour')} in which there always is some"
    return Incident(since, "no data", "", said, "")


def _usually_busy(made: Course, slot: Slot) -> bool:
    """Had every earlier week, of at least two, so much traffic in this hour that none is odd?"""
    earlier = [week for week in made.weeks[:-1] if made.week(week).prompt_tokens]
    seen = [made.slot(week, slot) for week in earlier]
    if len(earlier) < LEAST_WEEKS or not all(sums and sums.prompt_tokens for sums in seen):
        return False
    return made.basis == "engine" or median(sums.requests for sums in seen if sums) >= BUSY_REQUESTS


def weeks(
    ask: Asking, lead: Headline, made: Course, found: Sequence[Incident], more: int,
    whole: Iterable[bool],
) -> tuple[WeekPoint, ...]:  # fmt: skip
    """The 13 weeks, each with what happened in it. Of earlier weeks resets are known."""
    resets = _resets_by_week(ask, made)
    points = []
    for week, is_whole in zip(made.weeks, whole, strict=True):
        sums, is_last = made.week(week), week == ask.week
        kinds = _kinds(found) if is_last else resets.get(week.name, {})
        points.append(
            WeekPoint(
                week=week,
                token_hit_ratio=lead.token_hit_ratio if is_last else sums.ratio,
                coverage_ratio=None if lead.basis == "engine"
                else lead.coverage_ratio if is_last else sums.coverage,
                reported_prompt_tokens=lead.reported_prompt_tokens if is_last
                else sums.reported_tokens or None,
                partial=not is_whole,
                incidents=sum(kinds.values()) + (more if is_last else 0),
                incident_words=", ".join(counted(n, kind) for kind, n in sorted(kinds.items())),
            )
        )  # fmt: skip
    return tuple(points)


def _kinds(found: Sequence[Incident]) -> dict[str, int]:
    kinds: dict[str, int] = {}
    for each in found:
        kinds[each.kind] = kinds.get(each.kind, 0) + 1
    return kinds


def _resets_by_week(ask: Asking, made: Course) -> dict[str, dict[str, int]]:
    rows = ask.rows("block_resets", since=made.weeks[0].since, until=ask.week.since)
    found: dict[str, dict[str, int]] = {}
    for each in _resets(rows):
        kinds = found.setdefault(Week.of(each.ts, ask.week.zone).name, {})
        kinds["reset"] = kinds.get("reset", 0) + 1
    return found
