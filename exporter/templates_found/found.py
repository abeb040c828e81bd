"""What a sample shows: shared prefixes with their names, and by which chains they are known.

A name is `auto:` and 8 hex letters of a keyed hash of the prefix's chain hash, in no scope where
contents tell it: so it is the same tomorrow, after a restart, on every exporter that has the key,
and for every tenant whose salt makes the same prompt other chains.
"""

import struct
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b, sha256

import numpy as np

from exporter.templates_found.sample import Sample
from queries.times import utc_without_zone
from replay.byte_chunks import text_key_id
from replay.hashes import extend_chain, hash_key_id, root_hash
from replay.prefix_groups import PrefixGroup, PrefixGroups, prefix_groups
from replay.prefix_heirs import heirs
from replay.traffic import Numbers

PREFIX = "auto:"
# Those that carry most tokens; a person looks through no more, and /metrics keeps as many apart.
MOST_TEMPLATES = 100


@dataclass(frozen=True)
class FoundPrefix:
    """A chain by which a template is known: the hash of its last block in one scope."""

    prefix: int
    hash_key_id: str
    place: str
    blocks: int


@dataclass(frozen=True)
class FoundTemplate:
    """One of a sample. `prefix`: its chain hash in no scope; `heir_of`: name of the one it took
    over from."""

    name: str
    prefix: int
    hash_key_id: str
    prefix_tokens: int
    first_seen: datetime
    last_seen: datetime
    requests: int
    known_by: list[FoundPrefix]
    heir_of: str | None = None


def found_in(sample: Sample, key: str) -> list[FoundTemplate]:
    """The templates of a sample that carry most tokens, those of most first."""
    if not len(sample):
        return []
    groups = prefix_groups(sample.chains, sample.caller, sample.prompt_tokens)
    heir_of = heirs(sample.chains, groups, sample.started, [sample.tenant, sample.route]).tolist()
    found = [_template(sample, groups, place, key) for place in range(len(groups.found))]
    named = [
        replace(template, heir_of=found[old].name if old >= 0 else None)
        for template, old in zip(found, heir_of, strict=True)
    ]
    largest = sorted(named, key=lambda one: (-one.prefix_tokens * one.requests, one.name))
    return largest[:MOST_TEMPLATES]


def _template(sample: Sample, groups: PrefixGroups, place: int, key: str) -> FoundTemplate:
    group = groups.found[place]
    own = np.flatnonzero(groups.of == place)
    prefix = _prefix(sample, group, key)
    key_id = sample.hash_key_id[group.member]
    seconds = sample.started[own]
    return FoundTemplate(
        name=_name(prefix, key_id, sample.place[group.member], key),
        prefix=prefix,
        hash_key_id=key_id,
        prefix_tokens=_tokens(sample, group, own, key),
        first_seen=_moment(seconds.min()),
        last_seen=_moment(seconds.max()),
        requests=len(own),
        known_by=_known_by(sample, group, own),
    )


def _prefix(sample: Sample, group: PrefixGroup, key: str) -> int:
    """The chain hash of the last block; in no scope where it can be worked out with our key."""
    begin = int(sample.chains.starts[group.member])
    own_keys = (hash_key_id(key), text_key_id(key))
    if sample.hash_key_id[group.member] in own_keys and sample.has_contents[group.member]:
        assert sample.chains.contents is not None
        contents = sample.chains.contents[begin : begin + group.blocks].tolist()
        return extend_chain(root_hash("", key), contents, key)[-1]
    return int(sample.names[begin + group.blocks - 1])


def _name(prefix: int, key_id: str, place: str, key: str) -> str:
    """Of hashes that are not ours (a trace's own) too, so that these give nothing away either."""
    secret = sha256(key.encode()).digest()
    digest = blake2b(struct.pack("<Q", prefix), digest_size=4, key=secret, person=b"template")
    digest.update(f"{key_id}/{place}".encode())
    return PREFIX + digest.hexdigest()


def _tokens(sample: Sample, group: PrefixGroup, own: Numbers, key: str) -> int:
    """Chunks of text stand for as many tokens as the prompts' own, on average."""
    grain = int(sample.grain_tokens[group.member])
    if sample.hash_key_id[group.member] == text_key_id(key):
        whole = own[sample.prompt_tokens[own] > 0]
        blocks = int(sample.chains.lengths[whole].sum())
        return round(group.blocks * int(sample.prompt_tokens[whole].sum()) / max(blocks, 1))
    return group.blocks * grain


def _known_by(sample: Sample, group: PrefixGroup, own: Numbers) -> list[FoundPrefix]:
    """A chain for each scope in which the template was met."""
    ends = sample.names[sample.chains.starts[own] + group.blocks - 1].tolist()
    keys = (sample.hash_key_id[row] for row in own.tolist())
    places = (sample.place[row] for row in own.tolist())
    met = dict.fromkeys(zip(ends, keys, places, strict=True))
    return [FoundPrefix(end, key_id, place, group.blocks) for end, key_id, place in met]


def _moment(seconds: float) -> datetime:
    return utc_without_zone(datetime.fromtimestamp(float(seconds), UTC))
