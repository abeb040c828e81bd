"""What the caches hold together: copies over the fleet, and the prefixes that hold most.

Both look through every block that has a name of our own, outside the tracker's lock. Copies are
estimated from an even sample of the names where there are very many blocks.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from exporter.blocks.ages import Seconds
from exporter.blocks.columns import Slots
from exporter.blocks.prefixes import Forest
from exporter.blocks.rows import BlockCopies, ResidentPrefix, UsedPrefix
from replay.hash_table import Keys

# Names compared for copies; where there are more, every n-th.
COPIES_SAMPLE = 262_144
# Pairs are told apart between so many replicas of a model.
PAIRED_REPLICAS = 16
# Blocks looked through for prefixes, of one model and tier.
FOREST_BLOCKS = 2_000_000
LISTED_PREFIXES = 50
# How long a look stays good enough, for every block looked at: a minute for a million.
_SECONDS_PER_BLOCK = 60e-6
# Requests remembered to tell what a prefix is used for, and hashes of their chains.
_REMEMBERED_REQUESTS = 4_096
_REMEMBERED_HASHES = 500_000


class Holding(NamedTuple):
    """The named blocks of one cache; arrays of one length. `parents`: names, 0 = none or not
    resident; `depths`: 1-based places in their prompts; `touched`: seconds."""

    replica: str
    model: str | None
    tier: str
    block_size: int
    names: Keys
    parents: Keys
    depths: Slots
    copies: Slots
    touched: Seconds


class Use(NamedTuple):
    """A request: its chain, and for whom it was."""

    chain: Keys
    template: str | None
    tenant: str | None


class Contents:
    """Remembers the last requests, and the copies of the last look."""

    def __init__(self, key_id: str) -> None:
        self._key_id = key_id
        self._uses: deque[Use] = deque(maxlen=_REMEMBERED_REQUESTS)
        self._hashes = 0
        # Models and tiers that held something at the last look.
        self._told: set[tuple[str | None, str]] = set()
        self._looked: datetime | None = None
        self._changed = False
        self.copies: dict[str, tuple[int, int]] | None = None

    def remember(self, row: UsedPrefix, chain: Keys) -> None:
        """Keep a request's chain for a while."""
        if len(self._uses) == self._uses.maxlen:
            self._forget()
        self._uses.append(Use(chain, row.template, row.tenant))
        self._hashes += len(chain)
        while self._hashes > _REMEMBERED_HASHES and len(self._uses) > 1:
            self._forget()

    def _forget(self) -> None:
        self._hashes -= len(self._uses.popleft().chain)

    def uses(self) -> list[Use]:
        """The remembered requests, for a look at what does not change meanwhile."""
        return list(self._uses)

    def is_due(self, blocks: int, changed: bool, now: datetime) -> bool:
        """Whether it is time for another look at so many blocks. `changed`: since the last call."""
        self._changed |= changed
        good_seconds = blocks * _SECONDS_PER_BLOCK
        if self._looked is None or now < self._looked:
            return True
        return self._changed and (now - self._looked).total_seconds() >= good_seconds

    def look_through(
        self, holdings: Sequence[Holding], uses: Sequence[Use], now: datetime
    ) -> tuple[list[BlockCopies], list[ResidentPrefix]]:
        """Copies, which stand for the minute until the next look, and prefixes. Of a model and
        tier that holds nothing any more, that is said once."""
        self._looked, minute = now, now.replace(second=0, microsecond=0)
        self._changed = False
        copies: list[BlockCopies] = []
        prefixes: list[ResidentPrefix] = []
        found: dict[str, tuple[int, int]] = {}
        told: set[tuple[str | None, str]] = set()
        for model, tier, group in _by_model_and_tier(holdings):
            rows = list(_copies(minute, model, tier, group))
            if tier == "device":
                found[model or ""] = (rows[0].unique_blocks, rows[0].resident_blocks)
            copies += rows
            told.add((model, tier))
            prefixes += self._prefixes(now, model, tier, group, uses)
        for model, tier in self._told - told:
            copies.append(BlockCopies(minute, model, tier, None, None, 0, 0, None))
        self.copies, self._told = found, told
        return copies, prefixes

    def _prefixes(
        self,
        now: datetime,
        model: str | None,
        tier: str,
        group: Sequence[Holding],
        uses: Sequence[Use],
    ) -> Iterator[ResidentPrefix]:
        listed = Forest.of(_bounded(group)).largest(LISTED_PREFIXES)
        users = _used_by([prefix.name for prefix in listed], uses)
        for prefix in listed:
            requests, template, tenant = users.get(prefix.name, (0, None, None))
            yield ResidentPrefix(
                as_of=now,
                model=model,
                tier=tier,
                prefix=prefix.name,
                hash_key_id=self._key_id,
                prefix_tokens=prefix.prefix_tokens,
                blocks=prefix.blocks,
                tokens=prefix.tokens,
                replicas=prefix.replicas,
                requests=requests or None,
                template=template,
                tenant=tenant,
                last_used=datetime.fromtimestamp(prefix.touched, UTC),
            )


def _used_by(
    names: Sequence[int], uses: Sequence[Use]
) -> dict[int, tuple[int, str | None, str | None]]:
    """Of each prefix: how many of the requests begin with it, and their template and tenant where
    that is one."""
    if not uses or not names:
        return {}
    hashes = np.concatenate([use.chain for use in uses])
    owner = np.repeat(np.arange(len(uses)), [len(use.chain) for use in uses])
    wanted = np.sort(np.array(names, np.uint64))
    place = np.searchsorted(wanted, hashes).clip(max=len(wanted) - 1)
    hit = wanted[place] == hashes
    users: dict[int, list[Use]] = {}
    pairs = zip(wanted[place[hit]].tolist(), owner[hit].tolist(), strict=True)
    for name, number in pairs:
        users.setdefault(name, []).append(uses[number])
    return {
        name: (
            len(found),
            _only({use.template for use in found}),
            _only({use.tenant for use in found}),
        )
        for name, found in users.items()
    }


def _only(values: set[str | None]) -> str | None:
    return next(iter(values)) if len(values) == 1 else None


def _by_model_and_tier(
    holdings: Sequence[Holding],
) -> Iterator[tuple[str | None, str, list[Holding]]]:
    def key(holding: Holding) -> tuple[str, str]:
        return holding.model or "", holding.tier

    some = [holding for holding in holdings if len(holding.names)]
    for (_, tier), group in groupby(sorted(some, key=key), key=key):
        found = list(group)
        yield found[0].model, tier, found


def _bounded(group: Sequence[Holding]) -> list[Holding]:
    kept: list[Holding] = []
    blocks = 0
    for holding in group:
        blocks += len(holding.names)
        if kept and blocks > FOREST_BLOCKS:
            break
        kept.append(holding)
    return kept


def _copies(
    minute: datetime, model: str | None, tier: str, group: Sequence[Holding]
) -> Iterator[BlockCopies]:
    """The fleet's row, then one for every pair of replicas."""
    every = -(-sum(len(holding.names) for holding in group) // COPIES_SAMPLE)
    samples = [holding.names % np.uint64(every) == 0 for holding in group]
    names = [holding.names[chosen] for holding, chosen in zip(group, samples, strict=True)]
    resident = [
        int(holding.copies[chosen].sum()) for holding, chosen in zip(group, samples, strict=True)
    ]
    distinct, place = np.unique(np.concatenate(names), return_inverse=True)
    yield BlockCopies(
        minute, model, tier, None, None, len(distinct) * every, sum(resident) * every, None
    )
    if not 1 < len(group) <= PAIRED_REPLICAS:
        return
    holds = np.zeros((len(group), len(distinct)), np.float32)
    holds[np.repeat(np.arange(len(group)), [len(each) for each in names]), place] = 1
    shared: npt.NDArray[np.float32] = holds @ holds.T
    order = sorted(range(len(group)), key=lambda number: group[number].replica)
    for first, a in enumerate(order):
        for b in order[first + 1 :]:
            both = int(shared[a, b])
            yield BlockCopies(
                minute, model, tier, group[a].replica, group[b].replica,
                (int(shared[a, a]) + int(shared[b, b]) - both) * every,
                (resident[a] + resident[b]) * every, both * every,
            )  # fmt: skip
