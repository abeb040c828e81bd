"""Findings about KV-cache events: configured, heard, whole, and who else could listen. Pure."""

from collections.abc import Iterator

from prefixscope.doctor.facts import EventFacts, Facts, StreamFacts, TargetFacts
from prefixscope.doctor.findings import Finding, Severity
from prefixscope.event_flags import FLAG, event_setup
from replay.counted import counted


def check_events(facts: Facts) -> Iterator[Finding]:
    """Everything about entries, streams, and engines whose events nobody takes."""
    for entry in facts.events:
        yield from _entry(entry, facts)
    for stream in facts.streams:
        yield from _stream(stream, facts)
    # Where none are taken at all, that is the next step of the level, and nothing is wrong.
    if facts.events:
        for target in facts.engines:
            yield from _not_taken(target, facts)


def _entry(entry: EventFacts, facts: Facts) -> Iterator[Finding]:
    if entry.leak is not None:
        yield Finding(
            "events-open", Severity.WARNING, entry.endpoint, entry.leak,
            "publish over loopback or ipc:// where both run on one machine; else keep the ports "
            "inside the pod's network (a NetworkPolicy, a firewall), away from everybody else",
        )  # fmt: skip
    if not entry.replays:
        yield Finding(
            "events-whole", Severity.NOTE, entry.endpoint,
            "no replay is configured: what is lost on the way, or was published before the start, "
            "cannot be had any more, and leaves the state uncertain until the cache is cleared",
            f"add replay_endpoint to the engine's {FLAG}, and to this entry under events",
        )  # fmt: skip
    running = facts.asked is not None and facts.exporter_error is None
    if running and not any(stream.source == entry.source for stream in facts.streams):
        yield Finding(
            "events-heard", Severity.FAULT, entry.endpoint,
            "the exporter has heard of no stream there",
            "start the exporter anew with these settings; its log says where it listens",
        )  # fmt: skip


def _stream(stream: StreamFacts, facts: Facts) -> Iterator[Finding]:
    """A stream that is configured no more, and a recorded one, is judged by what it told only."""
    live = any(entry.source == stream.source for entry in facts.events) or stream.connected
    running = facts.asked is not None and facts.exporter_error is None
    yield from _told(stream)
    if not live:
        return
    if running and not stream.connected:
        yield Finding(
            "events-heard", Severity.FAULT, stream.replica,
            "no publisher is connected: its events are not switched on, or the address or port is "
            "another (vLLM listens only at endpoints with *, and connects to any other)",
            _fix(stream, facts),
        )  # fmt: skip
    elif running and not stream.batches:
        yield Finding(
            "events-heard", Severity.WARNING, stream.replica,
            "a publisher is connected, and not one batch has come: no request filled a block yet, "
            "prefix caching is off, or its topic is another",
            "send a prompt longer than a block; compare topic with the engine's",
        )  # fmt: skip
    if facts.engines and not stream.scraped:
        yield Finding(
            "events-heard", Severity.NOTE, stream.replica,
            "no metric page has a replica of this name: what runs and what memory there is stay "
            "unknown, so memory cannot be split",
            f"name it as its page does, replica: {_names(facts)}",
        )  # fmt: skip


def _told(stream: StreamFacts) -> Iterator[Finding]:
    """What is known to be missing or wrong."""
    if stream.unreadable_batches:
        yield Finding(
            "events-whole", Severity.WARNING, stream.replica,
            f"{counted(stream.unreadable_batches, 'message')} could not be read as events",
            "point the entry at the engine's own publisher; for a newer engine update prefixscope",
        )  # fmt: skip
    if stream.uncertain is not None:
        yield Finding(
            "events-whole", Severity.WARNING, stream.replica,
            f"the state is uncertain: {stream.uncertain}",
            "it is right again after the engine's next reset or start; POST /reset_prefix_cache "
            "does that at once, and costs what is cached",
        )  # fmt: skip
    elif stream.batches:
        missed = f"; {stream.missed_batches:,} missed earlier" if stream.missed_batches else ""
        yield Finding(
            "events-whole", Severity.OK, stream.replica,
            f"{counted(stream.batches, 'batch', 'batches')} of events heard, the state is "
            f"complete{missed}",
        )  # fmt: skip


def _not_taken(target: TargetFacts, facts: Facts) -> Iterator[Finding]:
    """An engine that could publish and is not heard: the flag, and the entry for it."""
    setup = event_setup(target.engine, target.url, target.replicas)
    heard = {stream.replica for stream in facts.streams}
    names = {target.name, *target.replicas, *(name.rpartition("/")[0] for name in target.replicas)}
    if setup is None or heard & names or any(entry.derived for entry in facts.events):
        return
    yield Finding(
        "kv-events", Severity.NOTE, target.name,
        "its KV-cache events are not taken in: what the cache holds, evicts and loses is unknown",
        f"start it with {setup.flag} and set {setup.entry_text}; docs/kv-events.md says who could "
        "read prompts then",
    )  # fmt: skip


def _fix(stream: StreamFacts, facts: Facts) -> str:
    for target in facts.engines:
        if stream.replica in (target.name, *target.replicas):
            setup = event_setup(target.engine, target.url, target.replicas)
            if setup is not None:
                return f"start it with {setup.flag} and set {setup.entry_text}"
    return f"start the engine with {FLAG}, see docs/kv-events.md"


def _names(facts: Facts) -> str:
    known = sorted({replica for target in facts.engines for replica in target.replicas})
    return " or ".join(known[:5]) or "NAME"
