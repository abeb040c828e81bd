"""Gathers the facts from wherever they are: settings, a running exporter, a store, addresses."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import urlsplit

from exporter.errors import PrefixscopeError
from exporter.server_settings import split_address
from exporter.sources.discovery import Discovery, Target
from exporter.sources.engines.own_series import PageLabels
from exporter.sources.events.settings import leak_of
from exporter.sources.target_settings import StaticTarget, TargetSettings
from exporter.store.store import FILE_NAME
from prefixscope.client import Answers, Exporter, OpenStore, connect
from prefixscope.doctor import log_files
from prefixscope.doctor.asked import (
    Asked,
    asked_joins,
    asked_logs,
    asked_streams,
    asked_targets,
    asked_window,
)
from prefixscope.doctor.facts import EventFacts, Facts, LogFacts
from prefixscope.doctor.look import Looking, look_at, merged
from prefixscope.doctor.reports import asked_reports
from prefixscope.doctor.sources import asked_sources
from prefixscope.doctor.spend_logs import looked as looked_spend_logs
from prefixscope.place import Place
from prefixscope.recognise import engines_behind, page_url
from prefixscope.settings import Settings, server_token

_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - read, not bound


def from_addresses(addresses: Sequence[str], how: Looking) -> Facts:
    """Metric pages and nothing else."""
    targets = [target_of(address) for address in addresses]
    return Facts(targets=tuple(look_at(targets, how)))


def target_of(address: str) -> Target:
    """A target named as it would be if it were configured. ValueError for what is no address."""
    url = page_url(address)
    (found,) = Discovery(TargetSettings(static=[StaticTarget(url=url)])).refresh()
    return found


def from_answers(answers: Answers, since: datetime | None) -> Facts:
    """What a running exporter or a store knows."""
    asked = Asked(answers, since)
    return Facts(
        targets=tuple(asked_targets(asked)),
        logs=tuple(asked_logs(asked, datetime.now(UTC))),
        joins=asked_joins(asked),
        window=asked_window(asked),
        streams=asked_streams(asked),
        told_by=asked_sources(asked),
        reports=asked_reports(asked),
        asked=answers.where,
    )


def from_settings(settings: Settings, how: Looking, since: datetime | None) -> Facts:
    """Everything configured: looked at from here, and asked about where somebody knows it."""
    discovery = Discovery(settings.scrape.targets, settings.scrape.limits())
    looking = replace(how, labels=_labels(settings))
    looked = look_at(discovery.refresh(), looking)
    with _whoever_knows(settings) as (answers, error):
        facts = from_answers(answers, since) if answers is not None else Facts()
    return replace(
        facts,
        targets=tuple(merged(looked, facts.targets)),
        logs=tuple(_logs(settings, facts.logs)),
        exporter_error=error,
        list_errors=dict(discovery.errors),
        sources=_sources(settings),
        events=tuple(_events(settings)),
        spend_logs=looked_spend_logs(settings.logs),
    )


def _events(settings: Settings) -> Iterator[EventFacts]:
    """What is configured of KV-cache events."""
    for entry in settings.events:
        yield EventFacts(
            endpoint=entry.endpoint,
            source=entry.source,
            replays=entry.replay_endpoint is not None,
            derived=entry.published.wants_host,
            leak=leak_of(entry),
        )


def _sources(settings: Settings) -> dict[str, int | str]:
    """How many engines each Prometheus has lately scraped, or why it does not say."""
    found: dict[str, int | str] = {}
    for source in settings.scrape.prometheus_source:
        try:
            found[source.url] = len(engines_behind(source))
        except PrefixscopeError as error:
            found[source.url] = str(error)
    return found


def _labels(settings: Settings) -> PageLabels:
    targets = settings.scrape.targets
    return PageLabels(targets.replica_label, targets.tenant_label, targets.route_label)


@contextmanager
def _whoever_knows(settings: Settings) -> Iterator[tuple[Answers | None, str | None]]:
    """The exporter of these settings, else its store, else nobody; and what is amiss with it."""
    exporter = Exporter(exporter_url(settings), server_token(settings.server))
    if exporter.is_up():
        (state,) = exporter.ask("store_state", {}).to_pylist()
        demo = (
            f"{exporter.where} shows the synthetic demo, not these settings: looked at the sources "
            "alone; stop it, or give these settings another server.listen"
        )
        yield (None, demo) if state["demo"] else (exporter, None)
        return
    silent = f"no exporter answers at {exporter.url}"
    directory = settings.store.directory
    if not (directory / FILE_NAME).exists():
        yield (
            None,
            f"{silent}, and there is no store in {directory} yet: looked at the sources alone",
        )
        return
    with connect(Place(store=directory, token=exporter.token)) as answers:
        opened = isinstance(answers, OpenStore)
        yield answers, f"{silent}: asked {answers.where}" if opened else None


def exporter_url(settings: Settings) -> str:
    """Where this machine reaches the exporter of these settings."""
    host, port = split_address(settings.server.listen)
    host = _EVERY_ADDRESS.get(host, host)
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    return urlsplit(url).geturl()


def _logs(settings: Settings, known: Sequence[LogFacts]) -> Iterator[LogFacts]:
    """Logs with rows already; then configured ones without, read for this once."""
    yield from known
    sources = {log.source for log in known}
    new = [log_files.find(log) for log in settings.logs if log.source not in sources]
    yield from (log_files.missing(found) for found in new if found.error is not None)
    there = [found for found in new if found.error is None]
    if there:
        yield from log_files.sampled(there, settings.names, datetime.now(UTC))
