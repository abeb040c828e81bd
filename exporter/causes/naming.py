"""Names the causes of one span of rows. What they tell is remembered for the rows after them."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from exporter.blocks.held import HeldCache
from exporter.causes.rows import CHAINS, Part, parts_of, replica_names
from exporter.causes.settings import CauseSettings
from exporter.causes.state import CauseState, PartState, limits_of
from exporter.causes.sums import BESIDE_COLUMNS, CAUSE_COLUMNS, DETAIL_COLUMNS, LEAST, SUMS
from exporter.isolation.crossed import crossed_rows
from exporter.isolation.unnamed import UnnamedScopes
from replay.causes import CAUSES, DETAILS, Causes
from replay.chain_rows import lasting_numbers, whole_of
from replay.columns import unit_tokens_of
from replay.hashes import HASH_GRAIN_TOKENS
from replay.known_blocks import within
from replay.rules import BlockSizesDisagree
from replay.spans import TrafficSpan
from replay.streaming import CauseStream, Named
from replay.traffic import Flags, Moments, Numbers, Stays

_log = logging.getLogger(__name__)
_LABELS = ("ts", "model", "replica", "route", "template", "tenant", "is_live")

# A reset of a replica, and when.
Reset = tuple[str, float]


@dataclass(frozen=True)
class RowSpan:
    """The rows with chains from `since` to before `until`, and those that came late for earlier
    spans: an answer of `request_chains` with `is_live` and `is_late`. Beside them all resets before
    `until`, and what caches held by their events."""

    table: pa.Table
    since: datetime
    until: datetime
    resets: tuple[Reset, ...] = ()
    held: tuple[HeldCache, ...] = ()


@dataclass(frozen=True)
class NamedPart:
    """What became of the rows of a part: `rows` for `sums.add_named`, `crossed` for
    `crossed.add_crossed`. `named` is None where chains do not fit the stated blocks: then no cause
    is named, and the rows are counted without any."""

    name: str
    named: Named | None
    rows: pa.Table
    crossed: list[pa.Table]


def named_parts(state: CauseState, span: RowSpan, settings: CauseSettings) -> Iterator[NamedPart]:
    """Name the causes of a span, part by part; the memory in `state` has it from then on."""
    table = span.table
    told = {cache.replica: cache.block_tokens for cache in reversed(span.held)}
    sizes = state.lasting.block_sizes
    found = parts_of(table, told=told, approximate=True, lasting=sizes)
    for parts in _by_traffic(found):
        name = _name(parts[0])
        own = table.drop_columns(list(CHAINS)).take(parts[0].rows)
        usable = [part for part in parts if _is_usable(part)]
        if unfit := [part.judged for part in parts if not _is_usable(part)]:
            _log.warning("%s: some rows state a block size that their chains do not fit", name)
            rows = own.filter(pa.array(np.logical_or.reduce(unfit)))
            yield NamedPart(name, None, _unfit_sums(rows), [])
        if not usable:
            continue
        known = state.parts.get(name)
        if known is None:
            lifetimes = parts[0].rule.lifetime_seconds is not None
            begun = _begun(own, span)
            known = PartState(CauseStream.begin(limits_of(settings), begun, lifetimes), begun)
            state.parts[name] = known
        resets = _new_resets(known, span)
        known.until = _seconds(span.until)
        _settle(state.unnamed, name, own, known.until)
        named = known.stream.take(_traffic_span(usable, own, state, span, resets))
        sums = [
            _sums(own, part, causes, named)
            for part, causes in zip(usable, named.causes, strict=True)
        ]
        crossed = [
            crossed_rows(own, causes.cached_tokens, found, part.judged)
            for part, causes, found in zip(usable, named.causes, named.crossed, strict=True)
            if part.scale is None
        ]
        yield NamedPart(name, named, pa.concat_tables(sums), crossed)


def _begun(own: pa.Table, span: RowSpan) -> float:
    """When a memory begins whose first rows these are: with the minute of the first of them, as
    earlier rows of the span have no chains; not before the span, as late rows begin nothing."""
    first = own["ts"].cast(pa.int64()).to_numpy().min() / 1e6
    return max(_seconds(span.since), float(first // 60 * 60))


def _settle(unnamed: UnnamedScopes, part: str, own: pa.Table, until: float) -> None:
    """Remember among which chains each scope was met: only these can be compared."""
    names = ("hash_key_id", "hash_scope", "scope")
    for key, meaning, scope in {*zip(*(own[name].to_pylist() for name in names), strict=True)}:
        unnamed.settle(f"{part} {key} {meaning}", [scope], until)


def _by_traffic(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Parts that differ in nothing but the block size they judge the same rows by, together."""
    same: list[Part] = []
    for part in parts:
        if same and part.traffic is not same[0].traffic:
            yield same
            same = []
        same.append(part)
    if same:
        yield same


def _name(part: Part) -> str:
    """What the rows whose chains can be compared with each other are called in every span."""
    grain = part.traffic.chains.grain_tokens
    return f"{part.rule.name} {'text' if part.scale is not None else grain}"


def _is_usable(part: Part) -> bool:
    try:
        unit_tokens_of(part.rule, part.traffic.chains.grain_tokens)
    except BlockSizesDisagree:
        return False
    return True


def _new_resets(part: PartState, span: RowSpan) -> list[Reset]:
    """The resets that the part has not been told of yet; none from before the span it began in."""
    begun = min(part.stream.memory.begun_seconds, _seconds(span.since))
    new = [
        (replica, moment)
        for replica, moment in sorted(span.resets, key=lambda reset: reset[1])
        if moment > part.resets.get(replica, begun)
    ]
    part.resets |= dict(new)
    return new


def _traffic_span(
    parts: list[Part], own: pa.Table, state: CauseState, span: RowSpan, resets: list[Reset]
) -> TrafficSpan:
    heard = [cache.replica for cache in span.held]
    own_names = state.lasting.replicas(replica_names(own), heard)
    others = dict.fromkeys([*heard, *(replica for replica, _ in resets)])
    names = [*own_names, *(replica for replica in others if replica not in own_names)]
    deployments = state.lasting.deployments(own)
    scopes = list(dict.fromkeys(own["scope"].to_pylist()))
    different = list(dict.fromkeys([*deployments, *state.lasting.served.values()]))
    numbers = {name: number for number, name in enumerate(different)}
    deployment = np.array([numbers[name] for name in deployments], np.int64)
    return TrafficSpan(
        traffic=replace(parts[0].traffic, deployment=deployment),
        rules=[part.traffic_rule for part in parts],
        judged=[part.judged for part in parts],
        replicas=names,
        deployments=lasting_numbers(different),
        scopes=lasting_numbers(scopes),
        open_scopes=lasting_numbers(state.unnamed.of(scopes)),
        lower_tiers=tuple(name for name in names if name in state.unnamed.lower_tiers),
        since_seconds=_seconds(span.since),
        until_seconds=_seconds(span.until),
        resets=Moments.of([(names.index(replica), moment) for replica, moment in resets]),
        stays=_stays(parts[0], span, names, {
            replica: numbers[served] for replica, served in state.lasting.served.items()
        }),
    )  # fmt: skip


def _stays(part: Part, span: RowSpan, names: list[str], served: Mapping[str, int]) -> Stays | None:
    """What caches held of the blocks of a part, and what came while it lasted; None where no
    events tell. `served`: the number of what each replica serves."""
    chains = part.traffic.chains
    found = []
    for cache in span.held if not part.is_hosted and part.scale is None else ():
        if cache.replica not in served or _grain(cache.block_tokens) != chains.grain_tokens:
            continue
        space = np.repeat(lasting_numbers([f"{cache.key_id}/"]), len(cache.names))
        keys = within(cache.names, space)
        picked = np.isin(keys, chains.names) | (cache.since >= _seconds(span.since))
        picked &= (cache.since < _seconds(span.until)) & (cache.until > _seconds(span.since))
        count = int(picked.sum())
        found.append(Stays(
            keys[picked], np.full(count, names.index(cache.replica)), cache.since[picked],
            cache.until[picked], np.full(count, served[cache.replica]),
        ))  # fmt: skip
    if not found:
        return None
    columns = [each.name for each in fields(Stays)]
    return Stays(*(np.concatenate([getattr(stays, name) for stays in found]) for name in columns))


def _grain(block_tokens: int) -> int:
    """Tokens a hash of a chain for blocks of that size."""
    return HASH_GRAIN_TOKENS if block_tokens % HASH_GRAIN_TOKENS == 0 else block_tokens


def _sums(own: pa.Table, part: Part, causes: Causes, named: Named) -> pa.Table:
    """The judged rows with what they add to the sums."""
    if part.scale is not None:
        causes = part.scale.to_tokens(causes, part.rule)
    late = own["is_late"].to_numpy()
    explained = causes.reported & ~late
    columns: dict[str, Any] = {
        "requests": explained.astype(np.int64),
        "prompt_tokens": np.where(explained, causes.prompt_tokens, 0),
        "cached_tokens": np.where(explained, causes.cached_tokens, 0),
    }
    for name, cause in zip(CAUSE_COLUMNS, CAUSES, strict=True):
        columns[name] = np.where(explained, causes.tokens[cause], 0)
    early = own["ts"].cast(pa.int64()).to_numpy() / 1e6 < named.warm_seconds
    warming = np.where(early, causes.tokens["new"], 0)
    details = [*(causes.tokens[name] for name in DETAILS), warming, causes.warm_before_log_tokens]
    for name, tokens in zip(DETAIL_COLUMNS, details, strict=True):
        columns[name] = np.where(explained, tokens, 0)
    nothing = np.zeros(len(late), np.bool_)  # none of these rows is without a chain
    columns |= _beside(causes.prompt_tokens, ~causes.reported, nothing, causes.reported & late)
    columns[LEAST] = np.full(len(late), int(named.remembered_seconds))
    judged = np.flatnonzero(part.judged)
    labels = own.select(list(_LABELS))
    for name, column in columns.items():
        labels = labels.append_column(name, pa.array(column))
    return labels.take(judged)


def _unfit_sums(own: pa.Table) -> pa.Table:
    """Rows whose chains tell nothing of their blocks, as if they had none."""
    reported = own["cached_tokens"].is_valid().to_numpy()
    nothing = np.zeros(len(own), np.bool_)
    beside = _beside(whole_of(own["prompt_tokens"], 0), ~reported, reported, nothing)
    labels = own.select(list(_LABELS))
    for name in SUMS:
        labels = labels.append_column(name, pa.array(beside.get(name, nothing.astype(np.int64))))
    return labels.append_column(LEAST, pa.nulls(len(own), pa.int64()))


def _beside(
    prompt_tokens: Numbers, unreported: Flags, chainless: Flags, late: Flags
) -> Mapping[str, Numbers]:
    """What has no causes, and why."""
    found: dict[str, Numbers] = {}
    for kind, flags in (("unreported", unreported), ("chainless", chainless), ("late", late)):
        found[f"{kind}_requests"] = flags.astype(np.int64)
        found[f"{kind}_prompt_tokens"] = np.where(flags, prompt_tokens, 0)
    return {name: found[name] for name in BESIDE_COLUMNS}


def _seconds(moment: datetime) -> float:
    return moment.replace(tzinfo=UTC).timestamp()
