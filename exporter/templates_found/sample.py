"""What templates are looked for in: chains of some time, as many as fit into little memory.

A template that carries many tokens is begun by many requests, so a share of them shows it as well.
The share is the same rows whenever the same time is looked at again.
"""

from dataclasses import dataclass, replace
from datetime import datetime

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exporter.templates_found.assign import NOT_GIVEN, PLACE
from replay.hashes import HASH_GRAIN_TOKENS
from replay.known_blocks import within
from replay.prefix_groups import scope_free
from replay.traffic import Chains, Flags, Names, Numbers, Seconds, starts_of

# Hashes of chains, and of contents as many, that are read at once: 16 MB each, about 120 MB with
# all that is worked out from them.
MOST_HASHES = 2_000_000
MOST_REQUESTS = 50_000
# No template is longer: 32,768 tokens at a grain of 16. Behind that chains are not looked at.
MOST_BLOCKS = 2_048
# The prompt of a request whose chain is cut has no end to tell it from others.
_CUT = -1


@dataclass(frozen=True)
class Sample:
    """Requests whose chains can be compared. `names`: their chains by the names that rows have;
    `chains`: by names that are the same in every scope, where contents are known."""

    chains: Chains
    names: Names
    has_contents: Flags
    started: Seconds
    caller: Numbers
    prompt_tokens: Numbers
    grain_tokens: Numbers
    hash_key_id: list[str]
    place: list[str]
    tenant: Numbers
    route: Numbers

    def __len__(self) -> int:
        return len(self.started)


def read_sample(cursor: duckdb.DuckDBPyConnection, since: datetime, until: datetime) -> Sample:
    """Requests without a template of their own from `since` until before `until`."""
    window = {"since": since, "until": until, "most": MOST_BLOCKS}
    [(requests, hashes)] = cursor.execute(_COUNT, window).fetchall()
    parts = max(1, -(-hashes // MOST_HASHES), -(-requests // MOST_REQUESTS))
    return _as_sample(cursor.sql(_READ, params=window | {"parts": parts}).to_arrow_table())


_WINDOW = f"""FROM requests
    WHERE ts >= $since AND ts < $until AND prompt_tokens IS NOT NULL AND {NOT_GIVEN}"""
_COUNT = f"SELECT count(*), coalesce(sum(least(len(block_hashes), $most)), 0)::BIGINT {_WINDOW}"
_READ = f"""SELECT
        epoch_us(ts) AS started, session, tenant, route,
        if(len(block_hashes) > $most, {_CUT}, prompt_tokens) AS prompt_tokens,
        -- Names of our own are made for 16 tokens wherever the engine's block allows.
        if(block_size > 0 AND (hash_key_id IS NULL OR block_size % {HASH_GRAIN_TOKENS} <> 0),
            block_size, {HASH_GRAIN_TOKENS}) AS grain_tokens,
        coalesce(hash_key_id, '') AS hash_key_id, {PLACE} AS place,
        block_hashes[:$most] AS block_hashes,
        if(len(content_hashes) = len(block_hashes), content_hashes[:$most], NULL) AS content_hashes
    {_WINDOW} AND hash(batch, position) % $parts = 0
    -- Which of two equal chains comes first may decide what is found; without, it is any.
    ORDER BY batch, position"""


def _as_sample(table: pa.Table) -> Sample:
    """Names that do not mean the same (of another key, replica or grain) are made different."""
    keys, places = table["hash_key_id"].to_pylist(), table["place"].to_pylist()
    grain: Numbers = table["grain_tokens"].to_numpy().astype(np.int64)
    spaces = ["/".join(parts) for parts in zip(keys, places, map(str, grain.tolist()), strict=True)]
    names: Names = pc.list_flatten(table["block_hashes"]).to_numpy()
    chains, told = _compared(table, names)
    space = np.repeat(_codes(pa.array(spaces, pa.string())), chains.lengths)
    return Sample(
        chains=replace(chains, names=within(chains.names, space)),
        names=names,
        has_contents=told,
        started=table["started"].to_numpy() / 1e6,
        caller=_callers(table["session"]),
        prompt_tokens=table["prompt_tokens"].to_numpy().astype(np.int64),
        grain_tokens=grain,
        hash_key_id=keys,
        place=places,
        tenant=_codes(table["tenant"]),
        route=_codes(table["route"]),
    )


def _compared(table: pa.Table, names: Names) -> tuple[Chains, Flags]:
    """Chains by names that are the same in every scope, where contents tell them; and where."""
    lengths = pc.list_value_length(table["block_hashes"]).to_numpy().astype(np.int64)
    contents_told = pc.list_value_length(table["content_hashes"]).fill_null(0).to_numpy()
    told: Flags = (contents_told == lengths) & (lengths > 0)
    starts = starts_of(lengths)
    if not told.any():
        return Chains(names, starts, HASH_GRAIN_TOKENS), told
    contents = names.copy()  # what no other block has
    blocks = np.repeat(told, lengths)
    contents[blocks] = pc.list_flatten(table["content_hashes"]).to_numpy()
    free = scope_free(Chains(names, starts, HASH_GRAIN_TOKENS, contents))
    return replace(free, names=np.where(blocks, free.names, names)), told


def _callers(session: pa.ChunkedArray) -> Numbers:
    """A number for each conversation; one below 0 for each request of an unknown one."""
    codes = _codes(session)
    return np.where(codes >= 0, codes, -1 - np.arange(len(codes)))


def _codes(column: pa.ChunkedArray | pa.Array) -> Numbers:
    """A number from 0 for each different value, -1 for none."""
    encoded = pc.dictionary_encode(column)
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    codes: Numbers = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes
