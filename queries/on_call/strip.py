"""The strip above the verdict, and the telemetry faults that void what stands below."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from queries.on_call.words import (
    Quoted,
    Row,
    Rows,
    age,
    date_clock,
    listed,
    moment,
    number,
    percent,
)

STALE_AFTER = timedelta(minutes=10)
MOST_FAULTS = 8

_LEVELS = {
    None: "empty store",
    0: "0, engine counters",
    1: "1, request rows",
    2: "2, with KV-cache events",
    3: "3, with causes of missed tokens",
}


def strip(
    state: Row, replicas: Rows, lead: Row | None, times: tuple[datetime, datetime], zone: ZoneInfo
) -> tuple[tuple[str, str], ...]:  # fmt: skip
    """(name, value) pairs; `times` are the clock and the end of the window looked at."""
    clock, until = times
    at = f"{date_clock(until, zone)} ({zone.key})"
    if abs(clock - until) > STALE_AFTER:
        at += f", seen at {date_clock(clock, zone)}"
    return (
        ("time", at),
        ("age of data", _ages(state, clock)),
        ("replicas answering", _answering(replicas)),
        ("basis", _basis(lead)),
        ("coverage", _coverage(lead)),
        ("level", _LEVELS.get(state["level"], str(state["level"]))),
    )


def _ages(state: Row, clock: datetime) -> str:
    told = [
        f"{name} {age(clock - moment(state[column]))}"
        for name, column in (("log", "last_ts"), ("engines", "engine_last_ts"))
        if state[column] is not None
    ]
    return ", ".join(told) or "no data"


def of_engines(replicas: Rows) -> list[Row]:
    """Those that are replicas: of routers, stores and gateways only trouble is told. What never
    answered counts, as nobody knows what it is."""
    return [row for row in replicas if row["observer"] in (None, "engine")]


def _answering(replicas: Rows) -> str:
    asked = [row for row in of_engines(replicas) if row["up"] is not None]
    if not asked:
        return "none is scraped"
    return f"{sum(bool(row['up']) for row in asked)} of {len(asked)}"


def _basis(lead: Row | None) -> str:
    if lead is None:
        return "nothing reports"
    return {"engine": "engine counters", "log": "request log"}.get(str(lead["basis"]), "unknown")


def _coverage(lead: Row | None) -> str:
    """Engine counters see every request: coverage is a property of logs."""
    if lead is None or lead["basis"] == "engine":
        return "all (engine counters)" if lead else "–"
    return percent(number(lead, "coverage_ratio"))


def faults(
    state: Row, replicas: Rows, lead: Row | None, alerts: Rows, clock: datetime, quoted: Quoted, *,
    fixed: bool = False, asked_of_engines: bool = False,
) -> tuple[str, ...]:  # fmt: skip
    """What is wrong with the telemetry itself, the worst first; none = it can be trusted.

    `fixed`: another moment is looked at, so what is silent or down now says nothing.
    `asked_of_engines`: they counted prompts since the last request row.
    """
    told: list[str] = []
    if not fixed:
        told += _silent(state, clock, asked_of_engines)
        told += _replica_faults(replicas, clock, quoted)
    known = set() if fixed else set(_TOLD_ALREADY)
    if lead is not None and lead["class"] == "telemetry":
        told.append(f"Rows lost their cached counts: {quoted(lead['evidence'])}.")
        known.add("PrefixcacheCoverageLost")
    told += [
        f"{quoted(row['alert'])}: {quoted(row['summary'])}."
        for row in alerts
        if row["state"] == "firing"
        and _is_telemetry(str(row["alert"]))
        and row["alert"] not in known
    ]
    return tuple(dict.fromkeys(told))[:MOST_FAULTS]


# Alerts whose finding is told by name above, without waiting for five minutes.
_TOLD_ALREADY = ("PrefixscopeTargetDown", "PrefixscopeMetricMissing")


def _is_telemetry(alert: str) -> bool:
    """Whether an alert is about what we see and not about the cache."""
    return alert.startswith("Prefixscope") or alert == "PrefixcacheCoverageLost"


def log_is_silent(state: Row, clock: datetime) -> bool:
    """Whether there once was a request row, and none came for some time."""
    return state["last_ts"] is not None and clock - moment(state["last_ts"]) > STALE_AFTER


def _silent(state: Row, clock: datetime, asked_of_engines: bool) -> list[str]:
    """All data old, or one of the two kinds while the other goes on."""
    last = {
        name: clock - moment(state[column])
        for name, column in (("request log", "last_ts"), ("engine pages", "engine_last_ts"))
        if state[column] is not None
    }
    if not last:
        return []
    if min(last.values()) > STALE_AFTER:
        return [f"The newest data is {age(min(last.values()))} old."]
    return [
        f"The {name} {'have' if name == 'engine pages' else 'has'} been silent for {age(length)}."
        for name, length in last.items()
        # No row is no fault while nothing is asked of the engines.
        if length > STALE_AFTER and (name == "engine pages" or asked_of_engines)
    ]


def _replica_faults(replicas: Rows, clock: datetime, quoted: Quoted) -> list[str]:
    def named(rows: list[Row]) -> str:
        return listed([quoted(row["replica"] or row["target"]) for row in rows])

    down = [row for row in replicas if row["up"] is False]
    frozen = [row for row in replicas if row["up"] and row["frozen"]]
    missing = [row for row in replicas if row["up"] and row["missing_metrics"]]
    told = []
    if down:
        told.append(_not_answering(down, named(down), clock, quoted))
    if frozen:
        told.append(f"Counters stand still while traffic flows: {named(frozen)}.")
    told += [
        f"{quoted(row['replica'])} lacks {listed([quoted(m) for m in row['missing_metrics']])}."
        for row in missing
    ]
    return told


def _not_answering(down: list[Row], names: str, clock: datetime, quoted: Quoted) -> str:
    """Who, for how long and, of one alone, with which error; of several since when the last."""
    heard = [moment(row["last_success"]) for row in down if row["last_success"] is not None]
    silent = f" for {age(clock - max(heard))}" if heard else ""
    if len(down) > 1:
        last = f"; the last of them{silent}" if silent else ""
        return f"Not answering: {names}{last}."
    error = f" ({quoted(down[0]['error'])})" if down[0]["error"] else ""
    return f"Not answering{silent}: {names}{error}."
