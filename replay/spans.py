"""A span of traffic as a pass that goes on is given it, and the lasting keys of what it names."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from replay.columns import Columns
from replay.contents import prefix_names
from replay.known_blocks import GOLDEN, Blocks, mixed, numbered, within
from replay.rules import CacheRule
from replay.traffic import Flags, Moments, Names, Numbers, Small, Stays, Traffic


@dataclass(frozen=True, kw_only=True)
class TrafficSpan:
    """Requests that looked up from `since_seconds` on; what is known is known until
    `until_seconds`.

    `rules`: by which to judge, with `judged`: which requests by each; all count by the same
    ceiling. `replicas`, `deployments`, `scopes`: lasting names and 64-bit numbers of those that the
    traffic numbers. `resets`, `gone`, `stays`: by the same numbers of replicas and deployments.
    `open_scopes`: of which lately came requests that are not in any span, as they have no chain.
    `lower_tiers`: replicas that can reach a tier which a reset does not empty.
    """

    traffic: Traffic
    rules: Sequence[CacheRule]
    judged: Sequence[Flags]
    replicas: Sequence[str]
    deployments: Names
    scopes: Names
    since_seconds: float
    until_seconds: float
    resets: Moments = field(default_factory=Moments)
    gone: Moments = field(default_factory=Moments)
    stays: Stays | None = None
    open_scopes: Names = field(default_factory=lambda: np.empty(0, np.uint64))
    lower_tiers: Sequence[str] = ()


@dataclass(frozen=True)
class SpanKeys:
    """Keys of all blocks of a span, in the order of look-ups: names that mean the same in any span.

    `block`: a number for each different key, `first`: where it stands first. `contents` and
    `prefixes` (None where blocks are known by chain only) have an entry for each piece or block.
    `roots`: of each request, what all chains of its scope begin with.
    """

    columns: Columns
    owner: Small
    keys: Names
    block: Small
    first: Numbers
    contents: Names | None
    content_owner: Small
    prefixes: Names | None
    bare_prefixes: Names | None
    roots: Names

    @property
    def different(self) -> Names:
        """Each key once."""
        return self.keys[self.first]

    @classmethod
    def of(cls, columns: Columns, deployments: Names, scopes: Names) -> "SpanKeys":
        """`deployments`, `scopes`: lasting numbers of those that the columns number."""
        chains = columns.chains
        owner = np.repeat(np.arange(len(columns), dtype=np.int32), chains.lengths)
        deployment = deployments[columns.deployment]
        keys = within(chains.names, deployment[owner])
        block, count = numbered(keys)
        prefixes = bare = None
        if chains.contents is not None:
            bare = prefix_names(chains.contents, Blocks(block, owner, chains.starts, count))
            prefixes = within(bare, deployment[owner])
        space = mixed(deployment + GOLDEN * scopes[columns.scope])
        contents, content_owner = _contents(columns, owner)
        if contents is not None:
            contents = within(contents, space[content_owner])
        return cls(
            columns, owner, keys, block, first_places(block, count), contents, content_owner,
            prefixes, bare, mixed(~space),
        )  # fmt: skip


def first_places(numbers: Small, count: int) -> Numbers:
    """Where each number stands first."""
    first = np.zeros(count, np.int64)
    first[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)
    return first


def _contents(columns: Columns, owner: Small) -> tuple[Names | None, Small]:
    """Names of what prompts hold, whatever stands before it: of pieces, else of blocks."""
    if columns.pieces is None:
        return columns.chains.contents, owner
    lengths = np.diff(columns.pieces.starts)
    return columns.pieces.names, np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
