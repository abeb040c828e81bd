"""Columns of rows with chains, as the store and logs answer with them (`request_chains`)."""

from collections import defaultdict
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from replay.hashes import HASH_GRAIN_TOKENS
from replay.known_blocks import mixed, within
from replay.pieces import placed
from replay.scaled import UNIT_BYTES
from replay.traffic import Chains, Names, Numbers, Pieces, starts_of

# The grain of chunks of text, which stand where blocks of so many tokens usually do.
OF_TEXT = -HASH_GRAIN_TOKENS


def grains_of(table: pa.Table) -> Numbers:
    """Tokens a hash of each row, 0 of a row without a chain. Names of our own are made for 16
    tokens wherever the engine's block allows; others are of the block the row states."""
    size = whole_of(table["block_size"], 0)
    own = np.array([bool(key) for key in table["hash_key_id"].to_pylist()], np.bool_)
    grain = np.where(own & (size % HASH_GRAIN_TOKENS == 0), HASH_GRAIN_TOKENS, size)
    grain = np.where(grain > 0, grain, HASH_GRAIN_TOKENS)
    grain = np.where(table["text_bytes"].is_valid().to_numpy(), OF_TEXT, grain)
    return np.where(lengths_of(table["block_hashes"]) > 0, grain, 0)


def taken(table: pa.Table, rows: Numbers) -> pa.Table:
    """These rows. All of them in their order are the table itself: chains are large to copy."""
    whole = len(rows) == len(table) and bool((rows == np.arange(len(rows))).all())
    return table if whole else table.take(rows)


def chains_of(table: pa.Table, grain_tokens: int, one_of_many: bool = False) -> Chains:
    """Names of blocks, made different where they do not mean the same."""
    lengths = lengths_of(table["block_hashes"])
    names, contents = flat_of(table["block_hashes"]), contents_of(table, lengths)
    space = np.repeat(spaces_of(table, one_of_many), lengths)
    if space.any():
        names = within(names, space)
        contents = None if contents is None else within(contents, space)
    return Chains(names, starts_of(lengths), grain_tokens, contents)


def contents_of(table: pa.Table, lengths: Numbers) -> Names | None:
    """Content hashes of all blocks; a row without has contents that no other row shares, so that
    it takes no part in what is told by content. None where no row has any."""
    told = flat_of(table["content_hashes"])
    if not len(told):
        return None
    contents = mixed(~flat_of(table["block_hashes"]))
    contents[np.repeat(lengths_of(table["content_hashes"]) > 0, lengths)] = told
    return contents


def row_pieces(table: pa.Table, one_of_many: bool = False) -> Pieces | None:
    """Pieces cut by content, ends in units of text where they are of text. None where most blocks
    are of rows without: then the blocks themselves tell more."""
    pieces, blocks = lengths_of(table["piece_hashes"]), lengths_of(table["block_hashes"])
    if not pieces.any() or 2 * blocks[pieces > 0].sum() < blocks.sum():
        return None
    lengths = pc.list_flatten(table["piece_lengths"]).cast(pa.int64()).to_numpy()
    found = placed(flat_of(table["piece_hashes"]), lengths, starts_of(pieces))
    of_text = np.repeat(table["text_bytes"].is_valid().to_numpy(), pieces)
    ends = np.where(of_text, found.ends // UNIT_BYTES, found.ends)
    space = np.repeat(spaces_of(table, one_of_many), pieces)
    names = within(found.names, space) if space.any() else found.names
    return Pieces(names, ends, found.starts)


def spaces_of(table: pa.Table, one_of_many: bool = False) -> npt.NDArray[np.integer]:
    """A number for each space within which the names of blocks mean the same; `one_of_many`: the
    same number in every table."""
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
    return lasting_numbers(keys) if one_of_many else numbers_of(keys)


def lasting_numbers(names: Sequence[str]) -> Names:
    """A number for each name, the same in any table."""
    numbers = {
        name: int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) for name in set(names)
    }
    return np.array([numbers[name] for name in names], np.uint64)


def deployments_of(table: pa.Table) -> Numbers:
    """A number for each model and version of its weights. A row that leaves one out is of the
    only one that its replica is known for, or the only one there is: that a column begins to be
    filled is no deployment."""
    replicas, models, versions = (
        table[name].to_pylist() for name in ("replica", "model", "model_fingerprint")
    )
    models = _filled(_filled(models, replicas), [""] * len(models))
    versions = _filled(versions, [*zip(replicas, models, strict=True)])
    versions = _filled(versions, models)
    return numbers_of(["\x1f".join(pair) for pair in zip(models, versions, strict=True)])


def _filled(values: list[str], places: Sequence[object]) -> list[str]:
    """'' replaced by the only other value of the same place; left where there are several."""
    known: defaultdict[object, set[str]] = defaultdict(set)
    for place, value in zip(places, values, strict=True):
        if value:
            known[place].add(value)
    only = {place: next(iter(found)) for place, found in known.items() if len(found) == 1}
    return [value or only.get(place, "") for value, place in zip(values, places, strict=True)]


def codes(table: pa.Table, *names: str) -> Numbers:
    """A number from 0 for each different value of columns, in order of appearance."""
    return numbers_of(places_of(table, *names))


def places_of(table: pa.Table, *names: str) -> list[str]:
    """One text for each different value of columns together."""
    columns = [table[name].to_pylist() for name in names]
    return ["\x1f".join(map(str, values)) for values in zip(*columns, strict=True)]


def numbers_of(values: list[str]) -> Numbers:
    """A number from 0 for each different text, in order of appearance."""
    encoded = pa.array(values, pa.string()).dictionary_encode()
    numbers: Numbers = encoded.indices.to_numpy().astype(np.int64)
    return numbers


def whole_of(column: pa.ChunkedArray, otherwise: int) -> Numbers:
    filled: Numbers = column.cast(pa.int64()).fill_null(otherwise).to_numpy()
    return filled


def lengths_of(column: pa.ChunkedArray) -> Numbers:
    lengths: Numbers = pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
    return lengths


def flat_of(column: pa.ChunkedArray) -> Names:
    names: Names = pc.list_flatten(column).to_numpy()
    return names
