"""Which engines a Prometheus scraped in a window, and what our own scraper would call them.

Every scraped target has a series `up` whose labels are those the Prometheus puts on all of the
target's series. Two such label sets may be one engine: two Prometheus of a pair, or two jobs
with the same address. Then one of them is read, never both.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from exporter.sources.engines.own_series import EXPORTERS
from exporter.sources.exposition import Labels
from exporter.sources.prometheus.api import ActiveTarget, PrometheusApi, pieces, selector
from exporter.sources.prometheus.pages import NAME, UP, telling_names, wanted_names

# Series are listed a day at a time: servers bound how long a list may reach back.
DAY_SECONDS = 86_400.0
JOB, INSTANCE = "job", "instance"
# Labels that say how a target was found, not which it is.
_OF_THE_FINDING = frozenset(
    {JOB, "service", "endpoint", "container", "prometheus", "scrape_pool", "__name__"}
)
# Labels a Prometheus usually puts on, where no series `up` tells them.
_USUAL = frozenset(
    {
        JOB, INSTANCE, "pod", "pod_name", "kubernetes_pod_name", "namespace", "node", "service",
        "endpoint", "container", "cluster", "prometheus", "prometheus_replica", "__replica__",
    }
)  # fmt: skip
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


@dataclass(frozen=True)
class PastTarget:
    """One engine as a Prometheus scraped it.

    `labels` are those on all its series; `names` the metrics to ask for. `url` and
    `interval_seconds` are known while it is scraped; `discovered` are labels of its discovery
    that no series carries. `copies`: its engine series repeat those of another target. `also`
    says which other label sets are the same engine.
    """

    labels: Mapping[str, str]
    names: frozenset[str]
    url: str | None = None
    interval_seconds: float | None = None
    discovered: Mapping[str, str] = field(default_factory=dict)
    copies: bool = False
    also: tuple[str, ...] = ()

    @property
    def instance(self) -> str:
        """The address as the Prometheus names it."""
        return self.labels.get(INSTANCE, "")

    @property
    def selector(self) -> str:
        """All its metrics of interest, and whether its scrapes succeeded."""
        return selector(self.labels, self.names | {UP})


def find_targets(
    api: PrometheusApi, since: float, until: float, jobs: Sequence[str] = (),
    ha_labels: Sequence[str] = (),
) -> list[PastTarget]:  # fmt: skip
    """Every engine with samples in the window (Unix seconds); none is no error."""
    names = api.names(since, until)
    wanted = wanted_names(names)
    telling = telling_names(names)
    if not telling:
        return []
    found: dict[str, list[Labels]] = {}
    for start, end in pieces(since, until, DAY_SECONDS):
        for labels in api.series(selector({}, telling), start, end):
            if not jobs or labels.get(JOB) in jobs:
                found.setdefault(str(sorted(labels.items())), []).append(labels)
    series = [copies[0] for copies in found.values()]
    ups = _ups(api, {labels.get(JOB, "") for labels in series}, since, until)
    targets = [
        PastTarget(dict(own), wanted, copies=_only_copies(owned))
        for own, owned in _by_target(series, ups).items()
    ]
    merged = _one_each(targets, frozenset(ha_labels))
    return _with_active(_told_by_themselves(merged, series), api.active_targets())


def target_name(labels: Mapping[str, str]) -> str:
    """A target for a person, where it is not named otherwise."""
    return f"{labels.get(JOB, '?')}/{labels.get(INSTANCE, '?')}"


def _ups(api: PrometheusApi, jobs: Iterable[str], since: float, until: float) -> list[Labels]:
    """The label sets of the jobs' `up` series."""
    sets: dict[str, Labels] = {}
    for job in sorted(jobs):
        for start, end in pieces(since, until, DAY_SECONDS):
            for labels in api.series(selector({JOB: job}, [UP]), start, end):
                sets[str(sorted(labels.items()))] = labels
    return list(sets.values())


def _by_target(
    series: Iterable[Labels], ups: Iterable[Labels]
) -> dict[tuple[tuple[str, str], ...], list[Labels]]:
    """The series of each target, by the labels the target puts on them."""
    known: dict[tuple[str, str], list[Labels]] = defaultdict(list)
    for up in ups:
        labels = {name: value for name, value in up.items() if name != NAME}
        known[labels.get(JOB, ""), labels.get(INSTANCE, "")].append(labels)
    owned: dict[tuple[tuple[str, str], ...], list[Labels]] = defaultdict(list)
    for labels in series:
        near = known[labels.get(JOB, ""), labels.get(INSTANCE, "")]
        fits = [own for own in near if own.items() <= labels.items()]
        usual = {name: value for name, value in labels.items() if name in _USUAL}
        own = max(fits, key=len, default=usual)
        owned[tuple(sorted(own.items()))].append(labels)
    return owned


def _one_each(targets: Sequence[PastTarget], ha_labels: frozenset[str]) -> list[PastTarget]:
    """Each engine once, however many Prometheus and jobs have it."""
    kept: list[PastTarget] = []
    for target in sorted(targets, key=lambda one: sorted(one.labels.items())):
        twin = next((n for n, k in enumerate(kept) if _same(k, target, ha_labels)), None)
        if twin is None:
            kept.append(target)
        else:
            also = (*kept[twin].also, _difference(kept[twin].labels, target.labels))
            kept[twin] = replace(kept[twin], also=also)
    return kept


def _same(one: PastTarget, other: PastTarget, ha_labels: frozenset[str]) -> bool:
    """The same address, and nothing both have tells them apart but how they were found."""
    if not one.instance or one.instance != other.instance:
        return False
    shared = (one.labels.keys() & other.labels.keys()) - _OF_THE_FINDING - ha_labels
    return all(one.labels[name] == other.labels[name] for name in shared)


def _difference(kept: Mapping[str, str], left: Mapping[str, str]) -> str:
    """What tells the label set that is left out from the one that is read."""
    return ", ".join(f'{n}="{v}"' for n, v in sorted(left.items()) if kept.get(n) != v)


def _only_copies(owned: Sequence[Labels]) -> bool:
    """Whether all of a target's series are marked as another program's, told again."""
    return bool(owned) and all(any(label in labels for label in EXPORTERS) for labels in owned)


def _told_by_themselves(targets: list[PastTarget], series: Sequence[Labels]) -> list[PastTarget]:
    """Copies are left out only where a target of the same host tells the series itself."""
    own_hosts = {
        _host(labels.get(INSTANCE, ""))
        for labels in series
        if not any(label in labels for label in EXPORTERS)
    }
    return [replace(t, copies=t.copies and _host(t.instance) in own_hosts) for t in targets]


def _host(instance: str) -> str:
    """The host of an address; of a name that is none the name."""
    try:
        return urlsplit(f"//{instance}").hostname or instance
    except ValueError:
        return instance


def _with_active(targets: Sequence[PastTarget], active: Sequence[ActiveTarget]) -> list[PastTarget]:
    """What the Prometheus tells of those it scrapes now."""
    told = []
    for target in targets:
        now = next((a for a in active if a.labels.items() <= target.labels.items()), None)
        if now is None or not now.labels:
            told.append(target)
            continue
        interval = _seconds(now.scrapeInterval)
        more = {"url": now.scrapeUrl, "discovered": now.discoveredLabels}
        told.append(replace(target, interval_seconds=interval, **more))  # type: ignore[arg-type]
    return told


def _seconds(duration: str | None) -> float | None:
    """ "15s" or "1m" as seconds; None where it is neither."""
    for unit in ("ms", "s", "m", "h", "d"):
        number = (duration or "").removesuffix(unit)
        if duration and duration.endswith(unit) and number.isdecimal():
            return int(number) * _SECONDS[unit]
    return None
