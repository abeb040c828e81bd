"""Asks all that the on-call screen shows, and puts it into words once for every surface.

Telemetry faults come first because they void what follows; then the verdict, whether it hurts,
one chart, three contributors, why tokens missed, and what lies below.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from queries import source_words
from queries.on_call.asking import WINDOW, Ask, Asking
from queries.on_call.chart import LENGTH, STEP_SECONDS, Chart, chart, marks
from queries.on_call.contributors import (
    ALL_DIMENSIONS,
    DIMENSIONS,
    Contributors,
    contributors,
    replica_contributors,
    tells_apart,
)
from queries.on_call.expected import Expected, bands
from queries.on_call.judged import all_models, judged_hours, leading, of_lead
from queries.on_call.missed import missed
from queries.on_call.onset import Onset, onset
from queries.on_call.pain import Pain, pain
from queries.on_call.strip import STALE_AFTER, faults, log_is_silent, strip
from queries.on_call.verdict import NO_DATA, TELEMETRY, Told, Tone, sentence, tone
from queries.on_call.words import Quoted, Row, Rows, about, age, moment, number, plain

# The alerts of a drop of the model itself: what the verdict says is not said once more below.
DROP_ALERTS: dict[Tone, str] = {"page": "PrefixcachePeakHitDrop", "ticket": "PrefixcacheHitDrop"}
FILTERS = ("model", "replica", "route", "template", "tenant")


@dataclass(frozen=True)
class Looking:
    """What the reader looks at. `at` None = now; `zone` None = the one of the settings."""

    at: datetime | None = None
    zone: ZoneInfo | None = None
    filters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Screen:
    """All of it, in words and numbers. Names in words went through the caller's quotes."""

    looking: Looking
    zone: ZoneInfo
    until: datetime
    demo: bool
    empty: bool
    faults: tuple[str, ...]
    strip: tuple[tuple[str, str], ...]
    verdict: str
    tone: Tone
    lead: Row | None
    onset: Onset | None
    pain: Pain | None = None
    chart: Chart | None = None
    contributors: Contributors = field(default_factory=Contributors)
    missed: str = ""
    runbook: str | None = None
    models: Rows = ()
    replicas: Rows = ()
    memory: Rows = ()
    alerts: Rows = ()
    told_by: str = ""


def look(
    ask: Ask, looking: Looking, clock: datetime, quoted: Quoted = plain, *, round_seconds: int = 1
) -> Screen:
    """The screen at `looking.at`, else at `clock`; with older data only, where that ends.

    `ask` answers one question with rows. `quoted` makes a name safe for where it is shown. The
    clock is rounded up to `round_seconds`, so that answers can be shared for as long.
    """
    state = ask("store_state", {})[0]
    zone = looking.zone or ZoneInfo(str(state["zone"]))
    until = _end(state, looking.at, clock, round_seconds)
    times = (clock, until)
    if state["level"] is None:
        return _nothing(looking, zone, state, times)
    asking = Asking(ask, until, zone, looking.filters)
    judged = judged_hours(asking)
    lead = leading(judged, until)
    replicas, alerts = asking.rows("replicas"), _alerts(asking, lead)
    screen = Screen(
        looking, zone, until, bool(state["demo"]), False,
        faults(state, replicas, lead, alerts, clock, quoted, fixed=looking.at is not None,
               asked_of_engines=_asked_of_engines(asking, state, clock)),
        strip(state, replicas, lead, times, zone),
        "", tone(lead), lead, None,
        models=all_models(judged, lead, until), replicas=replicas,
        memory=asking.rows("memory_split", by="replica"), alerts=alerts,
        told_by=source_words.summary(asking.rows("figure_sources"), quoted),
    )  # fmt: skip
    return _told(screen, of_lead(asking, judged, lead), judged, clock, quoted)


def _end(state: Row, at: datetime | None, clock: datetime, round_seconds: int) -> datetime:
    """Whole seconds. The clock where data is fresh, else just behind the newest fact."""
    if at is not None:
        return at.replace(microsecond=0)
    newest = [moment(state[c]) for c in ("last_ts", "engine_last_ts") if state[c] is not None]
    last = max(newest, default=clock)
    if last > clock - STALE_AFTER:
        rounds = math.ceil(clock.timestamp() / round_seconds)
        return datetime.fromtimestamp(rounds * round_seconds, UTC)
    return last.replace(microsecond=0) + timedelta(seconds=1)


def _asked_of_engines(asking: Asking, state: Row, clock: datetime) -> bool:
    """Whether engines counted prompts since the request log fell silent."""
    if not log_is_silent(state, clock) or state["engine_last_ts"] is None:
        return False
    since = {"since": moment(state["last_ts"]) + STALE_AFTER / 2}
    [row] = asking.rows("engine_hit_ratio", WINDOW, **since)
    return bool(number(row, "prompt_tokens"))


def _nothing(
    looking: Looking, zone: ZoneInfo, state: Row, times: tuple[datetime, datetime]
) -> Screen:
    told = strip(state, (), None, times, zone)
    return Screen(
        looking, zone, times[1], bool(state["demo"]), True, (), told, NO_DATA, "unknown", None, None
    )


def _alerts(asking: Asking, lead: Row | None) -> Rows:
    """What else fires or is about to, pages first; under filters only what they may concern."""

    def other(row: Row) -> bool:
        if any(row[name] not in (None, wanted) for name, wanted in asking.filters.items()):
            return False
        own = lead is not None and row["model"] == lead["model"]
        whole = all(row[name] is None for name in FILTERS if name != "model")
        return not (own and whole and row["alert"] in DROP_ALERTS.values())

    stale = asking.rows("alerts", part="stale", until=_tens(asking.until))
    rows = [{**row, "about": about(row)} for row in (*asking.rows("alerts"), *stale) if other(row)]
    return sorted(rows, key=lambda row: (row["state"] != "firing", row["severity"] != "page"))


def _tens(until: datetime) -> datetime:
    """The ten minutes begun before: of an hour of reuse they tell no less, and are asked once."""
    return until.replace(minute=until.minute // 10 * 10, second=0)


def _told(screen: Screen, asking: Asking, judged: Rows, clock: datetime, quoted: Quoted) -> Screen:
    """The screen with all that is asked about the model spoken of."""
    lead, zone = screen.lead, screen.zone
    engine = lead is not None and lead["basis"] == "engine"
    over_time = "engine_hit_ratio_over_time" if engine else "hit_ratio_over_time"
    own = [row for row in judged if lead is not None and row["model"] == lead["model"]]
    expected = bands(own, WINDOW)
    began = _onset(asking, lead, expected, over_time)
    ends = (screen.until - LENGTH, screen.until)
    happened = marks(
        asking.rows("block_resets", LENGTH), asking.rows("version_changes", LENGTH),
        screen.alerts, ends, quoted,
    )  # fmt: skip
    drawn = chart(
        ends, zone, asking.rows(over_time, LENGTH, step_seconds=STEP_SECONDS),
        asking.rows("load_over_time", LENGTH, step_seconds=STEP_SECONDS), expected, happened,
    )  # fmt: skip
    known = None if _idle(lead, screen.replicas) else lead
    said = sentence(known, Told(screen.until, zone, began, quoted, bool(screen.looking.filters)))
    old = clock - screen.until
    if screen.looking.at is None and old > STALE_AFTER:
        said = f"Stale: the newest data is {age(old)} old. At that time: {said}"
    return replace(
        screen, verdict=said, onset=began, chart=drawn,
        pain=_pain(asking, screen),
        contributors=_contributors(asking, lead, quoted), missed=missed(asking, lead),
        runbook=DROP_ALERTS.get(screen.tone),
    )  # fmt: skip


def _idle(lead: Row | None, replicas: Rows) -> bool:
    """Whether engine counters have no ratio because nothing was asked, not because they are silent
    about cached tokens."""
    if lead is None or lead["basis"] != "engine" or number(lead, "token_hit_ratio") is not None:
        return False
    own = [number(row, "prompt_tokens") for row in replicas if row["model"] == lead["model"]]
    return bool(own) and all(prompt == 0 for prompt in own)


def _pain(asking: Asking, screen: Screen) -> Pain:
    [row] = asking.rows("pain", window_seconds=int(WINDOW.total_seconds()))
    dropped = screen.tone in ("page", "ticket")
    judged = None if screen.lead is None else screen.lead["hurts"]
    return pain(row, screen.replicas, screen.zone, dropped=dropped, judged=judged)


def _onset(
    asking: Asking, lead: Row | None, expected: Sequence[Expected], over_time: str
) -> Onset | None:
    """Since when, to the minute; None without a drop."""
    if lead is None or not lead["is_drop"] or lead["class"] == TELEMETRY:
        return None
    level = number(lead, "token_hit_ratio") or 0.0
    return onset(asking.rows(over_time, LENGTH, step_seconds=60), expected, level)


def _contributors(asking: Asking, lead: Row | None, quoted: Quoted) -> Contributors:
    """By the dimension that suits the class, else the first that tells values apart; by the former
    after all where none does. Engines' own counters know replicas only."""
    if lead is None or not lead["is_drop"]:
        return Contributors()
    if lead["basis"] == "engine":
        return replica_contributors(asking.rows("peak_drop", by="replica"), quoted)
    ends = asking.week_before(asking.until)
    before: dict[str, object] = {"baseline_since": ends - WINDOW, "baseline_until": ends}
    first = DIMENSIONS.get(str(lead["class"]), ALL_DIMENSIONS[0])
    split: dict[str, Rows] = {}
    for dimension in dict.fromkeys([first, *ALL_DIMENSIONS]):
        split[dimension] = asking.rows("explain", WINDOW, by=dimension, **before)
        if tells_apart(dimension, split[dimension]):
            break
    else:
        dimension = first
    return contributors(dimension, split[dimension], "the same hour a week ago", quoted)
