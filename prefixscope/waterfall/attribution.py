"""The causes of missed tokens, from rows of requests to sums that people read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exporter.causes.rows import CHAINS, Part, is_observed, parts_of, replica_names
from exporter.errors import PrefixscopeError
from prefixscope.waterfall.compared import Compared
from prefixscope.waterfall.heard import Heard, Served, beside
from replay.causes import CAUSES, DETAILS, Causes, attribute
from replay.chain_rows import lengths_of
from replay.columns import Fleet
from replay.lru import modelled_cached_tokens, round_robin
from replay.rules import RULES, BlockSizesDisagree, CacheRule
from replay.traffic import Flags, Traffic

DIMENSIONS = ("model", "route", "template", "tenant", "scope", "replica", "hour")
# What is new may only be older than the log, until its chains have gone on for so long.
HORIZON = timedelta(days=7)
# The tokens that were new by then.
WARMING = "new_warming"

Labels = npt.NDArray[np.object_]


@dataclass(frozen=True)
class Assumed:
    """What the person says of the caches. `replicas` and `capacity_blocks` (of each; None: never
    full) are those of a modelled cache, which stands in where rows tell no cached tokens."""

    rule: CacheRule | None = None
    block_tokens: int | None = None
    replicas: int | None = None
    capacity_blocks: int | None = None


@dataclass
class Sums:
    """Sums over requests whose cached tokens are known: prompt = cached + the sum of causes.

    `chainless_requests`: of these those that a cache could serve and that have no chain of blocks.
    `eligible_prompt_tokens` and `eligible_cached_tokens`: of those that a cache could serve at all.
    """

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    eligible_prompt_tokens: int = 0
    eligible_cached_tokens: int = 0
    unreported_requests: int = 0
    unreported_prompt_tokens: int = 0
    chainless_requests: int = 0
    chainless_prompt_tokens: int = 0
    warm_before_log_tokens: int = 0
    causes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0))
    details: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*DETAILS, WARMING), 0))

    @property
    def token_hit_ratio(self) -> float | None:
        """Cached ÷ prompt tokens of requests a cache could serve; None where there are none."""
        whole = self.eligible_prompt_tokens
        return self.eligible_cached_tokens / whole if whole else None

    def add(self, found: Causes, picked: Flags, rows: "_Rows") -> None:
        """More requests: those of `found` that are picked, which are of these rows."""
        known, unknown = picked & found.reported, picked & ~found.reported
        prompt, cached = found.prompt_tokens, found.cached_tokens
        eligible = known & ~found.no_cache
        self.requests += int(known.sum())
        self.prompt_tokens += int(prompt[known].sum())
        self.cached_tokens += int(cached[known].sum())
        self.eligible_prompt_tokens += int(prompt[eligible].sum())
        self.eligible_cached_tokens += int(cached[eligible].sum())
        self.unreported_requests += int(unknown.sum())
        self.unreported_prompt_tokens += int(prompt[unknown].sum())
        chainless = known & rows.chainless
        self.chainless_requests += int(chainless.sum())
        self.chainless_prompt_tokens += int(prompt[chainless].sum())
        self.warm_before_log_tokens += int(found.warm_before_log_tokens[known & rows.chained].sum())
        for name, tokens in found.totals(known).items():
            sums = self.details if name in DETAILS else self.causes
            sums[name] += tokens
        self.details[WARMING] += int(found.tokens["new"][known & rows.early].sum())


@dataclass(frozen=True)
class _Rows:
    """Of the rows of a part: which have a chain, which have none though a cache could serve them,
    and which came when its chains had not gone on for the horizon."""

    chained: Flags
    chainless: Flags
    early: Flags

    @classmethod
    def of(cls, own: pa.Table, chained: Flags) -> "_Rows":
        able = pc.equal(own["ineligible_reason"], "").to_numpy()
        moments = own["ts"].cast(pa.int64()).to_numpy()
        first = moments[chained].min() if chained.any() else 0
        early = moments < first + HORIZON // timedelta(microseconds=1)
        return cls(chained, ~chained & able, early)


class PartAudit(Protocol):
    """What looks at every part of an answer beside its causes."""

    def add(
        self, part: Part, served: tuple[Traffic, Fleet, Sequence[str]], found: Causes, picked: Flags
    ) -> None:
        """One part: what served it (its replicas by name), and the requests to sum."""


@dataclass(frozen=True)
class Waterfall:
    """Causes in sum and by value of a dimension.

    `rules`: in words, what the caches count by; `compared` None: nothing to compare with.
    `overruled_requests`: judged by another block than their row or its events state;
    `unplaced_requests`: of several ranks nothing tells which served them, so the first is taken;
    `approximate_requests`: known by chunks of their text, so that their causes are estimates;
    `unfit_requests`: left out, as their hashes and the block they are judged by do not go into each
    other.
    """

    total: Sums
    groups: dict[str, Sums]
    rules: list[str]
    is_modelled: bool
    compared: Compared | None
    overruled_requests: int
    unplaced_requests: int
    approximate_requests: int
    unfit_requests: int

    @property
    def warming(self) -> bool:
        """May some of what is new only be older than the log?"""
        return self.total.details[WARMING] > 0


class _UnfitBlocks(PrefixscopeError):
    """The hashes of a part do not go into the blocks that it is judged by."""


def waterfall(
    table: pa.Table,
    assumed: Assumed,
    heard: Heard | None = None,
    by: str | None = None,
    since: datetime | None = None,
    audits: Sequence[PartAudit] = (),
) -> Waterfall:
    """Name the causes of the rows of a `request_chains` answer from `since` on (UTC, no zone).

    Rows before it are history: what they had is known, and they are in no sum. `audits` see every
    part beside its causes. PrefixscopeError where there are no rows, or block sizes of none of them
    go into each other.
    """
    counted, chained = _from(table, since), lengths_of(table["block_hashes"]) > 0
    if not counted.any():
        raise PrefixscopeError("there are no requests with a prompt to explain")
    observed, heard = is_observed(table), heard or Heard()
    _check_lifetime(assumed, observed)
    total, groups = Sums(), dict[str, Sums]()
    rules: list[str] = []
    compared, overruled, unplaced, approximate = None, 0, 0, 0
    unfit: list[int] = []
    if observed and assumed.capacity_blocks is not None:
        compared = Compared(assumed.capacity_blocks)
    for part, picked, own, (served, found) in _parts(table, counted, assumed, heard, unfit):
        rows = _Rows.of(own, chained[part.rows])
        if part.scale is not None:
            approximate += int((picked & own["text_bytes"].is_valid().to_numpy()).sum())
        if compared is not None and not part.is_hosted and part.scale is None:
            compared.add(served.traffic, part.rule, picked)
        replicas = _named(served)
        overruled += int((picked & _overruled(own, part.rule, replicas, heard)).sum())
        unplaced += int((picked & served.unplaced).sum())
        rules.append(part.rule.words())
        total.add(found, picked, rows)
        for audit in audits if part.scale is None else ():
            audit.add(part, (served.traffic, served.fleet, served.names), found, picked)
        if by is not None:
            labels = replicas if by == "replica" else _labels(own, by)
            for value in dict.fromkeys(labels[picked].tolist()):
                groups.setdefault(value, Sums()).add(found, picked & (labels == value), rows)
    ordered = dict(sorted(groups.items(), key=_in_time if by == "hour" else _largest_first))
    rules = list(dict.fromkeys(rules))
    counts = (overruled, unplaced, approximate, sum(unfit))
    return Waterfall(total, ordered, rules, not observed, compared, *counts)


def _parts(
    table: pa.Table, counted: Flags, assumed: Assumed, heard: Heard, unfit: list[int]
) -> Iterator[tuple[Part, Flags, pa.Table, tuple[Served, Causes]]]:
    """Every part with requests to sum: which, its rows without chains, and why they missed. `unfit`
    is given the number of requests of each part that is left out; all of them are an error."""
    refused: list[_UnfitBlocks] = []
    fitting, observed = 0, is_observed(table)
    for part in parts_of(
        table, assumed.rule, assumed.block_tokens, told=heard.block_tokens, approximate=True
    ):
        picked = counted[part.rows] & part.judged
        if not picked.any():
            continue
        own = table.drop_columns(list(CHAINS)).take(part.rows)
        try:
            told = _causes(part, replica_names(own), assumed, observed, heard)
        except _UnfitBlocks as error:
            refused.append(error)
            unfit.append(int(picked.sum()))
            continue
        fitting += 1
        yield part, picked, own, told
    if refused and not fitting:
        raise refused[0]


def _in_time(group: tuple[str, Sums]) -> str:
    return group[0]


def _largest_first(group: tuple[str, Sums]) -> int:
    return -group[1].prompt_tokens


def _check_lifetime(assumed: Assumed, observed: bool) -> None:
    """Refuse to model a cache that does not lose blocks for want of memory."""
    rule = assumed.rule
    if rule is None or rule.lifetime_seconds is None:
        return
    if not observed or assumed.capacity_blocks is not None:
        raise PrefixscopeError(
            f"--rule {rule.name} keeps blocks for a time, and a modelled cache as long as they"
            " fit: name another --rule, or rows that tell cached tokens without --capacity-blocks"
        )


def _causes(
    part: Part, names: list[str], assumed: Assumed, observed: bool, heard: Heard
) -> tuple[Served, Causes]:
    """What served a part, and its causes. `names`: of the replicas that its rows name."""
    try:
        served = beside(part.traffic, names, heard) if observed else _modelled(part, names, assumed)
        found = attribute(served.traffic, part.traffic_rule, served.fleet)
        if (scale := part.scale) is None:
            return served, found
        if not observed:
            scale = scale.with_cached_units(served.traffic.cached_tokens, part.rule)
        return served, scale.to_tokens(found, part.rule)
    except BlockSizesDisagree as error:
        raise _UnfitBlocks(f"{error}; {_block_remedy(part.rule, assumed)}") from error


def _modelled(part: Part, names: list[str], assumed: Assumed) -> Served:
    """The same for rows that tell no cached tokens. A hosted cache with a lifetime is not modelled:
    its rows stay without a count."""
    traffic = part.traffic
    if assumed.replicas is not None:
        # By the place in the whole file, whatever rule each row is judged by.
        traffic = replace(traffic, replica=round_robin(part.rows, assumed.replicas))
        names = [str(number) for number in range(assumed.replicas)]
    if part.rule.lifetime_seconds is None:
        cached = modelled_cached_tokens(traffic, part.traffic_rule, assumed.capacity_blocks)
        traffic = traffic.with_cached(cached)
    return Served(traffic, Fleet(), names, np.zeros(len(traffic), np.bool_))


def _overruled(table: pa.Table, rule: CacheRule, replicas: Labels, heard: Heard) -> Flags:
    """Rows that were judged by another block than they or their events state. Names that are not
    ours stand for the block stated, whatever the cache's own."""
    used = rule.block_tokens
    if RULES[rule.name].block_tokens is not None:
        return np.zeros(len(table), np.bool_)
    stated = table["block_size"].fill_null(0).to_numpy()
    stated = np.where([bool(key) for key in table["hash_key_id"].to_pylist()], stated, 0)
    told = np.array([heard.block_tokens.get(name, 0) for name in replicas.tolist()], np.int64)
    overruled: Flags = (stated > 0) & (stated != used)
    overruled |= (told > 0) & (told != used)
    return overruled


def _block_remedy(rule: CacheRule, assumed: Assumed) -> str:
    if RULES[rule.name].block_tokens is not None:
        return f"the block of the rule {rule.name} is fixed, so name another with --rule"
    if assumed.block_tokens is not None:
        return "give another --block-tokens"
    return "name the cache's own with --block-tokens"


def _from(table: pa.Table, since: datetime | None) -> Flags:
    if since is None:
        return np.ones(len(table), np.bool_)
    later: Flags = pc.greater_equal(table["ts"], pa.scalar(since, table["ts"].type)).to_numpy()
    return later


def _named(served: Served) -> Labels:
    traffic = served.traffic
    numbers = np.zeros(len(traffic), np.int64) if traffic.replica is None else traffic.replica
    return np.array(served.names, object)[numbers]


def _labels(table: pa.Table, by: str) -> Labels:
    """The value of a dimension for every row, '' where it is not given."""
    if by == "hour":
        hours = [moment.replace(minute=0, second=0, microsecond=0) for moment in _moments(table)]
        return np.array([f"{hour:%Y-%m-%dT%H:%M:%SZ}" for hour in hours], object)
    return np.array(table[by].to_pylist(), object)


def _moments(table: pa.Table) -> list[datetime]:
    moments: list[datetime] = table["ts"].to_pylist()
    return moments
