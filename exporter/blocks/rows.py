"""What the tracker hands to the store: one class a table, its fields the columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple


class UsedPrefix(NamedTuple):
    """A request as the tracker needs it, to know when blocks were used and for whom.

    `ts`: start, UTC (without a zone is taken as UTC). `block_hashes`: its chain of 16 tokens a
    hash. Only rows with `hash_scope` 'global' and our `hash_key_id` tell anything.
    """

    ts: datetime
    replica: str | None
    model: str | None
    block_hashes: Sequence[int] | None
    hash_scope: str | None
    hash_key_id: str | None
    cached_tokens: int | None
    template: str | None
    tenant: str | None


@dataclass(frozen=True)
class BlockMinute:
    """A row of `block_minutes`."""

    minute: datetime
    heard: datetime
    source: str
    replica: str
    model: str | None
    tier: str
    block_size: int | None
    stored_blocks: int
    evicted_blocks: int
    demoted_blocks: int
    promoted_blocks: int
    reset_blocks: int
    never_reused_blocks: int
    reuse_known_blocks: int
    resident_blocks: int
    resident_tokens: int
    uncertain: str | None
    lifetime: Mapping[int, int]
    idle: Mapping[int, int]
    reuse_gap: Mapping[int, int]
    evicted_reuse_gap: Mapping[int, int]


@dataclass(frozen=True)
class BlockReset:
    """A row of `block_resets`; reason: restart, clear, sleep or lost_events."""

    ts: datetime
    source: str
    replica: str
    model: str | None
    tier: str
    reason: str
    blocks: int


@dataclass(frozen=True)
class BlockStream:
    """A row of `block_streams`: the last state of a stream. `last_batch_ts`: the latest time in
    a batch of the publisher's present process, by the publisher's clock."""

    source: str
    replica: str
    model: str | None
    first_heard: datetime | None
    last_heard: datetime | None
    last_sequence: int | None
    last_batch_ts: datetime | None
    batches: int
    missed_batches: int
    replayed_batches: int
    restarts: int
    unreadable_batches: int
    connected: bool
    uncertain: str | None


@dataclass(frozen=True)
class ResidentPrefix:
    """A row of `resident_prefixes`. No block is counted in two rows."""

    as_of: datetime
    model: str | None
    tier: str
    prefix: int
    hash_key_id: str
    prefix_tokens: int
    blocks: int
    tokens: int
    replicas: int
    requests: int | None
    template: str | None
    tenant: str | None
    last_used: datetime | None


@dataclass(frozen=True)
class BlockCopies:
    """A row of `block_copies`: both replicas None = the whole fleet."""

    minute: datetime
    model: str | None
    tier: str
    replica_a: str | None
    replica_b: str | None
    unique_blocks: int
    resident_blocks: int
    shared_blocks: int | None


class Renamed(NamedTuple):
    """A stream goes by another name from now on: several ranks of its replica are heard. What was
    told of it before is to be found under the new name."""

    source: str
    model: str | None
    before: str
    now: str


@dataclass(frozen=True)
class Drained:
    """What happened since the last drain, and how things stand now.

    `minutes` and `resets` are added, `streams` and `copies` (those of their minute) replace their
    rows, `prefixes` replace the whole table (None = as before). `renamed` comes after `minutes`
    and `resets`, which may have the name before.
    """

    minutes: Sequence[BlockMinute] = ()
    resets: Sequence[BlockReset] = ()
    streams: Sequence[BlockStream] = ()
    renamed: Sequence[Renamed] = ()
    copies: Sequence[BlockCopies] = ()
    prefixes: Sequence[ResidentPrefix] | None = field(default=None)
