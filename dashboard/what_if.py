"""What if: rows of the store as prompts to replay, and what the store says of speed and memory."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dashboard.figures.rows import Row, Rows, number
from replay.known_blocks import numbered, within
from replay.prompts import Prompts
from replay.traffic import starts_of

# Our hashes stand for so many tokens wherever the block of the engine allows.
GRAIN_TOKENS = 16
_DEFAULT_SPEED, _DEFAULT_TOKENS = 20_000.0, 1_000_000
# What a page may ask of the exporter's memory at once, as `attribute` does.
MOST_HASHES = 10_000_000
# A table with an entry for each block and replica stands in memory.
MOST_REPLICAS = 64


@dataclass(frozen=True)
class Measured:
    """What an experiment begins with, and in words where each figure is from."""

    replicas: int
    capacity_tokens: int
    block_tokens: int
    prefill_tokens_per_second: float
    sources: tuple[str, ...]


def measured(replicas: Rows, memory: Rows, speeds: Rows) -> Measured:
    """From what engines and requests told; assumptions, named as such, where they told nothing."""
    serving = len([row for row in replicas if row.get("role") != "decode"])
    rooms = [number(row, "capacity_tokens") for row in memory]
    known_rooms = [room for room in rooms if room]
    blocks = [_block_tokens(row) for row in memory]
    known_blocks = [size for size in blocks if size]
    rates = [number(row, "tokens_per_second") for row in speeds]
    known_rates = [rate for rate in rates if rate]
    return Measured(
        min(max(serving, 1), MOST_REPLICAS),
        max(int(np.median(known_rooms)), 1) if known_rooms else _DEFAULT_TOKENS,
        max(set(known_blocks), key=known_blocks.count) if known_blocks else GRAIN_TOKENS,
        max(float(np.median(known_rates)), 1.0) if known_rates else _DEFAULT_SPEED,
        (
            f"{serving} replicas were heard" if serving else "no replica was heard: one is assumed",
            "memory as the engines tell (median)" if known_rooms else "memory is assumed",
            "block as the engines tell" if known_blocks else "block is assumed",
            "prefill speed estimated from first tokens (median)"
            if known_rates
            else "prefill speed is assumed",
        ),
    )


def _block_tokens(memory: Row) -> int | None:
    """Tokens a block of a replica, from what its memory holds in both."""
    tokens, blocks = number(memory, "capacity_tokens"), number(memory, "capacity_blocks")
    return round(tokens / blocks) if tokens and blocks else None


@dataclass(frozen=True)
class Recorded:
    """Requests to replay, their model, and what was cached of them: of those that report it, None
    where none does."""

    prompts: Prompts
    model: str
    token_hit_ratio: float | None


def recorded(chains: pa.Table) -> Recorded | None:
    """Requests of an answer of `request_chains` in order of time; None where no row has a chain of
    blocks of tokens (chunks of text are no blocks of a cache).

    One model, that of most prompt tokens, as another one runs on replicas of its own. Hashes of
    another grain than most rows' are not comparable and are left out with their rows.
    """
    has_chain = pc.greater(pc.fill_null(pc.list_value_length(chains["block_hashes"]), 0), 0)
    of_tokens = pc.is_null(chains["text_bytes"])
    in_time = [(name, "ascending") for name in ("ts", "batch", "position")]
    rows = chains.filter(pc.and_(has_chain, of_tokens)).sort_by(in_time)
    if not len(rows):
        return None
    tokens = rows.group_by("model").aggregate([("prompt_tokens", "sum")])
    ordered = tokens.sort_by([("prompt_tokens_sum", "descending"), ("model", "ascending")])
    model = ordered["model"][0]
    rows = rows.filter(pc.equal(rows["model"], model))
    grains = _grains(rows)
    most = int(np.bincount(grains).argmax())
    rows = rows.filter(pa.array(grains == most))
    lists = rows["block_hashes"].combine_chunks()
    lengths = pc.list_value_length(lists).to_numpy()
    seconds = pc.cast(pc.cast(rows["ts"], pa.timestamp("us")), pa.int64()).to_numpy() / 1e6
    names = within(lists.flatten().to_numpy(), np.repeat(_spaces(rows), lengths))
    prompts = Prompts(
        arrived=seconds - seconds[0],
        prompt_tokens=rows["prompt_tokens"].to_numpy().astype(np.int64),
        output_tokens=pc.fill_null(rows["output_tokens"], 0).to_numpy().astype(np.int64),
        blocks=numbered(names)[0],
        starts=starts_of(lengths),
        block_tokens=most,
    )
    return Recorded(prompts, str(model.as_py()), _observed(rows))


def _observed(rows: pa.Table) -> float | None:
    known = rows.filter(pc.is_valid(rows["cached_tokens"]))
    whole = pc.sum(known["prompt_tokens"]).as_py()
    return pc.sum(known["cached_tokens"]).as_py() / whole if whole else None


def _spaces(rows: pa.Table) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """A number for all rows whose names mean the same: of one version, scope and key, and where
    names are of a trace or an engine, of that."""
    names = ("model_fingerprint", "scope", "hash_key_id", "hash_scope", "trace_id", "replica")
    columns = [rows[name].to_pylist() for name in names]
    known: dict[tuple[object, ...], int] = {}
    found = []
    for version, scope, key, hash_scope, trace, replica in zip(*columns, strict=True):
        own = {"trace": trace, "engine": replica}.get(hash_scope)
        found.append(known.setdefault((version, scope, key, hash_scope, own), len(known)))
    return np.array(found, np.int64)


def _grains(rows: pa.Table) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Tokens a hash: ours stand for 16 where they can, others for the block that the row states."""
    size = pc.fill_null(rows["block_size"], 0).to_numpy().astype(np.int64)
    own = pc.not_equal(rows["hash_key_id"], "").to_numpy()
    grain = np.where(own & (size % GRAIN_TOKENS == 0), GRAIN_TOKENS, size)
    return np.where(grain > 0, grain, GRAIN_TOKENS)
