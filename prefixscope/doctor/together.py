"""Findings that need more than one target or log, and the level reached. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from prefixscope.doctor.events import check_events
from prefixscope.doctor.facts import Facts, LogFacts, TargetFacts
from prefixscope.doctor.findings import Finding, Severity
from prefixscope.doctor.logs import MANY_ROWS, check_log
from prefixscope.doctor.reports import check_reports
from prefixscope.doctor.sources import check_sources
from prefixscope.doctor.spend_logs import check_spend_logs
from prefixscope.doctor.targets import check_target
from prefixscope.doctor.usage import check_usage
from prefixscope.event_flags import event_setup
from replay.counted import counted

# Log and engines count over slightly different moments; only more than this is a difference.
SAME_TOKENS = 0.1
# Fewer requests than this may simply lie at the borders of the window.
ENOUGH_REQUESTS = 50


@dataclass(frozen=True)
class Level:
    """How far the data reaches (0 to 3; None = no data) and the one step to the next level."""

    number: int | None
    sees: str
    next_step: str


def examine(facts: Facts) -> list[Finding]:
    """Every finding: about the whole, each target, each log."""
    level = level_of(facts)
    number = "none" if level.number is None else f"{level.number} of 3"
    findings = [
        *_wiring(facts),
        *(finding for target in facts.targets for finding in check_target(target)),
        *(finding for log in facts.logs for finding in check_log(log)),
        *check_spend_logs(facts.spend_logs, facts.logs),
        *check_usage(facts),
        *check_events(facts),
        *_routers(facts),
        *_joins(facts),
        *_log_and_engine(facts),
        *check_sources(facts.told_by),
        *check_reports(facts.reports),
    ]
    return [
        *findings,
        Finding("level", Severity.OK, "", f"level {number}: {level.sees}", level.next_step),
    ]


def _wiring(facts: Facts) -> Iterator[Finding]:
    if facts.exporter_error is not None:
        yield Finding(
            "exporter", Severity.NOTE, "exporter", facts.exporter_error,
            "start it with prefixscope serve --config FILE",
        )  # fmt: skip
    elif facts.asked is not None:
        yield Finding("exporter", Severity.OK, "exporter", f"asked {facts.asked}")
    for name, error in facts.list_errors.items():
        yield Finding(
            "lists", Severity.FAULT, name, f"the list of targets cannot be read: {error}",
            "correct it under scrape.targets",
        )  # fmt: skip
    for name, told in facts.sources.items():
        yield _prometheus(name, told)
    if not (facts.targets or facts.logs or facts.list_errors or facts.sources):
        yield Finding(
            "exporter", Severity.FAULT, "exporter", "there is neither a target nor a log to see",
            "name engines under scrape.targets and logs under logs; prefixscope init writes both",
        )  # fmt: skip


def _prometheus(name: str, told: int | str) -> Finding:
    """A Prometheus read in place of pages: does it answer, and does it scrape engines?"""
    if isinstance(told, str):
        return Finding("prometheus", Severity.FAULT, name, told, "correct scrape.prometheus_source")
    if not told:
        return Finding(
            "prometheus", Severity.FAULT, name,
            "it answers, and has lately scraped no engine or gateway known here",
            "let it scrape the engines, or correct jobs under scrape.prometheus_source",
        )  # fmt: skip
    scraped = f"it has lately scraped {told} engine{'s' if told > 1 else ''}"
    return Finding("prometheus", Severity.OK, name, scraped)


def _routers(facts: Facts) -> Iterator[Finding]:
    """vllm-router balances by load, silently, where the engines do not render prompts."""
    fix = "start every vLLM behind it with --enable-scale-out"
    for router in (t for t in facts.targets if t.engine == "vllm_router"):
        skipped = router.skipped_requests or 0
        asked = skipped + (router.looked_up_requests or 0)
        if skipped:
            yield Finding(
                "scale-out", Severity.WARNING, router.name,
                f"{skipped:,} of {counted(asked, 'request')} could not be looked up: the "
                "engines refuse to render prompts, so it balances by load instead of by prefix, "
                "and logs nothing",
                fix,
            )  # fmt: skip
        elif asked:
            seen = f"it saw the prompts of all {counted(asked, 'request')}"
            yield Finding("scale-out", Severity.OK, router.name, seen)
    behind_router = any(t.engine == "vllm_router" for t in facts.targets)
    for target in facts.engines:
        if behind_router and target.engine == "vllm" and target.renders_prompts is False:
            yield Finding(
                "scale-out", Severity.WARNING, target.name,
                "it refuses to render prompts, and a vllm-router stands in front: a cache-aware "
                "policy falls back to balancing by load",
                fix,
            )  # fmt: skip


def _joins(facts: Facts) -> Iterator[Finding]:
    if {part.side for part in facts.joins} < {"gateway", "engine"}:
        return
    for part in facts.joins:
        if part.unmatched > MANY_ROWS * part.rows:
            yield Finding(
                "joins", Severity.WARNING, part.source,
                f"{part.unmatched:,} of {counted(part.rows, 'row')} of the {part.side} found no "
                "other half: such calls count twice where both wrote one",
                "let the gateway pass its request id on (x-request-id), or both log one trace id; "
                "see docs/joining.md",
            )  # fmt: skip


def _log_and_engine(facts: Facts) -> Iterator[Finding]:
    """More in the log than the engines counted: doubled. Less: a sample, such as one tap."""
    engines, told = _replicas(facts)
    yield from _names_apart(engines, told)
    if told and len(told) < len(engines) and told <= engines:
        yield Finding(
            "log-and-engine", Severity.NOTE, ", ".join(sorted(log.source for log in facts.logs)),
            f"rows name {len(told)} of {counted(len(engines), 'replica')}: the log is a sample, "
            "so its totals are not the fleet's; ratios may differ by replica",
            f"log the others too: {', '.join(sorted(engines - told)[:5])}",
        )  # fmt: skip
    window = facts.window
    if window is None or not window.engine_prompt_tokens:
        return
    ratio = window.log_prompt_tokens / window.engine_prompt_tokens
    sums = (
        f"over the same time the logs have {window.log_prompt_tokens:,} prompt tokens and the "
        f"engines {window.engine_prompt_tokens:,}"
    )
    if ratio > 1 + SAME_TOKENS and window.log_requests >= ENOUGH_REQUESTS:
        yield Finding(
            "log-and-engine", Severity.WARNING, "logs and engines",
            f"{sums}: calls are logged twice, or an engine is not scraped",
            "scrape every replica; where gateway and engine both log, see docs/joining.md",
        )  # fmt: skip
    elif ratio < 1 - SAME_TOKENS:
        yield Finding(
            "log-and-engine", Severity.NOTE, "logs and engines",
            f"{sums}: the log is a sample (one tap of several, failed or unlogged calls)",
            "compare ratios, not totals; or log the other replicas too",
        )  # fmt: skip


def _names_apart(engines: set[str], told: set[str]) -> Iterator[Finding]:
    """Rows and pages of the same processes that go by different names. Rows may name a process of
    several ranks as a whole."""
    known = engines | {name.rpartition("/")[0] for name in engines}
    if not engines or not told or told & known:
        return
    ours, theirs = min(told), min(engines)
    yield Finding(
        "log-and-engine", Severity.NOTE, "logs and engines",
        f"rows name {counted(len(told), 'replica')} ({', '.join(sorted(told)[:3])}), and no metric "
        f"page has one of these names ({', '.join(sorted(engines)[:3])}): what a "
        "restart lost looks evicted",
        f"name both alike: replica: {ours} at its target under scrape.targets, or "
        f"PREFIXSCOPE_TAP_REPLICA={theirs} for its tap",
    )  # fmt: skip


def _replicas(facts: Facts) -> tuple[set[str], set[str]]:
    """Replicas that engines show, and those that rows name."""
    engines = {r for t in facts.engines if t.role != "decode" for r in t.replicas or (t.name,)}
    told = {name for log in facts.logs for rows in log.newest for name in rows.replicas}
    return engines, told


def level_of(facts: Facts) -> Level:
    """The level of the data and what would bring the next."""
    reported = any(rows.reported_rows for log in facts.logs for rows in log.newest)
    memory = any(target.tells_cached_memory for target in facts.engines)
    memory |= any(stream.batches for stream in facts.streams)
    behind_prometheus = any(told for told in facts.sources.values() if isinstance(told, int))
    chained = any(rows.chained_rows for log in facts.logs for rows in log.newest)
    if not (facts.engines or behind_prometheus or reported):
        return Level(None, "neither engine counters nor request rows yet", _first_step(facts))
    if not reported:
        sees = "hit ratio by model and replica, from the engines' own counters"
        return Level(0, sees, _to_rows(facts.logs))
    if chained:
        sees = "who reuses what, and the hash chains that tell why the rest missed"
        return Level(3, sees, "" if memory else _to_memory(facts.engines, behind_prometheus))
    if not memory:
        sees = "hit ratio by route, template and tenant, first-token time of hits and misses"
        return Level(1, sees, _to_memory(facts.engines, behind_prometheus))
    return Level(
        2, "who reuses what, and the memory behind it",
        "have hash chains: put the tap before the engine (prefixscope tap --help), or load a log "
        "that has prompts or token ids (docs/chains.md)",
    )  # fmt: skip


def _first_step(facts: Facts) -> str:
    unreached = [target.name for target in facts.targets if not target.has_page]
    if unreached:
        return f"make the metric page of {unreached[0]} answer (see above)"
    return "name an engine's metric page: prefixscope init http://HOST:PORT"


def _to_rows(logs: tuple[LogFacts, ...]) -> str:
    if any(rows.eligible_rows for log in logs for rows in log.newest):
        return "have answers name their cached tokens (see usage-details and coverage)"
    if logs:
        return f"see why {logs[0].source} brings no rows with usage yet"
    return (
        "have a row per request: follow the gateway's log (prefixscope init FILE), or put the tap "
        "before the engine (prefixscope tap --help)"
    )


def _to_memory(engines: tuple[TargetFacts, ...], behind_prometheus: bool) -> str:
    if not engines and not behind_prometheus:
        return "scrape the engines too: prefixscope init http://HOST:PORT"
    if any(target.engine == "sglang" for target in engines):
        return "update SGLang to 0.5.11 or later: its page then tells cached and free memory"
    setups = (event_setup(each.engine, each.url, each.replicas) for each in engines)
    setup = next(filter(None, setups), None)
    if setup is None:
        return "have the engines publish KV-cache events, see docs/kv-events.md"
    return (
        f"take in KV-cache events: start the engines with {setup.flag}, set {setup.entry_text} "
        "(docs/kv-events.md); they tell cached and free memory and evictions"
    )
