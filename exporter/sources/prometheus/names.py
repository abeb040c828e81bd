"""What a target of a Prometheus is called here: as our own scraper calls the same page."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import duckdb
from pydantic import BaseModel, ConfigDict, Field

from exporter.records import ReplicaRole
from exporter.sources.discovery import Discovery, DiscoveryFailed, Target, address_of, replica_of
from exporter.sources.prometheus.targets import INSTANCE
from exporter.sources.target_settings import DEFAULT_PATH, TargetSettings
from exporter.store.samples import load_targets

_RANK = re.compile(r"/\d+$")


class AskedTarget(BaseModel):
    """A target of a Prometheus, as one asks what the store has of it.

    `crowded`: another engine of the same pod has another port. The rest is of `PastTarget`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    labels: dict[str, str]
    url: str | None = None
    discovered: dict[str, str] = Field(default_factory=dict)
    interval_seconds: float | None = Field(default=None, gt=0)
    copies: bool = False
    crowded: bool = False
    role: ReplicaRole | None = None

    @property
    def instance(self) -> str:
        """The address as the Prometheus names it."""
        return self.labels.get(INSTANCE, "")


def labels_key(labels: Mapping[str, str]) -> str:
    """A target's labels as one text, by which its filled spans are known again."""
    return json.dumps(dict(labels), sort_keys=True, ensure_ascii=False)


@dataclass
class Naming:
    """Names targets by the settings, else as an earlier scrape did, else as discovery would."""

    settings: TargetSettings

    def __post_init__(self) -> None:
        self._discovery = Discovery(self.settings)
        self._configured: list[Target] = []
        self._due = 0.0

    def name(self, cursor: duckdb.DuckDBPyConnection, asked: AskedTarget) -> Target:
        """The target; its `url` is a guess where the Prometheus scrapes it no more."""
        if time.monotonic() >= self._due:
            self._configured = self._discovery.refresh()
            self._due = time.monotonic() + self.settings.refresh_seconds
        for target in self._configured:
            if _is(target.url, asked):
                return replace(target, role=target.role or asked.role)
        for row in load_targets(cursor).values():
            if row.url is not None and _is(row.url, asked):
                replica = _known_replica(cursor, row.target) or row.target
                return Target(row.target, row.url, replica, asked.role)
        return self._as_discovered(asked)

    def is_polled(self, asked: AskedTarget) -> bool:
        """Whether the settings, as last read by `name`, have our own scraper poll it."""
        return any(_is(target.url, asked) for target in self._configured)

    def _as_discovered(self, asked: AskedTarget) -> Target:
        url = asked.url or f"http://{asked.instance}{DEFAULT_PATH}"
        labels: Mapping[str, str] = {**asked.discovered, **asked.labels}
        replica = _replica(url, labels, self.settings.replica_label, asked.instance)
        if asked.crowded and (port := asked.instance.rpartition(":")[2]).isdecimal():
            replica = f"{replica}:{port}"
        return Target(_address(url, asked.instance), url, replica, asked.role)


def _is(url: str, asked: AskedTarget) -> bool:
    """Whether a page's address is the target's."""
    if asked.url is not None:
        return _address(url, url) == _address(asked.url, asked.url)
    return urlsplit(url).netloc.rpartition("@")[2] == asked.instance


def _address(url: str, otherwise: str) -> str:
    """The address; an instance may be any name somebody chose."""
    try:
        return address_of(url) or otherwise
    except DiscoveryFailed:
        return otherwise


def _replica(url: str, labels: Mapping[str, str], label: str | None, otherwise: str) -> str:
    try:
        return replica_of(url, labels, label)
    except DiscoveryFailed:
        return otherwise


def _known_replica(cursor: duckdb.DuckDBPyConnection, target: str) -> str | None:
    """The replica an earlier scrape named, ranks taken off; None where there were several."""
    rows = cursor.execute(
        "SELECT DISTINCT replica FROM engine_samples WHERE target = ? AND exported_by IS NULL",
        [target],
    ).fetchall()
    names = {name for (name,) in rows}
    if len(names) > 1:
        names = {_RANK.sub("", name) for name in names}
    return names.pop() if len(names) == 1 else None
