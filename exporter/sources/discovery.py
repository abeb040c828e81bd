"""Which targets to poll, from wherever they are listed.

Static addresses, Prometheus-style files and HTTP lists, the addresses behind a DNS name (a
headless service), or the active targets of a Prometheus. A list that cannot be read keeps
its last good state and says so: a broken file must not make a fleet disappear.
"""

import json
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import yaml
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from exporter.errors import PrefixscopeError
from exporter.records import ReplicaRole
from exporter.sources.fetch import FetchLimits, fetch
from exporter.sources.target_settings import (
    DEFAULT_PATH,
    DnsDiscovery,
    FileDiscovery,
    HttpDiscovery,
    PrometheusDiscovery,
    StaticTarget,
    TargetSettings,
)
from replay.counted import counted

logger = logging.getLogger(__name__)

Labels = Mapping[str, str]

# Labels that name a pod, as Prometheus set-ups commonly spell them.
POD_LABELS = ("pod", "pod_name", "kubernetes_pod_name", "__meta_kubernetes_pod_name")


class DiscoveryFailed(PrefixscopeError):
    """A list of targets could not be read; the message names it and the fault."""


@dataclass(frozen=True)
class Target:
    """One page to poll. `name` identifies it in the store; `replica` is who is behind it."""

    name: str
    url: str
    replica: str
    role: ReplicaRole | None = None
    tenant_label: str | None = None
    route_label: str | None = None


class _TargetGroup(BaseModel):
    """One entry of a Prometheus target list."""

    targets: list[str]
    labels: dict[str, str] = Field(default_factory=dict)


class _ActiveTarget(BaseModel):
    scrapeUrl: str  # noqa: N815  # Prometheus' own spelling
    labels: dict[str, str] = Field(default_factory=dict)
    discoveredLabels: dict[str, str] = Field(default_factory=dict)  # noqa: N815  # its spelling


class _ActiveTargets(BaseModel):
    activeTargets: list[_ActiveTarget]  # noqa: N815  # Prometheus' own spelling


class _TargetsAnswer(BaseModel):
    data: _ActiveTargets


_GROUPS = TypeAdapter(list[_TargetGroup])


@dataclass
class Discovery:
    """Reads every configured list; `refresh` gives the targets to poll now.

    `errors` has one message per list that failed at the last refresh, by the list's name.
    A list that never worked counts as no targets, and `complete` is False: then nobody may
    conclude that a target of an earlier start is gone.
    """

    settings: TargetSettings
    limits: FetchLimits = field(default_factory=FetchLimits)
    errors: dict[str, str] = field(default_factory=dict)
    _last_good: dict[str, list[Target]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every list was read at least once."""
        return all(name in self._last_good for name, _ in self._lists())

    def refresh(self) -> list[Target]:
        """The targets now, each page once; of a failing list the last good ones.

        What is wrong is logged once, and that it is over.
        """
        before, self.errors = self.errors, {}
        for name, read in self._lists():
            try:
                self._last_good[name] = read()
            except PrefixscopeError as error:
                kept = len(self._last_good.get(name, []))
                self.errors[name] = f"{error} (keeping the last {counted(kept, 'target')})"
                if before.get(name) != self.errors[name]:
                    logger.warning("targets from %s: %s", name, self.errors[name])
        for name in before.keys() - self.errors.keys():
            logger.info("targets from %s: read again", name)
        found = (target for name, _ in self._lists() for target in self._last_good.get(name, []))
        return _distinct({target.url: target for target in found}.values())

    def _lists(self) -> Iterator[tuple[str, Callable[[], list[Target]]]]:
        """Name and reader of every configured list."""
        settings = self.settings
        if settings.static:
            yield "static", partial(_from_static, settings.static)
        for files in settings.file_sd:
            yield f"file_sd {', '.join(files.files)}", partial(self._from_files, files)
        for listing in settings.http_sd:
            yield f"http_sd {listing.url}", partial(self._from_http, listing)
        for dns in settings.dns:
            yield f"dns {dns.name}:{dns.port}", partial(_from_dns, dns)
        for server in settings.prometheus:
            yield f"prometheus {server.url}", partial(self._from_prometheus, server)

    def _from_files(self, settings: FileDiscovery) -> list[Target]:
        targets: list[Target] = []
        for pattern in settings.files:
            place = Path(pattern)
            paths = sorted(place.parent.glob(place.name)) if "*" in place.name else [place]
            for path in paths:
                targets.extend(self._groups(_read_file(path), str(path), settings.role))
        return targets

    def _from_http(self, settings: HttpDiscovery) -> list[Target]:
        text = self._get(settings.url)
        return list(self._groups(_json(text, settings.url), settings.url, settings.role))

    def _from_prometheus(self, settings: PrometheusDiscovery) -> list[Target]:
        query = urlencode({"state": "active"})
        url = f"{settings.url.rstrip('/')}/api/v1/targets?{query}"
        try:
            answer = _TargetsAnswer.model_validate(_json(self._get(url), url))
        except ValidationError as error:
            raise DiscoveryFailed(
                f"{url}: this is not a Prometheus' list of targets ({_first_fault(error)})"
            ) from error
        return [
            self._target(active.scrapeUrl, {**active.discoveredLabels, **active.labels}, settings)
            for active in answer.data.activeTargets
            if not settings.jobs or active.labels.get("job") in settings.jobs
        ]

    def _get(self, url: str) -> str:
        answer = fetch(url, "application/json", self.limits)
        try:
            return answer.body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DiscoveryFailed(f"{url}: the answer is not UTF-8 text") from error

    def _groups(self, value: object, place: str, role: ReplicaRole | None) -> Iterator[Target]:
        try:
            groups = _GROUPS.validate_python(value)
        except ValidationError as error:
            raise DiscoveryFailed(
                f"{place}: expected a list of {{targets: [host:port], labels: {{…}}}} "
                f"({_first_fault(error)})"
            ) from error
        for group in groups:
            scheme = group.labels.get("__scheme__", "http")
            path = group.labels.get("__metrics_path__", DEFAULT_PATH)
            for address in group.targets:
                url = f"{scheme}://{address}{path}"
                yield Target(address_of(url), url, self._replica(url, group.labels), role)

    def _target(self, url: str, labels: Labels, settings: PrometheusDiscovery) -> Target:
        return Target(address_of(url), url, self._replica(url, labels), settings.role)

    def _replica(self, url: str, labels: Labels) -> str:
        return replica_of(url, labels, self.settings.replica_label)


def replica_of(url: str, labels: Labels, replica_label: str | None) -> str:
    """Configured label, else pod, else address."""
    for label in (replica_label, *POD_LABELS):
        if label and labels.get(label):
            return labels[label]
    return address_of(url)


def _from_static(targets: list[StaticTarget]) -> list[Target]:
    found = []
    for target in targets:
        name = target.name or address_of(target.url)
        who = target.replica or name
        labels = (target.tenant_label, target.route_label)
        found.append(Target(name, target.url, who, target.role, *labels))
    return found


def _from_dns(settings: DnsDiscovery) -> list[Target]:
    try:
        found = socket.getaddrinfo(settings.name, settings.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise DiscoveryFailed(f"cannot resolve {settings.name}: {error}") from error
    hosts = sorted({str(address[4][0]) for address in found})
    bracketed = [f"[{host}]" if ":" in host else host for host in hosts]
    urls = [f"{settings.scheme}://{host}:{settings.port}{settings.path}" for host in bracketed]
    return [Target(address_of(url), url, address_of(url), settings.role) for url in urls]


def _read_file(path: Path) -> object:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DiscoveryFailed(f"cannot read the target file {path}: {error}") from error
    return _json_or_yaml(text, str(path))


def _json(text: str, place: str) -> object:
    """What comes over HTTP: JSON only, as reading hostile YAML may take seconds."""
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DiscoveryFailed(f"{place}: the answer is not JSON: {error}") from error
    return parsed


def _json_or_yaml(text: str, place: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        parsed: object = yaml.safe_load(text)
    except RecursionError as error:
        raise DiscoveryFailed(f"{place}: nested beyond reason") from error
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError) as error:
        # What looks like a date or a number and is none reaches us as an error of Python.
        reason = " ".join(str(error)[:200].split())
        raise DiscoveryFailed(f"{place}: neither JSON nor YAML: {reason}") from error
    return parsed


def address_of(url: str) -> str:
    """host:port, with the path where it is not the usual one: what tells targets apart.

    Raises DiscoveryFailed for what is no address, such as a port of letters.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # asking for it is what checks it
    except ValueError as error:
        raise DiscoveryFailed(f"{url[:200]!r} is no address of a page: {error}") from error
    return parts.netloc.rpartition("@")[2] + (parts.path if parts.path != DEFAULT_PATH else "")


def _first_fault(error: ValidationError) -> str:
    fault = error.errors()[0]
    return f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"


def _distinct(targets: Iterable[Target]) -> list[Target]:
    """One name per target, one replica per process. Two engines in one pod are told apart by
    port; where that is not enough (a label that many pods share), by address."""
    found = list(targets)
    names = Counter(target.name for target in found)
    found = [replace(t, name=t.name if names[t.name] == 1 else t.url) for t in found]
    for more in (_port, lambda target: f"@{address_of(target.url)}"):
        replicas = Counter(target.replica for target in found)
        found = [
            t if replicas[t.replica] == 1 else replace(t, replica=f"{t.replica}{more(t)}")
            for t in found
        ]
    return found


def _port(target: Target) -> str:
    port = urlsplit(target.url).port
    return f":{port}" if port else ""
