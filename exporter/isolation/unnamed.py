"""Scopes whose requests cannot all be compared: some came without a chain, or with hashes that mean
something else, so that what they put into caches is not known."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import duckdb

# So many are told apart; with more, nothing is said of any scope until a horizon later.
MOST_SCOPES = 10_000
MOST_REPLICAS = 10_000

_UNNAMED = """
    SELECT DISTINCT coalesce(scope, '') FROM requests
    WHERE prompt_tokens > 0 AND replica_role IS DISTINCT FROM 'decode'
        AND coalesce(len(block_hashes), 0) = 0
        AND coalesce(ineligible_reason, 'lookup_skipped') = 'lookup_skipped'
        AND batch <= $newest AND ts < $until AND (ts >= $since OR batch > $counted)"""

# Replicas that served from a tier which may outlast a reset of the device's cache.
_LOWER_TIERS = """
    SELECT DISTINCT coalesce(replica, '') FROM requests
    WHERE ts >= $since AND ts < $until
        AND (cached_host > 0 OR cached_disk > 0 OR cached_remote > 0)
    UNION
    SELECT DISTINCT replica FROM engine_own
    WHERE ts >= $since - INTERVAL 1 HOUR AND ts < $until
        AND (external_hit_tokens > 0 OR cached_host > 0 OR cached_disk > 0 OR cached_remote > 0)"""


@dataclass
class UnnamedScopes:
    """`seen`: when the last such request of each scope came. `too_many_seconds`: when that was not
    known of all (None: it always was). `places`: where chains can be compared (rule, tokens a hash,
    key); `homes`: the place of each scope, once there are several. All in seconds of the clock of
    rows. `lower_tiers`: replicas whose resets do not empty all they can reach."""

    seen: dict[str, float] = field(default_factory=dict)
    too_many_seconds: float | None = None
    places: list[str] = field(default_factory=list)
    homes: dict[str, int] = field(default_factory=dict)
    lower_tiers: list[str] = field(default_factory=list)

    def take(
        self,
        cursor: duckdb.DuckDBPyConnection,
        span: dict[str, object],
        until: datetime,
        horizon_days: float,
    ) -> None:
        """Those of a span of rows (`since`, `until`, `counted`, `newest` as in a seal) that ends at
        a moment; what is older than the horizon then is forgotten."""
        seconds = until.replace(tzinfo=UTC).timestamp()
        self.forget(seconds - horizon_days * 86_400)
        self.add((scope for (scope,) in cursor.execute(_UNNAMED, span).fetchall()), seconds)
        times = {name: span[name] for name in ("since", "until")}
        replicas = [replica for (replica,) in cursor.execute(_LOWER_TIERS, times).fetchall()]
        self.lower_tiers = sorted({*self.lower_tiers, *replicas})[:MOST_REPLICAS]

    def add(self, scopes: Iterable[str], seconds: float) -> None:
        """Scopes of requests without a chain."""
        for scope in scopes:
            if scope in self.seen or len(self.seen) < MOST_SCOPES:
                self.seen[scope] = seconds
            else:
                self.too_many_seconds = seconds

    def settle(self, place: str, scopes: Iterable[str], seconds: float) -> None:
        """Scopes of requests that can be compared at a place. One that has requests at two places
        counts as if some had no chain."""
        if place not in self.places:
            self.places.append(place)
            if len(self.places) > 1:
                self.too_many_seconds = seconds  # who was at the first place is not known
        if len(self.places) == 1:
            return
        home = self.places.index(place)
        for scope in scopes:
            if scope not in self.homes and len(self.homes) >= MOST_SCOPES:
                self.too_many_seconds = seconds
            elif self.homes.setdefault(scope, home) != home:
                self.add([scope], seconds)

    def forget(self, before_seconds: float) -> None:
        """Those whose last such request is older than that."""
        self.seen = {scope: at for scope, at in self.seen.items() if at >= before_seconds}
        if self.too_many_seconds is not None and self.too_many_seconds < before_seconds:
            self.too_many_seconds = None

    def of(self, scopes: list[str]) -> list[str]:
        """Those of some scopes that are among them; all, while there were too many."""
        if self.too_many_seconds is not None:
            return scopes
        return [scope for scope in scopes if scope in self.seen]

    def kept(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {
            "seen": self.seen,
            "too_many": self.too_many_seconds,
            "places": self.places,
            "homes": self.homes,
            "lower_tiers": self.lower_tiers,
        }

    @classmethod
    def from_kept(cls, kept: dict[str, Any]) -> "UnnamedScopes":
        """As it was."""
        return cls(
            dict(kept["seen"]),
            kept["too_many"],
            list(kept["places"]),
            dict(kept["homes"]),
            list(kept["lower_tiers"]),
        )
