"""Rows of requests as the traffic that causes are worked out from.

Rows whose chains cannot be compared (another grain, another way a cache counts) become traffic of
their own. A row that no chain was given for goes with the largest part of those
whose caches count as its own does.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exporter.causes.block_sizes import BlockSizes
from replay.chain_rows import (
    OF_TEXT,
    chains_of,
    codes,
    deployments_of,
    grains_of,
    places_of,
    row_pieces,
    taken,
    whole_of,
)
from replay.hashes import HASH_GRAIN_TOKENS
from replay.rules import RULES, CacheRule
from replay.scaled import Scale
from replay.traffic import NOT_REPORTED, Flags, Numbers, Seconds, Traffic

# What is large of a row: taken only where chains are read.
CHAINS = ("block_hashes", "content_hashes", "piece_hashes", "piece_lengths")
# Rules of hosted caches; every other cache counts whole blocks unless the person says otherwise.
_PROVIDER_RULES = {
    "anthropic": "anthropic",
    "openai": "openai",
    **dict.fromkeys(("azure", "azure_openai", "az.ai.openai", "azure.ai.openai"), "openai"),
}
# What clients say of every server that speaks its protocol.
_SAID_OF_ALL = "openai"
_DEFAULT_RULE = "full"
# Where a request skips the look-up its blocks are computed and kept like any other's.
_KEPT = "lookup_skipped"
_BELOW_MINIMUM = "below_minimum"
# A request is taken to be over by then, whatever its row says: what is under way is remembered
# apart from all that has a limit.
_LONGEST_SECONDS = 3600.0


@dataclass(frozen=True)
class Part:
    """Rows that can be compared, seen through the rule of some. `rows`: their places in the table;
    `judged`: those the rule is that of, the others being what they met. `is_hosted`: it is that of
    their provider, whose memory nobody knows. `scale`: prompts are known by their text, and the
    traffic counts in units of it."""

    traffic: Traffic
    rule: CacheRule
    rows: Numbers
    judged: Flags
    is_hosted: bool
    scale: Scale | None = None

    @property
    def traffic_rule(self) -> CacheRule:
        """The rule as it holds for the traffic: a minimum in tokens says nothing of units."""
        return self.rule if self.scale is None else replace(self.rule, minimum_tokens=0)


def parts_of(
    table: pa.Table,
    rule: CacheRule | None = None,
    block_tokens: int | None = None,
    *,
    told: Mapping[str, int] | None = None,
    approximate: bool = False,
    lasting: BlockSizes | None = None,
) -> Iterator[Part]:
    """The rows of a `request_chains` answer, part by part; of an empty table none.

    `rule` and `block_tokens`: what the person says holds for all. `told`: replica → tokens a
    block, as its events say. `approximate`: those known by chunks of their text are a part too,
    with a scale; else they are rows without a chain. `lasting`: the rows are some of many, and
    come in time; block sizes are those of all so far, and names of blocks mean the same in all.
    """
    table = table if approximate else _without_texts(table)
    grains = grains_of(table)
    names = _rule_names(table) if rule is None else [rule.name] * len(table)
    sizes = _block_sizes(table, np.abs(grains), block_tokens, told or {}, lasting or BlockSizes())
    # A rule that knows its block makes no difference between those that rows state.
    sizes[[bool((rule or RULES[name]).block_tokens) for name in names]] = 0
    kinds = _with_largest([*zip(names, grains.tolist(), sizes.tolist(), strict=True)])
    order = _order(table)
    for name, grain in dict.fromkeys(kind[:2] for kind in kinds):
        rows = order[np.array([kind[:2] == (name, grain) for kind in kinds])[order]]
        traffic = None
        own_sizes = np.array([kinds[row][2] for row in rows.tolist()])
        for size in dict.fromkeys(own_sizes.tolist()):
            found = (rule or RULES[name]).of_blocks(size or abs(grain) or HASH_GRAIN_TOKENS)
            if traffic is None:
                own = taken(table, rows)
                scale = _scale(own) if grain == OF_TEXT else None
                own = own if scale is None else _in_units(own, scale, found)
                one_of_many = lasting is not None
                traffic = _traffic(own, abs(grain) or HASH_GRAIN_TOKENS, found, one_of_many)
            is_hosted = rule is None and name != _DEFAULT_RULE
            yield Part(traffic, found, rows, own_sizes == size, is_hosted, scale)


def _without_texts(table: pa.Table) -> pa.Table:
    """The same with no chain where it is one of chunks of text."""
    texts = table["text_bytes"].is_valid()
    if not pc.any(texts).as_py():
        return table
    places = pc.if_else(texts, pa.scalar(None, pa.int64()), pa.array(np.arange(len(table))))
    for name in CHAINS:
        number = table.schema.get_field_index(name)
        table = table.set_column(number, name, table[name].take(places))
    return table


def _scale(table: pa.Table) -> Scale:
    columns = [("prompt_tokens", 0), ("cached_tokens", NOT_REPORTED), ("text_bytes", 0)]
    return Scale.of(*(whole_of(table[name], otherwise) for name, otherwise in columns))


def _in_units(table: pa.Table, scale: Scale, rule: CacheRule) -> pa.Table:
    """The same with all counts in units of text, and prompts that are too short in tokens out."""
    for name in ("prompt_tokens", "cached_tokens", "cache_write_tokens", "output_tokens"):
        units = scale.units(whole_of(table[name], NOT_REPORTED))
        column = pa.array(units, mask=units == NOT_REPORTED)
        table = table.set_column(table.schema.get_field_index(name), name, [column])
    short = pa.array(rule.too_short(scale.prompt_tokens))
    reason = pc.if_else(short, _BELOW_MINIMUM, table["ineligible_reason"])
    place = table.schema.get_field_index("ineligible_reason")
    return table.set_column(place, "ineligible_reason", reason)


# Name of the rule, tokens a hash (0: no chain, OF_TEXT: chunks of text), tokens a block of the
# cache (0: nothing tells).
_Kind = tuple[str, int, int]


def _with_largest(kinds: Sequence[_Kind]) -> list[_Kind]:
    """Rows without a chain put with the most of their rule that have one, if any have."""
    largest: dict[str, _Kind] = {}
    for kind, _ in Counter(kind for kind in kinds if kind[1]).most_common():
        largest.setdefault(kind[0], kind)
    return [kind if kind[1] else largest.get(kind[0], kind) for kind in kinds]


def _order(table: pa.Table) -> Numbers:
    """The places of rows in the order in which they came, which is how bare traces run."""
    order: Numbers = np.lexsort((whole_of(table["position"], 0), whole_of(table["batch"], 0)))
    return order


def _rule_names(table: pa.Table) -> list[str]:
    """A replica of one's own is no hosted cache, and nor is a block size where the provider is
    one that clients of any server name."""
    stated = (whole_of(table["block_size"], 0) > 0).tolist()
    names = []
    for row, (provider, replica) in enumerate(
        zip(table["provider"].to_pylist(), table["replica"].to_pylist(), strict=True)
    ):
        name = provider.lower()
        own = replica or (name == _SAID_OF_ALL and stated[row])
        names.append(_DEFAULT_RULE if own else _PROVIDER_RULES.get(name, _DEFAULT_RULE))
    return names


def _block_sizes(
    table: pa.Table,
    grains: Numbers,
    block_tokens: int | None,
    told: Mapping[str, int],
    known: BlockSizes,
) -> Numbers:
    """Tokens a block of the cache that served each row: what the person says, else the events of
    its replica, else the row itself, else most rows of its model there, else most of all; 0 where
    nothing tells."""
    if block_tokens is not None:
        return np.full(len(table), block_tokens)
    sizes = whole_of(table["block_size"], 0).copy()
    # A row that names no replica is of one of those that were heard.
    unnamed = next(iter(told.values())) if len(set(told.values())) == 1 else 0
    by_events = {"": unnamed} | dict(told)
    heard = np.array([by_events.get(name, 0) for name in table["replica"].to_pylist()], np.int64)
    sizes = np.where(heard > 0, heard, sizes)
    unknown = sizes <= 0
    known.fill(sizes, places_of(table, "model", "replica"))
    smaller, larger = np.minimum(sizes, grains), np.maximum(sizes, grains)
    sizes[unknown & (smaller > 0) & (larger % np.maximum(smaller, 1) != 0)] = 0
    return sizes


def _traffic(table: pa.Table, grain_tokens: int, rule: CacheRule, one_of_many: bool) -> Traffic:
    cached = whole_of(table["cached_tokens"], NOT_REPORTED)
    reported = one_of_many or bool((cached != NOT_REPORTED).any())
    started = table["ts"].cast(pa.int64()).to_numpy() / 1e6
    latest = started + _LONGEST_SECONDS
    looked_up = np.minimum(started + _seconds(table["queue_seconds"], 0.0), latest)
    scheduled = pc.equal(table["ttft_point"], "engine_scheduled").fill_null(False).to_numpy()
    ended = np.minimum(started + _seconds(table["e2e_seconds"]), latest)
    ready = np.where(scheduled, looked_up, started) + _seconds(table["ttft_seconds"])
    ready = np.minimum(ready, latest)
    ready = np.where(np.isnan(ready), ended, ready)
    reasons = table["ineligible_reason"].to_pylist()
    return Traffic(
        prompt_tokens=whole_of(table["prompt_tokens"], 0),
        cached_tokens=cached,
        chains=chains_of(table, grain_tokens, one_of_many),
        # Without observed counts it is a trace: it runs in its own order, by prompts alone.
        looked_up=looked_up if reported else None,
        ready=ready if reported else None,
        ended=ended if reported else None,
        replica=codes(table, "replica"),
        deployment=deployments_of(table),
        scope=codes(table, "scope"),
        ineligible=np.array([bool(reason) for reason in reasons]),
        kept=np.array([reason in ("", _KEPT) for reason in reasons]),
        output_tokens=whole_of(table["output_tokens"], 0) if reported else None,
        eligible_tokens=_eligible(table, cached, rule),
        pieces=row_pieces(table, one_of_many),
    )


def _eligible(table: pa.Table, cached: Numbers, rule: CacheRule) -> Numbers | None:
    """Hosted caches with a lifetime hold what is marked: what was read and what was written."""
    if rule.lifetime_seconds is None:
        return None
    written = whole_of(table["cache_write_tokens"], -1)
    prompt = whole_of(table["prompt_tokens"], 0)
    return np.where(written < 0, prompt, np.maximum(cached, 0) + written)


def _seconds(column: pa.ChunkedArray, otherwise: float = float("nan")) -> Seconds:
    filled: Seconds = column.fill_null(otherwise).to_numpy()
    return filled


def is_observed(table: pa.Table) -> bool:
    """Does any row tell what was cached?"""
    return bool(table["cached_tokens"].null_count < len(table))


def replica_names(table: pa.Table) -> list[str]:
    """The replicas of rows, in the order of their numbers."""
    return list(dict.fromkeys(table["replica"].to_pylist()))
