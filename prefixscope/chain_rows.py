"""Rows of requests as the traffic that causes are worked out from.

Rows whose chains cannot be compared (another grain, another way a cache counts) become traffic of
their own. A row that no chain was given for goes with the largest part.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from replay.hashes import HASH_GRAIN_TOKENS
from replay.known_blocks import mixed, within
from replay.rules import RULES, CacheRule
from replay.traffic import NOT_REPORTED, Chains, Names, Numbers, Seconds, Traffic, starts_of

# What is large of a row: taken only where chains are read.
CHAINS = ("block_hashes", "content_hashes")
# Rules of hosted caches; every other cache counts whole blocks unless the person says otherwise.
_PROVIDER_RULES = {"anthropic": "anthropic", "openai": "openai", "azure": "openai"}
_DEFAULT_RULE = "full"
# Where a request skips the look-up its blocks are computed and kept like any other's.
_KEPT = "lookup_skipped"


@dataclass(frozen=True)
class Part:
    """Rows that one rule holds for. `rows`: their places in the table."""

    traffic: Traffic
    rule: CacheRule
    rows: Numbers


def parts_of(table: pa.Table, rule: CacheRule | None, block_tokens: int | None) -> Iterator[Part]:
    """The rows of a `request_chains` answer, part by part; of an empty table none.

    `rule` and `block_tokens`: what the person says holds for all.
    """
    grains = _grains(table)
    names = _rule_names(table) if rule is None else np.zeros(len(table), object)
    kinds = [f"{name}/{grain}" for name, grain in zip(names, grains, strict=True)]
    if not kinds:
        return
    chained = grains > 0
    values, counts = np.unique(np.array(kinds)[chained], return_counts=True)
    largest = values[counts.argmax()] if len(values) else kinds[0]
    kinds = [kind if known else largest for kind, known in zip(kinds, chained, strict=True)]
    order = _order(table)
    for kind in dict.fromkeys(kinds):
        rows = order[np.array(kinds)[order] == kind]
        own = taken(table, rows)
        grain = int(grains[rows].max()) or HASH_GRAIN_TOKENS
        found = rule or RULES[kind.split("/")[0]]
        found = found.of_blocks(block_tokens or _engine_block(own, grain))
        yield Part(_traffic(own, grain, found), found, rows)


def taken(table: pa.Table, rows: Numbers) -> pa.Table:
    """These rows. All of them in their order are the table itself: chains are large to copy."""
    whole = len(rows) == len(table) and bool((rows == np.arange(len(rows))).all())
    return table if whole else table.take(rows)


def _order(table: pa.Table) -> Numbers:
    """The places of rows in the order in which they came, which is how bare traces run."""
    order: Numbers = np.lexsort((_whole(table["position"], 0), _whole(table["batch"], 0)))
    return order


def _rule_names(table: pa.Table) -> npt.NDArray[np.object_]:
    providers = table["provider"].to_pylist()
    return np.array(
        [_PROVIDER_RULES.get(name.lower(), _DEFAULT_RULE) for name in providers], object
    )


def _grains(table: pa.Table) -> Numbers:
    """Tokens a hash of each row, 0 of a row without a chain. Names of our own are made for 16
    tokens wherever the engine's block allows; others are of the block the row states."""
    size = _whole(table["block_size"], 0)
    own = np.array([bool(key) for key in table["hash_key_id"].to_pylist()])
    grain = np.where(own & (size % HASH_GRAIN_TOKENS == 0), HASH_GRAIN_TOKENS, size)
    grain = np.where(grain > 0, grain, HASH_GRAIN_TOKENS)
    return np.where(_lengths(table["block_hashes"]) > 0, grain, 0)


def _engine_block(table: pa.Table, grain_tokens: int) -> int:
    """The block size most rows state, if their chains can be read at it; else the chain's own."""
    sizes = _whole(table["block_size"], 0)
    values, counts = np.unique(sizes[sizes > 0], return_counts=True)
    if not len(values):
        return grain_tokens
    size = int(values[counts.argmax()])
    return size if max(size, grain_tokens) % min(size, grain_tokens) == 0 else grain_tokens


def _traffic(table: pa.Table, grain_tokens: int, rule: CacheRule) -> Traffic:
    cached = _whole(table["cached_tokens"], NOT_REPORTED)
    reported = bool((cached != NOT_REPORTED).any())
    started = table["ts"].cast(pa.int64()).to_numpy() / 1e6
    looked_up = started + _seconds(table["queue_seconds"], 0.0)
    scheduled = pc.equal(table["ttft_point"], "engine_scheduled").fill_null(False).to_numpy()
    ended = started + _seconds(table["e2e_seconds"])
    ready = np.where(scheduled, looked_up, started) + _seconds(table["ttft_seconds"])
    ready = np.where(np.isnan(ready), ended, ready)
    reasons = table["ineligible_reason"].to_pylist()
    return Traffic(
        prompt_tokens=_whole(table["prompt_tokens"], 0),
        cached_tokens=cached,
        chains=_chains(table, grain_tokens),
        # Without observed counts it is a trace: it runs in its own order, by prompts alone.
        looked_up=looked_up if reported else None,
        ready=ready if reported else None,
        ended=ended if reported else None,
        replica=codes(table, "replica"),
        deployment=codes(table, "model", "model_fingerprint"),
        scope=codes(table, "scope"),
        ineligible=np.array([bool(reason) for reason in reasons]),
        kept=np.array([reason in ("", _KEPT) for reason in reasons]),
        output_tokens=_whole(table["output_tokens"], 0) if reported else None,
        eligible_tokens=_eligible(table, cached, rule),
    )


def _eligible(table: pa.Table, cached: Numbers, rule: CacheRule) -> Numbers | None:
    """Hosted caches with a lifetime hold what is marked: what was read and what was written."""
    if rule.lifetime_seconds is None:
        return None
    written = _whole(table["cache_write_tokens"], -1)
    prompt = _whole(table["prompt_tokens"], 0)
    return np.where(written < 0, prompt, np.maximum(cached, 0) + written)


def _chains(table: pa.Table, grain_tokens: int) -> Chains:
    """Names of blocks, made different where they do not mean the same."""
    lengths = _lengths(table["block_hashes"])
    names, contents = _flat(table["block_hashes"]), _contents(table, lengths)
    space = np.repeat(_spaces(table), lengths)
    if space.any():
        names = within(names, space)
        contents = None if contents is None else within(contents, space)
    return Chains(names, starts_of(lengths), grain_tokens, contents)


def _contents(table: pa.Table, lengths: Numbers) -> Names | None:
    """Content hashes of all blocks; a row without has contents that no other row shares, so that
    it takes no part in what is told by content. None where no row has any."""
    told = _flat(table["content_hashes"])
    if not len(told):
        return None
    contents = mixed(~_flat(table["block_hashes"]))
    contents[np.repeat(_lengths(table["content_hashes"]) > 0, lengths)] = told
    return contents


def _spaces(table: pa.Table) -> Numbers:
    """A number for each space within which the names of blocks mean the same."""
    scopes = table["hash_scope"].to_pylist()
    traces, replicas = table["trace_id"].to_pylist(), table["replica"].to_pylist()
    within_ = {"trace": traces, "engine": replicas}
    places = [
        f"{scope}/{within_[scope][row]}" if scope in within_ else ""
        for row, scope in enumerate(scopes)
    ]
    keys = [
        f"{key}/{place}"
        for key, place in zip(table["hash_key_id"].to_pylist(), places, strict=True)
    ]
    return _codes(keys)


def codes(table: pa.Table, *names: str) -> Numbers:
    """A number from 0 for each different value of columns, in order of appearance."""
    columns = [table[name].to_pylist() for name in names]
    return _codes(["\x1f".join(map(str, values)) for values in zip(*columns, strict=True)])


def _codes(values: list[str]) -> Numbers:
    encoded = pa.array(values, pa.string()).dictionary_encode()
    numbers: Numbers = encoded.indices.to_numpy().astype(np.int64)
    return numbers


def _whole(column: pa.ChunkedArray, otherwise: int) -> Numbers:
    filled: Numbers = column.cast(pa.int64()).fill_null(otherwise).to_numpy()
    return filled


def _seconds(column: pa.ChunkedArray, otherwise: float = float("nan")) -> Seconds:
    filled: Seconds = column.fill_null(otherwise).to_numpy()
    return filled


def _lengths(column: pa.ChunkedArray) -> Numbers:
    lengths: Numbers = pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
    return lengths


def _flat(column: pa.ChunkedArray) -> Names:
    names: Names = pc.list_flatten(column).to_numpy()
    return names


def is_observed(table: pa.Table) -> bool:
    """Does any row tell what was cached?"""
    return bool(table["cached_tokens"].null_count < len(table))


def replica_names(table: pa.Table) -> list[str]:
    """The replicas of rows, in the order of their numbers."""
    return list(dict.fromkeys(table["replica"].to_pylist()))
