"""Templates found from chains alone: the prefixes behind which requests part.

Prompts that begin alike form a tree. A template ends where its callers put something of their own:
there the tree parts into many ways, each taken by one caller. Where it parts into few ways, each
taken by many, these are templates that begin alike, and the way to them is none. A conversation
parts hardly at all, as each turn extends the one before, and a prompt sent again goes the same way.

What chains cannot tell: whether ten documents that follow one instruction, each asked about by many
callers, are ten templates or one. Here they are ten.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from replay.traffic import Chains, Names, Numbers

# So many callers must part behind a prefix: a prompt that is tried out, edited or answered anew
# parts into a few ways. Where conversations are not known, one that was taken up again at many
# places looks like many callers, so that more are asked for.
MIN_CALLERS = 5
MIN_UNKNOWN_CALLERS = 8
# And of all requests at least this share begins with it: smaller ones are documents that a few ask
# about rather than templates, and more than 200 names nobody looks through.
MIN_REQUEST_SHARE = 0.005
# A prefix that extends another one is a template of its own where it has at least this share of the
# ways of the other. A question that many ask is a prefix too, but few of all callers ask it.
MIN_EXTENSION_SHARE = 0.1


@dataclass(frozen=True)
class PrefixGroup:
    """A shared prefix: `blocks` long, as the request `member` has it; `callers`: how many part
    behind it."""

    blocks: int
    member: int
    callers: int


@dataclass(frozen=True)
class PrefixGroups:
    """What was found. `of`: for each request the place in `found` of the longest prefix that it
    begins with, -1 where there is none."""

    found: list[PrefixGroup]
    of: Numbers


def prefix_groups(chains: Chains, caller: Numbers, prompt_tokens: Numbers) -> PrefixGroups:
    """The shared prefixes of requests. `caller`: a number for each conversation, one below 0 for
    each request of an unknown one. Prompts that end in one block are told apart by their tokens.

    No requests, or none with a chain: nothing is found.
    """
    order, lengths = _sorted(chains), chains.lengths
    shared = _shared_blocks(chains, order)
    kept = _kept(_parting(order, lengths[order], shared, caller[order], prompt_tokens[order]))
    of = np.full(len(order), -1, np.int64)
    for place, node in enumerate(kept):  # inner ones overwrite outer ones
        of[order[node.begin : node.end]] = place
    groups = [PrefixGroup(node.blocks, int(order[node.begin]), len(node.parting)) for node in kept]
    return PrefixGroups(groups, of)


def scope_free(chains: Chains) -> Chains:
    """The same chains named by contents alone, so that prompts of different scopes can be compared.

    A running sum of the contents, each weighed by its place. Raises ValueError without contents.
    """
    if chains.contents is None:
        raise ValueError("chains without content hashes have no names beyond their scope")
    weighed = chains.contents * _weights(int(chains.lengths.max(initial=0)))[_places(chains)]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(weighed, dtype=np.uint64)])
    before = np.repeat(sums[chains.starts[:-1]], chains.lengths)
    return Chains(sums[1:] - before, chains.starts, chains.grain_tokens, chains.contents)


def _places(chains: Chains) -> Numbers:
    """The place of each block in its chain, from 0."""
    begins = np.repeat(chains.starts[:-1], chains.lengths)
    return np.arange(len(chains.names)) - begins


def _weights(count: int) -> Names:
    """Odd numbers that look drawn at random and are always the same (SplitMix64)."""
    state = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (state ^ (state >> np.uint64(31))) | np.uint64(1)


def _sorted(chains: Chains) -> Numbers:
    """Requests in the order of their chains, so that those that begin alike stand together."""
    names = chains.names.astype(">u8").tobytes()
    keys = [
        names[begin * 8 : end * 8]
        for begin, end in zip(chains.starts[:-1].tolist(), chains.starts[1:].tolist(), strict=True)
    ]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)


def _shared_blocks(chains: Chains, order: Numbers) -> list[int]:
    """How many blocks each request in order has in common with the one before; of the first 0."""
    names, starts, lengths = chains.names, chains.starts[:-1].tolist(), chains.lengths.tolist()
    shared = [0] if len(order) else []
    places = order.tolist()
    for one, other in pairwise(places):
        count = min(lengths[one], lengths[other])
        first, second = starts[one], starts[other]
        differ = names[first : first + count] != names[second : second + count]
        shared.append(int(differ.argmax()) if differ.any() else count)
    return shared


@dataclass
class _Node:
    """A place where prompts part or end, of the requests `begin` until before `end` in order.

    `loose`: a caller for each way that leads to no template; `ends`: the same by length of prompts
    that end here. `leads`: a template was found behind it.
    """

    blocks: int
    begin: int
    end: int = 0
    loose: set[int] = field(default_factory=set)
    ends: dict[int, int] = field(default_factory=dict)
    leads: bool = False

    @property
    def parting(self) -> set[int]:
        """Callers that part here."""
        return self.loose.union(self.ends.values())

    @property
    def is_template(self) -> bool:
        """Are they enough?"""
        unknown = sum(caller < 0 for caller in self.parting)
        known = len(self.parting) - unknown
        return known / MIN_CALLERS + unknown / MIN_UNKNOWN_CALLERS >= 1

    def add(self, other: "_Node", caller: int) -> None:
        """Take in a way that leads to another place where prompts part."""
        if other.leads:
            self.loose |= other.parting
        else:
            self.loose.add(caller)
        self.leads |= other.leads


def _parting(
    order: Numbers,
    lengths: Numbers,
    shared: Sequence[int],
    caller: Numbers,
    prompt_tokens: Numbers,
) -> Iterator[_Node]:
    """Every prefix behind which enough callers part, longer ones before those they extend."""
    callers, tokens, blocks = caller.tolist(), prompt_tokens.tolist(), lengths.tolist()
    least = MIN_REQUEST_SHARE * len(order)
    stack = [_Node(0, 0)]
    for place in range(len(order)):
        following = shared[place + 1] if place + 1 < len(order) else 0
        if following > stack[-1].blocks:
            stack.append(_Node(following, place))
        node = stack[-1]
        if blocks[place] == node.blocks:
            node.ends.setdefault(tokens[place], callers[place])
        else:
            node.loose.add(callers[place])
        while stack[-1].blocks > following:
            node = stack.pop()
            node.end = place + 1
            if stack[-1].blocks < following:
                stack.append(_Node(following, node.begin))
            if node.end - node.begin >= least and node.is_template:
                yield node
                stack[-1].leads = True
            else:
                stack[-1].add(node, callers[node.begin])


def _kept(nodes: Iterable[_Node]) -> list[_Node]:
    """Without those that extend another one for few of its callers; outer before inner ones."""
    kept: list[_Node] = []
    around: list[_Node] = []
    for node in sorted(nodes, key=lambda node: (node.begin, node.blocks)):
        while around and around[-1].end <= node.begin:
            around.pop()
        outer = len(around[-1].parting) if around else 0
        if len(node.parting) >= MIN_EXTENSION_SHARE * outer:
            kept.append(node)
            around.append(node)
    return kept
