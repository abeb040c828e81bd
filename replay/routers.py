"""Who gets a request: the routers of an experiment, named as gateways name them.

| router | the request goes to |
| --- | --- |
| random | any replica, by a seeded draw |
| round-robin | request i to replica i mod N |
| least-loaded | the replica with the least load |
| sticky | the one that consistent hashing of its first blocks names |
| session | the same by its session; without one as `sticky` |
| bounded-load | as `sticky`, past replicas loaded above `slack` times the mean, along the ring |
| scored | the one where uncached tokens + `load_weight` × load is least |
| longest-prefix | the one that holds most of the prompt, whatever its load |

Load is in tokens: those to be computed that are outstanding, or, without a clock, those computed
so far. With a clock it can be requests under way instead, by which most gateways go. Of replicas
that are alike to `least-loaded`, `scored` and `longest-prefix` they take turns, as an idle fleet
would pile everything onto its first otherwise, or that first one is taken, as vllm-router does.
Bounded loads: Mirrokni, Thorup, Zadimoghaddam, "Consistent hashing with bounded loads", 2018, here
with tokens, and a replica judged by the load it has before the request.
"""

from dataclasses import dataclass

import numpy as np

from replay.compiled import part
from replay.known_blocks import GOLDEN, mixed
from replay.prompts import Prompts
from replay.traffic import Names, Numbers, Small

ROUTERS = (
    "random",
    "round-robin",
    "least-loaded",
    "sticky",
    "session",
    "bounded-load",
    "scored",
    "longest-prefix",
)
RANDOM, ROUND_ROBIN, LEAST_LOADED, STICKY, SESSION, BOUNDED, SCORED, LONGEST = range(len(ROUTERS))
# Places of a replica on the ring: with these, shares of keys differ by about a tenth.
_RING_PLACES = 160


@dataclass(frozen=True, kw_only=True)
class Router:
    """One of ROUTERS and its settings. `prefix_blocks`: leading blocks that make a key.
    `counts_requests`: load is requests under way, until their last token. `takes_turns`: whether
    replicas that are alike do, or the first one is taken."""

    name: str
    prefix_blocks: int = 2
    slack: float = 1.25
    load_weight: float = 1.0
    counts_requests: bool = False
    takes_turns: bool = True
    seed: int = 1

    def __post_init__(self) -> None:
        if self.name not in ROUTERS:
            raise ValueError(f"unknown router {self.name!r}; known: {', '.join(ROUTERS)}")
        if self.prefix_blocks < 1 or self.slack < 1 or self.load_weight < 0:
            raise ValueError("prefix_blocks and slack must be at least 1, load_weight at least 0")

    @property
    def number(self) -> int:
        """Its place in ROUTERS, as compiled code knows it."""
        return ROUTERS.index(self.name)

    def keys(self, prompts: Prompts, sessions: Names | None) -> Names:
        """What consistent hashing goes by: of `session` the conversation, where it is known."""
        if self.number == SESSION and sessions is not None:
            return sessions
        return keys_of(prompts.blocks, prompts.starts, self.prefix_blocks, prompts.lengths)

    def draws(self, requests: int) -> Numbers:
        """A number for each request, from which `random` chooses."""
        return np.random.default_rng(self.seed).integers(0, 1 << 31, requests)


@dataclass(frozen=True)
class Ring:
    """Consistent hashing: places in ascending order, and whose they are."""

    places: Names
    owners: Small

    @classmethod
    def of(cls, replicas: int) -> "Ring":
        """The places of a replica do not depend on how many others there are.

        Keys are small numbers scattered by `mixed`, so places are those of large ones: else the
        first keys would stand at the places of the first replica.
        """
        numbers = np.arange(replicas * _RING_PLACES, dtype=np.uint64)
        places = mixed(GOLDEN * (numbers + np.uint64(1)))
        order = np.argsort(places)
        return cls(places[order], (order // _RING_PLACES).astype(np.int32))

    def first(self, keys: Names) -> Numbers:
        """Where on the ring each key is found: an index of `places`."""
        found: Numbers = np.searchsorted(self.places, keys) % len(self.places)
        return found


def keys_of(
    blocks: Small, starts: Numbers, prefix_blocks: int, lengths: Numbers | None = None
) -> Names:
    """The key of every prompt: its block number `prefix_blocks`, which stands for all before it
    too, or the last one of a shorter prompt. Prompts without a block are all alike. `lengths`:
    blocks of each prompt, where others stand behind them."""
    lengths = np.diff(starts) if lengths is None else lengths
    place = starts[:-1] + np.minimum(lengths, prefix_blocks) - 1
    keys = np.zeros(len(lengths), np.uint64)
    named = lengths > 0
    keys[named] = blocks[place[named]].astype(np.uint64) + np.uint64(1)
    return mixed(keys)


@part
def pick(
    router: int,
    request: int,
    first: int,
    owners: Small,
    loads: Numbers,
    uncached: Numbers,
    slack: float,
    load_weight: float,
    draw: int,
    takes_turns: bool,
) -> int:
    """The replica that a router picks. `first`: where on the ring the key of the request is;
    `uncached`: tokens each replica would have to compute; `draw`: any number, for `random`."""
    if router == RANDOM:
        return draw % len(loads)
    if router == ROUND_ROBIN:
        return request % len(loads)
    if router in (STICKY, SESSION):
        return int(owners[first])
    if router == BOUNDED:
        return _next_below(owners, first, loads, slack * (loads.sum() / len(loads)))
    best, least = 0, np.inf
    begin = request if takes_turns else 0
    for step in range(len(loads)):
        replica = (begin + step) % len(loads)
        cost = 0.0 if router == LEAST_LOADED else float(uncached[replica])
        if router != LONGEST:
            cost += (1.0 if router == LEAST_LOADED else load_weight) * loads[replica]
        if cost < least:
            best, least = replica, cost
    return best


@part
def _next_below(owners: Small, first: int, loads: Numbers, limit: float) -> int:
    """The next replica along the ring that is not above the limit: one always is not, as the
    limit is not below the mean."""
    at = first
    while loads[owners[at]] > limit:
        at = (at + 1) % len(owners)
    return int(owners[at])
