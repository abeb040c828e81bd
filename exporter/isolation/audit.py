"""Sums of what scopes cost and whether they hold, over the parts of an answer of rows.

Rows in, rows out: the command shows them, the exporter keeps them. Scopes are named by their keyed
hash, as rows name them, and by the tenants that use them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa

from exporter.causes.rows import Part
from replay.causes import Causes
from replay.chain_rows import codes
from replay.columns import Fleet
from replay.isolation import Crossed, Pairs, Scopes, paired
from replay.public_prefixes import CALLERS, PublicPrefix, public_prefixes
from replay.traffic import Flags, Numbers, Traffic

# A log has told of all that a replica can hold once it has told of it for so long.
HORIZON = timedelta(days=7)
# Names beside a scope: enough to recognise it by.
MOST_TENANTS = 3
PREFIX_NAME = "public:{:08x}"


@dataclass(frozen=True)
class AuditRules:
    """`warm_up`: how long the log must have told of a replica before reuse that its scope cannot
    have supplied counts as another's (0: its caches were empty when it began to). `least_callers`:
    as many tenants as must share a prefix before it counts as nobody's own. `capacity_blocks`: of
    the modelled cache that says what a common scope would win; None: it never loses anything."""

    warm_up: timedelta = HORIZON
    least_callers: int = CALLERS
    capacity_blocks: int | None = None


@dataclass
class ScopePair:
    """Tokens of requests of one model, replica and scope that another scope computed first.

    `isolated_tokens`: missed for that reason alone. `merged_tokens`: that one scope for both would
    share, in a cache that loses nothing. `reused_…`: served all the same, across the boundary.
    """

    isolated_tokens: int = 0
    isolated_requests: int = 0
    merged_tokens: int = 0
    merged_requests: int = 0
    reused_at_least_tokens: int = 0
    reused_at_most_tokens: int = 0
    reused_requests: int = 0

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Of its sums."""
        return tuple(each.name for each in fields(cls))


@dataclass
class Judged:
    """Requests of one model, replica and scope whose reuse was looked at. `unclear_…`: cached
    tokens of which nobody can tell whose they were."""

    requests: int = 0
    cached_tokens: int = 0
    unclear_requests: int = 0
    unclear_tokens: int = 0


# Model, replica, scope; and the other scope.
Group = tuple[str, str, str]


@dataclass(frozen=True)
class Prefix:
    """A public prefix under the name it is shown by."""

    model: str
    name: str
    found: PublicPrefix
    first: datetime
    last: datetime


@dataclass
class Audit:
    """Adds up part after part of one answer of `request_chains`."""

    table: pa.Table
    rules: AuditRules = field(default_factory=AuditRules)
    pairs: dict[tuple[Group, str], ScopePair] = field(default_factory=dict)
    judged: dict[Group, Judged] = field(default_factory=dict)
    prefixes: list[Prefix] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._kinds = codes(self.table, "model", "scope")
        self._rows_of_kind = np.bincount(self._kinds) if len(self.table) else np.zeros(0, np.int64)

    def add(
        self, part: Part, served: tuple[Traffic, Fleet, Sequence[str]], found: Causes, picked: Flags
    ) -> None:
        """One part with what served it (traffic, fleet and the names of its replicas) and the
        causes of its misses; `picked`: the requests to sum."""
        traffic, fleet, replicas = served
        scopes = Scopes.of(traffic, part.rule, fleet)
        own = self.table.select(["model", "scope", "tenant", "ts"]).take(part.rows)
        groups, whose = _groups(own, traffic, replicas)
        names = list(dict.fromkeys(own["scope"].to_pylist()))
        seconds = self.rules.warm_up / timedelta(seconds=1)
        crossed = scopes.crossed(seconds, self._comparable(part))
        self._count(crossed, found, picked, (groups, whose))
        isolated = np.where(picked, found.tokens["isolated"], 0)
        every = np.arange(len(picked))
        for column, pairs in (
            ("isolated", paired(whose, scopes.holders(), isolated, every)),
            ("merged", scopes.merged(whose, picked)),
            ("reused_at_least", _crossed(crossed, whose, crossed.at_least, picked)),
            ("reused_at_most", _crossed(crossed, whose, crossed.at_most, picked)),
        ):
            if pairs is not None:
                self._add(column, pairs, groups, names)
        if part.rule.lifetime_seconds is None:
            self._add_prefixes(part, traffic, own, picked)

    def _comparable(self, part: Part) -> Flags:
        """Rows whose scope has all its rows in this part, by names of one key: of others not all
        is known that their scope had."""
        kinds = self._kinds[part.rows]
        keys = codes(self.table.select(["hash_key_id", "hash_scope"]).take(part.rows),
                     "hash_key_id", "hash_scope")  # fmt: skip
        has_chain = part.traffic.chains.lengths > 0
        pairs = np.unique(kinds[has_chain] * (len(keys) + 1) + keys[has_chain])
        keys_of_kind = np.bincount(pairs // (len(keys) + 1), minlength=len(self._rows_of_kind))
        inside = np.bincount(kinds, minlength=len(self._rows_of_kind))
        comparable: Flags = ((inside == self._rows_of_kind) & (keys_of_kind <= 1))[kinds]
        return comparable

    def _count(
        self, crossed: Crossed, found: Causes, picked: Flags, grouped: tuple[list[Group], Numbers]
    ) -> None:
        groups, whose = grouped
        judged = picked & found.reported
        unclear = judged & (crossed.cannot_tell > 0)
        columns = (
            np.bincount(whose[judged], minlength=len(groups)),
            np.bincount(whose[judged], found.cached_tokens[judged], len(groups)),
            np.bincount(whose[unclear], minlength=len(groups)),
            np.bincount(whose[unclear], crossed.cannot_tell[unclear], len(groups)),
        )
        for group, *sums in zip(groups, *(column.tolist() for column in columns), strict=True):
            if sums[0]:
                known = self.judged.setdefault(group, Judged())
                known.requests += int(sums[0])
                known.cached_tokens += int(sums[1])
                known.unclear_requests += int(sums[2])
                known.unclear_tokens += int(sums[3])

    def _add(self, column: str, pairs: Pairs, groups: list[Group], names: list[str]) -> None:
        for whose, other, tokens, requests in zip(
            pairs.scope.tolist(), pairs.other_scope.tolist(), pairs.tokens.tolist(),
            pairs.requests.tolist(), strict=True,
        ):  # fmt: skip
            pair = self.pairs.setdefault((groups[whose], names[other]), ScopePair())
            setattr(pair, f"{column}_tokens", getattr(pair, f"{column}_tokens") + tokens)
            if column == "reused_at_most":
                continue  # the same requests as at least
            counted = "reused_requests" if column == "reused_at_least" else f"{column}_requests"
            setattr(pair, counted, getattr(pair, counted) + requests)

    def _add_prefixes(self, part: Part, traffic: Traffic, own: pa.Table, picked: Flags) -> None:
        models, moments = own["model"].to_pylist(), own["ts"].to_pylist()
        found = public_prefixes(
            traffic,
            part.rule,
            _callers(own),
            least_callers=self.rules.least_callers,
            capacity_blocks=self.rules.capacity_blocks,
            of=picked,
        )
        self.prefixes += [
            Prefix(models[prefix.first], PREFIX_NAME.format(prefix.name >> 32), prefix,
                   moments[prefix.first], moments[prefix.last])
            for prefix in found
        ]  # fmt: skip
        self.prefixes.sort(key=lambda prefix: (-prefix.found.won_tokens, prefix.name))

    def tenants(self) -> dict[str, str]:
        """Scope → the tenants that use it, those of most requests first, as people read it."""
        used = Counter(
            zip(self.table["scope"].to_pylist(), self.table["tenant"].to_pylist(), strict=True)
        )
        names: dict[str, list[str]] = {}
        for scope, tenant in sorted(used, key=lambda pair: (-used[pair], pair)):
            names.setdefault(scope, []).append(tenant or "(not given)")
        return {scope: _listed(tenants) for scope, tenants in names.items()}


def _listed(tenants: list[str]) -> str:
    more = len(tenants) - MOST_TENANTS
    return ", ".join(tenants[:MOST_TENANTS]) + (f" and {more} more" if more > 0 else "")


def _groups(
    own: pa.Table, traffic: Traffic, replicas: Sequence[str]
) -> tuple[list[Group], Numbers]:
    """Every model, replica and scope of some rows, and which of them each row has."""
    number = np.zeros(len(own), np.int64) if traffic.replica is None else traffic.replica
    named = np.array(replicas, object)[number].tolist()
    keys = list(zip(own["model"].to_pylist(), named, own["scope"].to_pylist(), strict=True))
    numbers = {group: place for place, group in enumerate(dict.fromkeys(keys))}
    return list(numbers), np.array([numbers[key] for key in keys], np.int64)


def _crossed(crossed: Crossed, whose: Numbers, tokens: Numbers, picked: Flags) -> Pairs:
    return paired(whose, crossed.other_scope, np.where(picked, tokens, 0), np.arange(len(whose)))


def _callers(own: pa.Table) -> Numbers:
    """A number for each tenant; of rows that name none, for each scope."""
    names = [
        f"tenant {tenant}" if tenant else f"scope {scope}"
        for tenant, scope in zip(own["tenant"].to_pylist(), own["scope"].to_pylist(), strict=True)
    ]
    numbers = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], np.int64)
