"""Do answers and logs name cached tokens, and which flag of which engine is missing? Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from prefixscope.doctor.facts import Facts, LogFacts, RowFacts, TargetFacts
from prefixscope.doctor.findings import Finding, Severity
from prefixscope.doctor.logs import MANY_ROWS, where
from replay.counted import counted

# The flag that makes an engine's answers name their cached tokens.
REPORTING = {
    "vllm": "start vLLM with --enable-prompt-tokens-details",
    "sglang": "start SGLang with --enable-cache-report",
}
_ANY_ENGINE = (
    "start vLLM with --enable-prompt-tokens-details, SGLang with --enable-cache-report, and let "
    "the gateway log the usage object whole"
)
# A coverage below this share is worth a warning.
LOW_COVERAGE = 0.9


def check_usage(facts: Facts) -> Iterator[Finding]:
    """Per log and model, then per engine that no log tells about."""
    for log in facts.logs:
        for rows in log.newest:
            yield from _without_usage(log, rows)
            yield from _coverage(facts, log, rows)
    for target in facts.engines:
        yield from _by_itself(facts, target)


@dataclass(frozen=True)
class _Behind:
    """Engines that may have answered some rows."""

    engines: tuple[TargetFacts, ...]

    @property
    def program(self) -> str | None:
        """The one program all of them are, else None."""
        names = {target.engine for target in self.engines}
        return names.pop() if len(names) == 1 else None

    def counted(self) -> str:
        """` while the engine counts 26,624 cached of 42,264 prompt tokens`, where it does."""
        prompt = sum(t.prompt_tokens or 0 for t in self.engines)
        cached = sum(t.cached_tokens or 0 for t in self.engines)
        if not prompt:
            return ""
        return f", while the engine counts {cached:,} cached of {prompt:,} prompt tokens"


def _behind(facts: Facts, rows: RowFacts) -> _Behind:
    """The engines of the rows' model; a gateway's alias is no engine's name: then all of them."""
    named = tuple(t for t in facts.engines if rows.model and rows.model in t.models)
    return _Behind(named or facts.engines)


def _coverage(facts: Facts, log: LogFacts, rows: RowFacts) -> Iterator[Finding]:
    if not rows.eligible_rows or rows.reported_rows >= LOW_COVERAGE * rows.eligible_rows:
        return
    missing = rows.eligible_rows - rows.reported_rows
    share = f"{missing:,} of the newest {counted(rows.eligible_rows, 'row')}"
    if not log.can_report:
        yield Finding(
            "coverage", Severity.NOTE, where(log, rows),
            f"the format {log.source_format} has no cached count: nothing can be said of its hits",
        )  # fmt: skip
        return
    behind = _behind(facts, rows)
    flag = REPORTING.get(behind.program or "")
    if rows.reported_rows or rows.unknown_basis_rows >= missing:
        yield Finding(
            "coverage", Severity.WARNING, where(log, rows),
            f"{share} do not report cached tokens; they enter no hit ratio",
            flag or _ANY_ENGINE,
        )  # fmt: skip
    elif _probed(behind):
        yield Finding(
            "coverage", Severity.WARNING, where(log, rows),
            f"{share} do not report cached tokens although the engine's answers name them: the "
            "count is lost on the way",
            "let the gateway log usage.prompt_tokens_details, or put the tap before the engine",
        )  # fmt: skip
    else:
        yield Finding(
            "usage-details", Severity.WARNING, where(log, rows),
            f"no row reports cached tokens ({share}){behind.counted()}",
            flag or _ANY_ENGINE,
        )  # fmt: skip


def _probed(behind: _Behind) -> bool:
    return bool(behind.engines) and all(t.names_cached_tokens for t in behind.engines)


def _without_usage(log: LogFacts, rows: RowFacts) -> Iterator[Finding]:
    if rows.without_usage_rows > MANY_ROWS * rows.rows:
        yield Finding(
            "coverage", Severity.WARNING, where(log, rows),
            f"{rows.without_usage_rows:,} of the newest {counted(rows.rows, 'row')} have no "
            "prompt count",
            "streams name their usage only where the client asks: send "
            'stream_options: {"include_usage": true}, or let the gateway or the tap add it',
        )  # fmt: skip


def _by_itself(facts: Facts, target: TargetFacts) -> Iterator[Finding]:
    """What probe, server or logs tell of one engine's answers."""
    flag = REPORTING.get(target.engine or "")
    if flag is None or target.role == "decode":
        return
    if target.probe_error is not None:
        yield Finding(
            "usage-details", Severity.NOTE, target.name,
            f"the probe was not answered: {target.probe_error}",
        )  # fmt: skip
    if target.names_cached_tokens is False or target.settings.get("enable_cache_report") is False:
        yield Finding(
            "usage-details", Severity.WARNING, target.name,
            "its answers do not name their cached tokens, so that no request log can report them",
            flag,
        )  # fmt: skip
    elif target.names_cached_tokens or target.settings.get("enable_cache_report") is True:
        yield Finding(
            "usage-details", Severity.OK, target.name, "its answers name their cached tokens"
        )
    elif not _told_by_a_log(facts, target):
        yield Finding(
            "usage-details", Severity.NOTE, target.name,
            "its page does not tell whether answers name their cached tokens, which request logs "
            "need; --probe asks it with one short completion",
            f"if they do not: {flag}",
        )  # fmt: skip


def _told_by_a_log(facts: Facts, target: TargetFacts) -> bool:
    """Whether rows of its model were judged already, one way or the other."""
    return any(
        rows.eligible_rows and target in _behind(facts, rows).engines and log.can_report
        for log in facts.logs
        for rows in log.newest
    )
