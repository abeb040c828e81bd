"""What doctor says of usage reports: verdicts by model, with what to do."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest

from exporter.sources.usage_reports.rows import UsageRow
from exporter.store.provider_usage import replace_usage
from exporter.store.store import Store
from prefixscope.client import OpenStore
from prefixscope.doctor.asked import Asked
from prefixscope.doctor.facts import Facts, ReportFacts
from prefixscope.doctor.findings import Finding, Severity
from prefixscope.doctor.gather import from_answers
from prefixscope.doctor.reports import asked_reports, check_reports
from prefixscope.doctor.together import examine
from tests.log_path import load

NOW = datetime.now(UTC)
# The day before yesterday: settled, and within the two weeks looked at.
DAY = NOW.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=3)


def rows(model: str, per_hour: int, hours: Iterable[int] = range(24)) -> list[dict[str, object]]:
    return [
        {"ts": (DAY + timedelta(hours=hour, minutes=n)).isoformat(), "provider": "openai",
         "request_id": f"{model}-{hour}-{n}", "model": model, "prompt_tokens": 1_000,
         "cached_tokens": 400, "cache_write_tokens": 0}
        for hour in hours for n in range(per_hour)
    ]  # fmt: skip


def reported(model: str, requests: int) -> UsageRow:
    return UsageRow(
        day=DAY, provider="openai", model=model, requests=requests,
        prompt_tokens=1_000 * requests, cached_tokens=400 * requests, cache_write_tokens=0,
    )  # fmt: skip


def found(store: Store) -> list[Finding]:
    facts = from_answers(OpenStore(store), NOW - timedelta(days=1))
    return [finding for finding in examine(facts) if finding.check == "usage-reports"]


def test_without_reports_nothing_is_said(store: Store) -> None:
    load(store, rows("gpt-4o", 20))
    assert found(store) == []


def test_verdicts_by_model_with_the_remedy(store: Store) -> None:
    load(store, [*rows("gpt-4o", 20), *rows("gpt-5", 20, [h for h in range(24) if h != 10])])
    replace_usage(store, "openai", [reported("gpt-4o", 480), reported("gpt-5", 480)])
    agrees, differs = found(store)
    assert (agrees.severity, agrees.where) == (Severity.OK, "usage report of openai")
    assert agrees.says == (
        "our rows agree with it on 1 of 2 days, model by model, in the two weeks up to "
        f"{DAY:%Y-%m-%d}"
    )
    assert differs.severity is Severity.WARNING
    assert differs.says.startswith(
        f"gpt-5 differs on 1 of 1 day (last {DAY:%Y-%m-%d}, ours 4.2 % fewer prompt tokens): "
    )
    assert differs.fix


def test_a_missing_hour_of_all_models_names_the_remedy(store: Store) -> None:
    kept = [hour for hour in range(24) if hour != 10]
    load(store, rows("gpt-4o", 20, kept))
    replace_usage(store, "openai", [reported("gpt-4o", 480)])
    (finding,) = found(store)
    assert "missing_rows: no rows of ours from 09:20 to 11:00 UTC" in finding.says
    assert finding.fix == "take the log of that time in again: prefixscope ingest FILE"


def test_a_report_without_rows_is_a_note(store: Store) -> None:
    replace_usage(store, "openai", [reported("gpt-4o", 480)])
    (finding,) = found(store)
    assert finding.severity is Severity.NOTE
    assert "we have no rows of this provider in that time" in finding.says


def test_the_two_weeks_end_with_the_report(store: Store) -> None:
    """An old report is told of by its own days; what lies before them is left alone."""
    old, older = (
        reported("gpt-4o", 1).model_copy(update={"day": DAY - timedelta(days=days)})
        for days in (100, 114)
    )
    replace_usage(store, "openai", [old, older])
    (facts,) = asked_reports(Asked(OpenStore(store), NOW))
    assert (facts.uncompared_days, facts.last_day) == (1, f"{old.day:%Y-%m-%d}")


@pytest.mark.parametrize("models", [10, 13])
def test_many_models_that_differ_are_counted(models: int) -> None:
    facts = Facts(reports=tuple(
        ReportFacts("openai", "openai", f"m{n}", differing_days=1, latest="2026-11-03",
                    reasons=("elsewhere",), evidence="e") for n in range(models)
    ))  # fmt: skip
    findings = list(check_reports(facts.reports))
    assert len(findings) == min(models, 11)
    assert all(finding.severity is Severity.WARNING for finding in findings)
    assert ("3 more models differ" in findings[-1].says) == (models == 13)
