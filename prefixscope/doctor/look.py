"""Facts of targets by looking at them: two readings a moment apart, and a probe where asked for."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime

from exporter.sources.discovery import Target
from exporter.sources.engines.own_series import PageLabels
from exporter.sources.engines.page import EnginePage, GroupPage
from exporter.sources.fetch import FetchLimits
from prefixscope.doctor.facts import TargetFacts
from prefixscope.doctor.probe import probe
from prefixscope.recognise import LIMITS, Kind, Seen, page_url, recognise, settings_of

_AT_ONCE = 16


@dataclass(frozen=True)
class Looking:
    """How to look: how long between the readings, how patiently, and whether to ask an engine
    for a completion."""

    pause_seconds: float = 1.0
    limits: FetchLimits = LIMITS
    labels: PageLabels | None = None
    probes: bool = False


def look_at(targets: Sequence[Target], how: Looking) -> list[TargetFacts]:
    """Facts of every target, side by side."""
    if not targets:
        return []
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="doctor") as pool:
        found = list(pool.map(lambda target: _look(target, how), targets))
        if not how.probes:
            return found
        router = any(facts.engine == "vllm_router" for facts in found)
        return list(pool.map(lambda facts: probe(facts, router), found))


def _look(target: Target, how: Looking) -> TargetFacts:
    """One target: what it is, then what moved."""
    before = recognise(target.url, how.limits, how.labels)
    told = TargetFacts(target.name, before.url, role=target.role, replicas=(target.replica,))
    if before.page is None:
        return replace(
            told, error=before.error or "no metric page", instead=before.title, fix=before.fix,
            engine=before.engine if before.kind is Kind.ENGINE else None,
            settings=before.settings,
        )  # fmt: skip
    if before.url != page_url(target.url):
        return replace(
            told, error=f"its page is not there but at {before.url}", fix=f"configure {before.url}"
        )
    time.sleep(how.pause_seconds)
    after = recognise(before.url, how.limits, how.labels)
    if after.page is None:
        return replace(told, error=f"it answered once, then no more: {after.error}")
    ahead_seconds = _ahead(after, time.time())
    facts = page_facts(told, after.page)
    settings = settings_of(facts.engine or "", before.url, how.limits)
    return replace(
        facts,
        settings=settings,
        version=_version(settings) or facts.version,
        ahead_seconds=ahead_seconds,
        stood_still_seconds=_stood_still(before.page, after.page, how.pause_seconds),
    )


def page_facts(told: TargetFacts, page: EnginePage) -> TargetFacts:
    """What one page says, added to what is known of its target."""
    name = page.engine.name
    own = [(group, part) for group, part in page.groups.items() if group.table == name]
    parts = [part for _, part in own]
    caching = [part.facts["caching_enabled"] for part in parts if "caching_enabled" in part.facts]
    return replace(
        told,
        engine=name,
        title=page.engine.title,
        version=page.version,
        observer=page.engine.observer,
        role=told.role or page.role,
        models=tuple(sorted({group.model for group, _ in own if group.model})),
        missing=page.advice,
        notices=page.warnings,
        caching_enabled=all(caching) if caching else None,
        prompt_tokens=_total(page, parts, "prompt_tokens"),
        cached_tokens=_total(page, parts, "cached_tokens", "lookup_hit_tokens"),
        looked_up_requests=_total(page, parts, "lookup_count"),
        skipped_requests=_total(page, parts, "skipped_count"),
        tells_cached_memory=any("kv_cached_tokens" in part.facts for part in parts),
        running_requests=_running(parts),
    )


def _total(page: EnginePage, parts: list[GroupPage], *measures: str) -> int | None:
    """The first of the counters that is there, all series together; None where none is."""
    for measure in measures:
        found = [part.sums[measure] for part in parts if measure in part.sums]
        if found:
            return round(sum(page.series[key].value for keys in found for key in keys))
    return None


def _running(parts: list[GroupPage]) -> int | None:
    running = [part.facts[name] for part in parts for name in ("running_requests",)
               if name in part.facts]  # fmt: skip
    return round(sum(running)) if running else None


def _stood_still(before: EnginePage, after: EnginePage, pause_seconds: float) -> float | None:
    """The pause, if nothing moved in it although requests were running at both its ends."""
    busy = all(_running(list(page.groups.values())) for page in (before, after))
    same = before.counters_crc == after.counters_crc
    return pause_seconds if busy and same else None


def _ahead(seen: Seen, now_unix: float) -> float | None:
    """By how much the server's clock is ahead of ours; None where it does not tell the time."""
    stated = seen.page.exposed_unix if seen.page else None
    date = seen.fetched.date if seen.fetched else None
    if date is not None:
        with suppress(ValueError):
            stated = parsedate_to_datetime(date).timestamp()
    return None if stated is None else stated - now_unix


def _version(settings: object) -> str | None:
    """What the server itself says its version is."""
    told = settings.get("version") if isinstance(settings, dict) else None
    return told if isinstance(told, str) else None


def merged(looked: Sequence[TargetFacts], told: Sequence[TargetFacts]) -> Iterator[TargetFacts]:
    """What was seen from here, with what the exporter says of the same target; then those only
    the exporter knows."""
    by_name = {facts.name: facts for facts in told}
    for facts in looked:
        other = by_name.pop(facts.name, None)
        if other is None:
            yield facts
            continue
        yield replace(
            facts, up_for_exporter=other.up_for_exporter, exporter_says=other.error,
            frozen=other.frozen,
            replicas=other.replicas or facts.replicas, models=facts.models or other.models,
            tells_cached_memory=facts.tells_cached_memory or other.tells_cached_memory,
        )  # fmt: skip
    yield from by_name.values()
