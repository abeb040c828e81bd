"""Facts from answers: rows in the tables of a store in, facts out."""

from datetime import datetime
from itertools import pairwise

import duckdb
import pytest

from prefixscope.doctor.asked import (
    Asked,
    asked_joins,
    asked_logs,
    asked_targets,
    asked_window,
    can_report,
)
from prefixscope.doctor.facts import JoinFacts, Window
from tests.unit_doctor.conftest import Answers
from tests.unit_queries.conftest import DAY, Insert, Row

NOW = datetime.fromisoformat(f"{DAY}T12:00:00Z")
HOUR = datetime.fromisoformat(f"{DAY}T11:00:00Z")


@pytest.fixture
def asked(cursor: duckdb.DuckDBPyConnection) -> Asked:
    return Asked(Answers(cursor), HOUR)


def samples(model: str, *prompts: int) -> list[Row]:
    """A sample a minute of an engine, the baseline first."""
    minutes = [f"11:{20 + n}" for n in range(len(prompts) + 1)]
    rows: list[Row] = [{"ts": minutes[0], "replica": "a", "model": model}]
    for (since, ts), prompt in zip(pairwise(minutes), prompts, strict=True):
        rows.append({"since": since, "ts": ts, "replica": "a", "model": model,
                     "prompt_tokens": prompt, "cached_tokens": prompt // 2})  # fmt: skip
    return rows


def test_an_empty_store_knows_nothing(asked: Asked) -> None:
    assert asked_targets(asked) == []
    assert asked_logs(asked, NOW) == []
    assert asked_joins(asked) == ()
    assert asked_window(asked) is None


def test_targets_by_what_the_exporter_saw(asked: Asked, insert: Insert) -> None:
    insert("targets", [
        {"target": "a", "engine": "vllm", "up": True, "frozen": True, "error": "odd",
         "missing_metrics": ["x"], "missing_advice": ["x: do this"]},
        {"target": "b", "up": False, "frozen": False, "error": "connection refused"},
        {"target": "r", "engine": "vllm_router", "up": True, "frozen": False},
    ])  # fmt: skip
    insert("engine_samples", [
        *samples("m", 100, 300),
        {"ts": "11:30", "replica": "a", "model": "m", "kv_cached_tokens": 5, "kv_usage_ratio": 0.1,
         "caching_enabled": False},
        {"since": "11:20", "ts": "11:30", "replica": "r", "engine": "vllm_router",
         "observer": "router", "lookup_count": 3, "hit_count": 1, "skipped_count": 4,
         "count_unit": "requests"},
    ])  # fmt: skip
    facts = {target.name: target for target in asked_targets(asked)}
    engine, down, router = facts["a"], facts["b"], facts["r"]
    assert (engine.title, engine.models, engine.has_page) == ("vLLM", ("m",), True)
    assert (engine.prompt_tokens, engine.cached_tokens) == (400, 200)
    assert (engine.missing, engine.notices, engine.frozen) == (("x: do this",), ("odd",), True)
    assert (engine.caching_enabled, engine.tells_cached_memory) == (False, True)
    assert (down.error, down.up_for_exporter, down.has_page) == ("connection refused", False, False)
    assert (router.observer, router.looked_up_requests, router.skipped_requests) == ("router", 3, 4)


def test_logs_with_what_came_lately_and_what_the_newest_rows_prove(
    asked: Asked, insert: Insert
) -> None:
    insert("ingest_batches", [
        {"hour": "11:00", "source": "new", "accepted": 3, "duplicate": 1, "corrected": 0,
         "conflicting": 2, "rejected": 4, "late_requests": 0, "late_tokens": 0,
         "last_arrived": "11:59", "flags": {"no_time": 3}},
        {"hour": "09:00", "source": "old", "accepted": 9, "duplicate": 0, "corrected": 0,
         "conflicting": 0, "rejected": 9, "late_requests": 0, "late_tokens": 0,
         "last_arrived": "09:30", "flags": {}},
    ])  # fmt: skip
    insert("requests", [
        {"ts": "11:58", "source": "new", "model": "m", "prompt_tokens": 10, "cached_tokens": 5},
        {"ts": "11:59", "source": "new", "model": "m", "prompt_tokens": 10, "replica": "a"},
    ])  # fmt: skip
    insert("rejects", [
        {"arrived": "11:30", "source": "new", "reason": "invalid_json", "position": 12},
        {"arrived": "09:30", "source": "old", "reason": "invalid_json", "position": 1},
    ])  # fmt: skip
    facts = {log.source: log for log in asked_logs(asked, NOW)}
    new, old = facts["new"], facts["old"]
    assert (new.accepted, new.duplicate, new.conflicting, new.rejected) == (3, 1, 2, 4)
    assert (new.flags, new.silent_seconds) == ({"no_time": 3}, 60.0)
    (rows,) = new.newest
    assert (rows.model, rows.eligible_rows, rows.reported_rows, rows.replicas) == (
        "m",
        2,
        1,
        ("a",),
    )
    assert [(r.reason, r.rows, r.position) for r in new.rejects] == [("invalid_json", 1, 12)]
    assert (old.accepted, old.rejected, old.rejects) == (0, 0, ()), "outside the time looked at"
    assert old.silent_seconds == 2.5 * 3600


def test_joins_by_side(asked: Asked, insert: Insert) -> None:
    insert("requests", [
        {"ts": "11:30", "source": "g", "side": "gateway", "repeat": 3},
        {"ts": "10:30", "source": "g", "side": "gateway"},
    ])  # fmt: skip
    assert asked_joins(asked) == (JoinFacts("g", "gateway", 3, 3),)


def test_the_window_is_what_both_watched_of_models_both_name(asked: Asked, insert: Insert) -> None:
    # The engine was watched from 11:20 to 11:32, the log from 11:22 to 11:40: 10 minutes, in
    # which the engine counted 100 a minute.
    insert("engine_samples", samples("m", *[100] * 12))
    insert("requests", [
        {"ts": "11:22", "model": "m", "prompt_tokens": 400},
        {"ts": "11:30", "model": "m", "prompt_tokens": 300},
        {"ts": "11:31", "model": "elsewhere", "prompt_tokens": 9999},
        {"ts": "11:40", "model": "m", "prompt_tokens": 7777},
    ])  # fmt: skip
    assert asked_window(asked) == Window(700, 1000, 2)


@pytest.mark.parametrize(
    ("model", "until"),
    [("m", "11:24"), ("alias", "11:40")],
    ids=["hardly met", "no name in common"],
)
def test_no_window(asked: Asked, insert: Insert, model: str, until: str) -> None:
    insert("engine_samples", samples("m", *[100] * 12))
    insert("requests", [{"ts": ts, "model": model, "prompt_tokens": 4} for ts in ("11:20", until)])
    assert asked_window(asked) is None


def test_formats_that_cannot_report() -> None:
    assert can_report("litellm")
    assert can_report("otel")
    assert can_report("a format of the future")
    assert not can_report("burstgpt")
