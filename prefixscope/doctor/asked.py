"""Facts from the questions a running exporter or a store answers."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from exporter.errors import PrefixscopeError
from exporter.sources.engines import ENGINES, load_engine
from exporter.sources.formats import format_named
from exporter.sources.formats.mapping import LogFormat
from prefixscope.client import Answers
from prefixscope.doctor.facts import (
    JoinFacts,
    LogFacts,
    RejectFacts,
    RowFacts,
    StreamFacts,
    TargetFacts,
    Window,
)

Row = dict[str, Any]
# Shorter than this, a few requests decide the comparison.
_SHORTEST_WINDOW = timedelta(minutes=5)
_REPORTS_CACHED = ("cached_tokens", "cached_device", "cached_host", "cached_disk", "cached_remote")


@dataclass(frozen=True)
class Asked:
    """Asks questions about the time since then; None = all time."""

    answers: Answers
    since: datetime | None

    def rows(self, name: str, **params: object) -> list[Row]:
        """Rows of an answer; those parameters that are None are left out."""
        given = {key: value for key, value in params.items() if value is not None}
        rows: list[Row] = self.answers.ask(name, given).to_pylist()
        return rows

    def lately(self, name: str, **params: object) -> list[Row]:
        """The same of the time looked at."""
        return self.rows(name, since=self.since.isoformat() if self.since else None, **params)


def asked_targets(asked: Asked) -> list[TargetFacts]:
    """Every target the exporter knows, its replicas together."""
    by_target: dict[str, list[Row]] = defaultdict(list)
    for row in asked.lately("replicas"):
        by_target[row["target"]].append(row)
    # One that has been down for longer than that is in no window.
    down = [row for row in asked.rows("replicas") if row["up"] is False]
    for row in down:
        if row["target"] not in by_target:
            by_target[row["target"]] = [row]
    observed = {row["target"]: row for row in asked.lately("observed_hit_ratio", by="target")}
    remembering = {
        row["replica"] for row in asked.rows("memory_split", by="replica")
        if row["cached_tokens"] is not None
    }  # fmt: skip
    return [
        _target(name, rows, observed.get(name, {}), remembering) for name, rows in by_target.items()
    ]


def _target(name: str, rows: list[Row], observed: Row, remembering: set[str]) -> TargetFacts:
    first = rows[0]
    engine = first["engine"]
    known = load_engine(engine) if engine in ENGINES else None
    up = first["up"]
    caching = [r["caching_enabled"] for r in rows if r["caching_enabled"] is not None]
    down = up is False or (up is None and engine is None)
    said = first["error"]
    return TargetFacts(
        name=name,
        error=(said or "the exporter has not reached it yet") if down else None,
        up_for_exporter=up,
        engine=engine,
        title=known.title if known else "",
        version=first["version"],
        observer=known.observer if known else "engine",
        role=first["role"],
        models=tuple(sorted({row["model"] for row in rows if row["model"]})),
        replicas=tuple(sorted(row["replica"] for row in rows)),
        missing=tuple(first["missing_advice"] or first["missing_metrics"] or ()),
        notices=(said,) if said and not down else (),
        caching_enabled=all(caching) if caching else None,
        prompt_tokens=_sum(rows, "prompt_tokens"),
        cached_tokens=_sum(rows, "cached_tokens"),
        looked_up_requests=observed.get("asked"),
        skipped_requests=observed.get("skipped"),
        tells_cached_memory=any(row["replica"] in remembering for row in rows),
        frozen=any(row["frozen"] for row in rows),
        running_requests=_sum(rows, "running_requests"),
    )


def _sum(rows: list[Row], column: str) -> int | None:
    known = [row[column] for row in rows if row[column] is not None]
    return sum(known) if known else None


def asked_logs(asked: Asked, now: datetime) -> list[LogFacts]:
    """Every source rows ever came from; what came lately, and what the newest rows prove."""
    newest: dict[tuple[str, str], list[RowFacts]] = defaultdict(list)
    for row in asked.rows("row_evidence"):
        newest[row["source"], row["source_format"]].append(_row_facts(row))
    lately = {(row["source"], row["source_format"]): row for row in asked.lately("ingest_health")}
    rejects: dict[str, list[RejectFacts]] = defaultdict(list)
    for row in asked.lately("rejects"):
        reject = RejectFacts(row["reason"], row["rejects"], row["detail"], row["position"])
        rejects[row["source"]].append(reject)
    return [
        _log(row, lately.get((row["source"], row["source_format"]), {}), newest, rejects, now)
        for row in asked.rows("ingest_health")
    ]


def _log(
    ever: Row,
    lately: Row,
    newest: Mapping[tuple[str, str], list[RowFacts]],
    rejects: Mapping[str, list[RejectFacts]],
    now: datetime,
) -> LogFacts:
    source, source_format = ever["source"], ever["source_format"]
    arrived = ever["last_arrived"]
    silent = (now - arrived.replace(tzinfo=UTC)).total_seconds() if arrived else None
    return LogFacts(
        source=source,
        source_format=source_format,
        can_report=can_report(source_format),
        silent_seconds=silent,
        accepted=lately.get("accepted", 0),
        duplicate=lately.get("duplicate", 0),
        conflicting=lately.get("conflicting", 0),
        rejected=lately.get("rejected", 0),
        flags=dict(lately.get("flags") or {}),
        rejects=tuple(rejects.get(source, ())),
        newest=tuple(newest.get((source, source_format), ())),
    )


def can_report(source_format: str) -> bool:
    """Whether rows of a format can have a cached count; an unknown format may."""
    try:
        known: LogFormat = format_named(source_format)
    except PrefixscopeError:
        return True
    return known.reshape is not None or any(f.name in _REPORTS_CACHED for f in known.fields)


def _row_facts(row: Row) -> RowFacts:
    names = {field.name for field in fields(RowFacts)} - {"replicas"}
    return RowFacts(**{name: row[name] for name in names}, replicas=tuple(row["replicas"] or ()))


def asked_joins(asked: Asked) -> tuple[JoinFacts, ...]:
    """Of the rows of two sides, how many found each other."""
    return tuple(
        JoinFacts(row["source"], row["side"], row["rows"], row["unmatched"])
        for row in asked.lately("joins")
    )


def asked_streams(asked: Asked) -> tuple[StreamFacts, ...]:
    """Every stream of KV-cache events that was ever heard."""
    names = [each.name for each in fields(StreamFacts)]
    rows = asked.rows("block_streams")
    return tuple(StreamFacts(**{name: row[name] for name in names}) for row in rows)


def asked_window(asked: Asked) -> Window | None:
    """What log and engines counted over the time both were watched, of the models both name.

    None where that is less than five minutes, or where no model has the same name on both sides.
    """
    (state,) = asked.rows("store_state")
    borders = [state[name] for name in ("first_ts", "last_ts", "engine_first_ts", "engine_last_ts")]
    if any(border is None for border in borders):
        return None
    first, last, engine_first, engine_last = borders
    lower = asked.since.replace(tzinfo=None) if asked.since else first
    since, until = max(first, engine_first, lower), min(last, engine_last)
    if until - since < _SHORTEST_WINDOW:
        return None
    span = {"since": f"{since.isoformat()}Z", "until": f"{until.isoformat()}Z"}
    log = {row["model"]: row for row in asked.rows("hit_ratio", by="model", **span)}
    engine = {
        row["model"]: row["prompt_tokens"]
        for row in asked.rows("engine_hit_ratio", by="model", **span)
    }
    both = [model for model in log if model and engine.get(model) is not None]
    if not both:
        return None
    return Window(
        sum(log[model]["prompt_tokens"] or 0 for model in both),
        sum(engine[model] or 0 for model in both),
        sum(log[model]["requests"] for model in both),
    )
