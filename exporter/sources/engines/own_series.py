"""Which series of a page belong to one table, and whose figures each of them is.

A page may carry several programs' series, other programs' copies of an engine's names, ranks
that repeat each other and secrets in labels. All of that is sorted out here, before any value
is taken.
"""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, get_args

from exporter.records import ReplicaRole
from exporter.sources.engines.mapping import Engine
from exporter.sources.exposition import PageSample

Index = dict[str, list[PageSample]]
# No program counts this far; whole numbers in the store end at 9.2e18.
LARGEST = 1e17
# Tenant and route pairs of one page that are kept apart; the smallest beyond are summed.
MAX_PAIRS = 100
OTHER = "other"
# A program that re-exports engines' series under their own names marks them with this label.
EXPORTERS = {"dynamo_component": "dynamo"}
# Hides secret labels where no store gives a key; then hashes last as long as the process.
_PROCESS_KEY = secrets.token_hex(32)

Pair = tuple[str | None, str | None]


@dataclass(frozen=True)
class PageLabels:
    """Labels of a target's series with a meaning somebody configured, and the hashing key.

    `replica` names the replica (Ray's agents serve several on one page); `tenant` and `route`
    are custom labels an engine was told to add.
    """

    replica: str | None = None
    tenant: str | None = None
    route: str | None = None
    hash_key: str | None = None


class Group(NamedTuple):
    """Whose figures: one table, one cache (replica label, rank), one model, one tenant and
    route; None = not told apart."""

    table: str
    replica: str | None
    rank: str | None
    model: str | None
    tenant: str | None = None
    route: str | None = None


class OwnSeries:
    """One table's own, usable series on a page. Empty where the page has none of them."""

    def __init__(self, engine: Engine, samples: Iterable[PageSample], labels: PageLabels) -> None:
        self.engine = engine
        self.labels = labels
        self._tenant_labels = _preferred(labels.tenant, engine.tenant_labels)
        self._route_labels = _preferred(labels.route, engine.route_labels)
        self._told: dict[int, dict[str, str]] = {}
        self.by_name = self._index(samples)
        self.names = frozenset(self.by_name)
        self._one_rank: Index = {}
        self._models: dict[str, set[str]] = {}
        self._ranks: dict[str, set[str]] = {}
        self._amounts: dict[Pair, float] = {}
        self._said_roles: set[str] = set()
        self.exported_by: str | None = None
        for own in self.by_name.values():
            for sample in own:
                self._meet(sample)
        self._kept = self._largest_pairs()

    def _index(self, samples: Iterable[PageSample]) -> Index:
        """The table's usable series by name: real numbers, own series.

        A negative, non-finite or absurdly large counter is no count; such a series is as good
        as absent.
        """
        wanted = self.engine.series_names.union(self.engine.version_marks)
        index: Index = {}
        for sample in samples:
            usable = sample.name in wanted and 0 <= sample.value < LARGEST
            if usable and _is_own(self.engine, sample.labels):
                secret, key = self.engine.secret_labels, self.labels.hash_key
                hidden = _without_secrets(sample, secret, key)
                if hidden is not sample:
                    self._told[id(hidden)] = sample.labels
                index.setdefault(sample.name, []).append(hidden)
        return index

    def told_labels(self, sample: PageSample) -> dict[str, str]:
        """The labels as they stand on the page, by which its start times are found."""
        return self._told.get(id(sample), sample.labels)

    def _meet(self, sample: PageSample) -> None:
        scope, labels = self.scope(sample), sample.labels
        model = self._first(labels, self.engine.model_labels)
        if model is not None:
            self._models.setdefault(scope, set()).add(model)
        if self.engine.rank_label in labels:
            self._ranks.setdefault(scope, set()).add(labels[self.engine.rank_label])
        if self.engine.role_label in labels:
            self._said_roles.add(labels[self.engine.role_label])
        pair = self._pair(labels)
        self._amounts[pair] = self._amounts.get(pair, 0.0) + sample.value
        if self.engine.observer in ("engine", "kv_store"):
            for label, program in EXPORTERS.items():
                self.exported_by = program if label in labels else self.exported_by

    @property
    def ranked(self) -> bool:
        """Whether several data-parallel ranks of one process are on the page."""
        return any(len(ranks) > 1 for ranks in self._ranks.values())

    @property
    def role(self) -> ReplicaRole | None:
        """The one role its labels name, else None."""
        roles = [role for role in get_args(ReplicaRole) if role in self._said_roles]
        return roles[0] if len(roles) == 1 else None

    def scope(self, sample: PageSample) -> str:
        """The process a series belongs to, where a configured label tells them apart."""
        return sample.labels.get(self.labels.replica, "") if self.labels.replica else ""

    def series(self, name: str, every_rank: bool) -> list[PageSample]:
        """The series of a name; of ranks that repeat each other one, unless all are wanted."""
        if every_rank or not self.engine.copied_labels:
            return self.by_name.get(name, [])
        if name not in self._one_rank:
            self._one_rank[name] = self._lowest_copy(self.by_name.get(name, []))
        return self._one_rank[name]

    def group(self, sample: PageSample, ranked: bool) -> Group:
        """Series without a model belong to the page's model where it has just one."""
        scope, labels = self.scope(sample), sample.labels
        models = self._models.get(scope, set())
        only = next(iter(models)) if len(models) == 1 else None
        rank = labels.get(self.engine.rank_label or "") if ranked else None
        pair = self._pair(labels)
        tenant, route = pair if pair in self._kept else (OTHER, OTHER)
        model = self._first(labels, self.engine.model_labels) or only
        return Group(self.engine.name, scope or None, rank, model, tenant, route)

    def _pair(self, labels: dict[str, str]) -> Pair:
        """An empty label is the same as none: Prometheus does not tell them apart."""
        if not self._tenant_labels and not self._route_labels:
            return None, None
        return self._first(labels, self._tenant_labels), self._first(labels, self._route_labels)

    def _first(self, labels: dict[str, str], names: tuple[str, ...]) -> str | None:
        """The first of these labels that says anything."""
        for name in names:
            text = labels.get(name)
            if text and text not in self.engine.absent_values:
                return text
        return None

    def _largest_pairs(self) -> set[Pair]:
        if len(self._amounts) <= MAX_PAIRS:
            return set(self._amounts)
        named = [pair for pair in self._amounts if pair != (None, None)]
        named.sort(key=lambda pair: (-self._amounts[pair], str(pair)))
        return {(None, None), *named[: MAX_PAIRS - 1]}

    def _lowest_copy(self, samples: list[PageSample]) -> list[PageSample]:
        """The lowest tensor and pipeline rank of each data-parallel rank."""
        lowest: dict[tuple[str, str | None], tuple[int, ...]] = {}
        placed = []
        for sample in samples:
            place = (self.scope(sample), sample.labels.get(self.engine.rank_label or ""))
            copied = self.engine.copied_labels
            copy = tuple(_rank_number(sample.labels.get(name)) for name in copied)
            lowest[place] = min(lowest.get(place, copy), copy)
            placed.append((sample, place, copy))
        return [sample for sample, place, copy in placed if lowest[place] == copy]


def _is_own(engine: Engine, labels: dict[str, str]) -> bool:
    if not all(label in labels for label in engine.only_with):
        return False
    if engine.rank_label not in labels and any(name in labels for name in engine.foreign_labels):
        return False
    return all(labels.get(name, total) == total for name, total in engine.total_labels.items())


def _without_secrets(
    sample: PageSample, secret_labels: tuple[str, ...], key: str | None
) -> PageSample:
    """The same series with keyed hashes where secrets stood; no secret ("") stays none."""
    found = [name for name in secret_labels if sample.labels.get(name)]
    if not found:
        return sample
    hidden = {name: keyed_hash(sample.labels[name], key or _PROCESS_KEY) for name in found}
    return replace(sample, labels={**sample.labels, **hidden})


def keyed_hash(text: str, key: str) -> str:
    """16 hexadecimal digits that tell texts apart and cannot be turned back without the key."""
    return hashlib.blake2b(text.encode(), key=key.encode()[:64], digest_size=8).hexdigest()


def _preferred(configured: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    return (configured, *known) if configured else known


def _rank_number(text: str | None) -> int:
    """The rank a label names; 0 for what is none, such as a number no cluster has ranks for."""
    return int(text) if text is not None and len(text) < 10 and text.isdecimal() else 0
