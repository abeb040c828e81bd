"""Findings about LiteLLM's database: are spend logs written, and kept as long as they are needed?

Pure: facts in, findings out.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from exporter.sources.log_settings import LogSettings
from exporter.sources.spend_logs.look import SpendLogFacts, look
from exporter.sources.spend_logs.place import is_database_path
from prefixscope.doctor.facts import LogFacts
from prefixscope.doctor.findings import Finding, Severity

# A weekly report compares a week with the one before.
REPORT_DAYS = 14
# A row is written when its request has ended, the daily tables some time after that.
_SLACK = timedelta(days=1)
_DURATION = re.compile(r"(\d+)(mo|[smhdw])")
_UNIT_DAYS = {"s": 1 / 86_400, "m": 1 / 1440, "h": 1 / 24, "d": 1.0, "w": 7.0, "mo": 30.0}


def looked(logs: Iterable[LogSettings]) -> tuple[SpendLogFacts, ...]:
    """A look at every database among the configured logs."""
    return tuple(
        look(log.source, log.path, log.postgres) for log in logs if is_database_path(log.path)
    )


def check_spend_logs(
    databases: Iterable[SpendLogFacts], logs: Iterable[LogFacts]
) -> Iterator[Finding]:
    """Everything the databases show. `logs` tell whose rows somebody keeps already, and what was
    said of an error."""
    known = {log.source: log for log in logs}
    for facts in databases:
        log = known.get(facts.source)
        followed = log is not None and log.error is None and not log.sampled
        if facts.error is not None:
            if log is None or log.error is None:
                # Where somebody follows it, it may be only from here that it cannot be seen.
                severity = Severity.NOTE if followed else Severity.FAULT
                yield Finding("spend-logs", severity, facts.source, facts.error, _SEE)
            continue
        yield from _written(facts)
        yield from _kept(facts, followed=followed)
        yield from _prompts(facts)
        yield from _access(facts)


_SEE = "see docs/spend-logs.md"


def _written(facts: SpendLogFacts) -> Iterator[Finding]:
    fix = "set general_settings.disable_spend_logs: false in LiteLLM, and restart it"
    last = facts.daily_last
    if facts.disabled:
        yield Finding(
            "spend-logs", Severity.FAULT, facts.source,
            "LiteLLM's setting disable_spend_logs is on: no request is written", fix,
        )  # fmt: skip
    elif facts.newest is None and last is not None:
        yield Finding(
            "spend-logs", Severity.FAULT, facts.source,
            f"there is no spend log, while the daily tables count calls until {last}: they are "
            "switched off (disable_spend_logs), or deleted at once", fix,
        )  # fmt: skip
    elif facts.newest is None:
        yield Finding("spend-logs", Severity.NOTE, facts.source, "there is no spend log yet")
    elif last is not None and facts.newest + _SLACK < _begin(last):
        yield Finding(
            "spend-logs", Severity.FAULT, facts.source,
            f"the newest spend log is of {_day(facts.newest)}, while the daily tables count calls "
            f"until {last}: they have been switched off since (disable_spend_logs)", fix,
        )  # fmt: skip
    else:
        yield Finding(
            "spend-logs", Severity.OK, facts.source,
            f"spend logs from {_day(facts.oldest)} to {_day(facts.newest)} in {facts.address}",
        )  # fmt: skip


def _kept(facts: SpendLogFacts, *, followed: bool) -> Iterator[Finding]:
    """Rows that expire before the report has seen them; once they are followed the store has
    them, and only an exporter that stands still longer than that loses some."""
    days = _retention_days(facts)
    if days is None or days >= REPORT_DAYS:
        return
    said = f"the setting says {facts.retention}" if _days(facts.retention) else "as it seems"
    yield Finding(
        "spend-logs", Severity.NOTE if followed else Severity.WARNING, facts.source,
        f"spend logs are deleted after {_length(days)} ({said}); a weekly report compares "
        f"{REPORT_DAYS} days"
        + (", which the store keeps, as long as no outage here is longer than that"
           if followed else ""),
        "let the exporter follow them, whose store keeps its own rows; or raise "
        "general_settings.maximum_spend_logs_retention_period in LiteLLM",
    )  # fmt: skip


def _retention_days(facts: SpendLogFacts) -> float | None:
    """As LiteLLM's settings say, else as old as the oldest row where the daily tables go further
    back; None where rows do not seem to be deleted."""
    said = _days(facts.retention)
    if said is not None:
        return said
    if facts.oldest is None or facts.now is None or facts.daily_first is None:
        return None
    if facts.oldest < _begin(facts.daily_first) + 2 * _SLACK:
        return None
    return (facts.now - facts.oldest) / timedelta(days=1)


def _days(text: str | None) -> float | None:
    """`7d`, `24h`, `1mo` as LiteLLM reads it; None for nothing and for anything else."""
    found = _DURATION.fullmatch((text or "").strip())
    return int(found[1]) * _UNIT_DAYS[found[2]] if found else None


def _length(days: float) -> str:
    return f"{days:.0f} days" if days >= 2 else f"{days * 24:.0f} hours"


def _prompts(facts: SpendLogFacts) -> Iterator[Finding]:
    if facts.stores_prompts or facts.holds_prompts:
        seen = "the newest spend logs hold prompts or answers" if facts.holds_prompts else (
            "LiteLLM's setting store_prompts_in_spend_logs is on"
        )  # fmt: skip
        yield Finding(
            "prompts-leak", Severity.WARNING, facts.source,
            f"{seen}: whoever may read the database may read them (prefixscope asks for neither)",
            "set general_settings.store_prompts_in_spend_logs: false in LiteLLM; grant our role "
            "the columns it needs only, as docs/spend-logs.md shows",
        )  # fmt: skip


def _access(facts: SpendLogFacts) -> Iterator[Finding]:
    if facts.indexed is False:
        yield Finding(
            "spend-logs", Severity.WARNING, facts.source,
            'there is no index on "startTime": every look reads the whole table',
            'CREATE INDEX CONCURRENTLY ON "LiteLLM_SpendLogs" ("startTime", request_id)',
        )  # fmt: skip
    if facts.may_write:
        yield Finding(
            "spend-logs", Severity.NOTE, facts.source,
            "our role could write to the table; our sessions cannot, and need not",
            "use a role that may only read, as docs/spend-logs.md shows",
        )  # fmt: skip
    if not facts.reads_daily:
        yield Finding(
            "spend-logs", Severity.NOTE, facts.source,
            "the daily tables are not there or not to be read: figures are not compared with them",
            'GRANT SELECT ON "LiteLLM_DailyUserSpend", "LiteLLM_DailyTeamSpend"',
        )  # fmt: skip


def _begin(day: object) -> datetime:
    return datetime.fromisoformat(f"{day}T00:00:00").replace(tzinfo=UTC)


def _day(moment: datetime | None) -> str:
    return moment.astimezone(UTC).date().isoformat() if moment else "?"
