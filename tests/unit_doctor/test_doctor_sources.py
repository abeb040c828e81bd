"""doctor names where figures come from, and both values where two sources tell the same."""

from datetime import datetime

import duckdb
import pytest

from prefixscope.doctor.asked import Asked
from prefixscope.doctor.facts import Facts, SourceFacts
from prefixscope.doctor.findings import Finding, Severity
from prefixscope.doctor.sources import asked_sources, check_sources
from prefixscope.doctor.together import examine
from tests.unit_doctor.conftest import Answers
from tests.unit_queries.conftest import DAY, Insert

SINCE = datetime.fromisoformat(f"{DAY}T11:00:00Z")


@pytest.fixture
def asked(cursor: duckdb.DuckDBPyConnection) -> Asked:
    return Asked(Answers(cursor), SINCE)


def findings(asked: Asked) -> list[Finding]:
    return list(check_sources(asked_sources(asked)))


def test_every_source_is_named_with_its_basis(asked: Asked, insert: Insert) -> None:
    insert("requests", [
        {"ts": f"11:{minute}", "arrived": f"11:{minute}", "source": "gateway",
         "source_format": "litellm", "model": "m", "prompt_tokens": 1_000, "cached_tokens": cached}
        for minute, cached in ((10, 600), (20, None))
    ])  # fmt: skip
    insert("engine_samples", [
        {"since": "11:00", "ts": "11:30", "replica": "a", "target": "a", "model": "n",
         "prompt_tokens": 5_000, "cached_tokens": 2_000, "origin": "prometheus",
         "origin_name": "http://prometheus:9090"},
    ])  # fmt: skip
    assert [(f.check, f.severity, f.where, f.says) for f in findings(asked)] == [
        ("sources", Severity.OK, "sources",
         ("request log gateway (litellm, 2 rows): 2,000 prompt tokens, 600 cached, 50.0 % report "
         f"cached tokens, from {DAY} 11:10 until {DAY} 11:20 UTC")),
        ("sources", Severity.OK, "sources",
         ("counters of engines read from the Prometheus http://prometheus:9090: 5,000 prompt "
         f"tokens, 2,000 cached, from {DAY} 11:00 until {DAY} 11:30 UTC")),
    ]  # fmt: skip


def test_log_and_counters_are_compared(asked: Asked, insert: Insert) -> None:
    insert("requests", [
        {"ts": f"11:{minute}", "arrived": f"11:{minute}", "source": "gateway", "model": "m",
         "prompt_tokens": 1_000, "cached_tokens": 600}
        for minute in (10, 20, 30)
    ])  # fmt: skip
    insert("engine_samples", [
        {"since": "11:00", "ts": "11:40", "replica": "a", "target": "a", "model": "m",
         "prompt_tokens": 4_400, "cached_tokens": 2_000},
    ])  # fmt: skip
    (pair,) = (f for f in findings(asked) if "compared" in f.says)
    # Half of the engine's 40 minutes; the row at 11:30 is behind the time both tell of.
    assert pair.says == (
        "compared, not added: the log gateway and the engines' counters (scrape), model m: 2,000 "
        "and 2,200 prompt tokens, difference +200 (+10.0 %)"
    )
    assert pair.severity is Severity.OK


def test_what_counts_twice_is_a_warning_with_its_fix(asked: Asked, insert: Insert) -> None:
    insert("requests", [
        {"ts": "11:10", "arrived": "11:10", "source": log, "request_id": "r-1", "model": "m",
         "prompt_tokens": tokens, "cached_tokens": 600}
        for log, tokens in (("gateway", 1_000), ("tap", 1_002))
    ])  # fmt: skip
    (found,) = (f for f in findings(asked) if f.severity > Severity.OK)
    assert (found.check, found.severity) == ("counted-twice", Severity.WARNING)
    assert found.says == (
        "counted twice (1 calls): calls of the same id in the logs gateway and tap: 1,000 and "
        "1,002 prompt tokens, difference +2 (+0.2 %)"
    )
    assert "side: gateway" in found.fix


@pytest.mark.parametrize(("second", "severity"), [(6_100, Severity.OK), (7_000, Severity.NOTE)])
def test_two_readings_that_differ_are_a_note(
    asked: Asked, insert: Insert, second: int, severity: Severity
) -> None:
    insert("engine_samples", [
        {"since": "11:00", "ts": "11:30", "replica": "a", "target": "a", "prompt_tokens": 6_000},
    ])  # fmt: skip
    insert("samples_beside", [
        {"since": "11:00", "ts": "11:30", "replica": "a", "target": "b", "engine": "vllm",
         "origin": "prometheus", "origin_name": "http://p:9090", "prompt_tokens": second},
    ])  # fmt: skip
    (found,) = (f for f in findings(asked) if "compared" in f.says)
    assert found.severity is severity
    assert "replica a, scrape and prometheus http://p:9090: the first counts" in found.says
    assert f"6,000 and {second:,} prompt tokens" in found.says


def test_they_are_among_all_findings(asked: Asked, insert: Insert) -> None:
    insert("engine_samples", [{"ts": "11:30", "replica": "a", "target": "a"}])
    facts = Facts(told_by=asked_sources(asked))
    assert [f.says for f in examine(facts) if f.where == "sources"] == [
        f"counters of engines polled from 1 target: from {DAY} 11:30 until {DAY} 11:30 UTC"
    ]
    assert list(check_sources(SourceFacts())) == []
