"""Token ids in a log become names of blocks as the row is read, and go no further.

The names are those the tap gives to the same prompt: keyed hashes of 16 tokens, chained from the
scope of the row on.
"""

from collections.abc import Callable, Iterable
from functools import partial

from exporter.sources.formats.mapping import LogFormat, Row
from exporter.sources.formats.reshape import one_object
from replay.hashes import (
    HASH_GRAIN_TOKENS,
    content_hashes,
    extend_chain,
    hash_key_id,
    root_hash,
    scope_id,
)

Reshape = Callable[[str], Iterable[Row]]


def reshape_of(log_format: LogFormat, key: str) -> Reshape | None:
    """How the lines of a format become rows for its table; None: they are read as they are."""
    if log_format.ids_to_hash is None:
        return log_format.reshape
    return partial(_named, log_format.ids_to_hash, log_format.reshape or _as_it_is, key)


def _as_it_is(line: str) -> Iterable[Row]:
    return [one_object(line)]


def _named(path: str, reshape: Reshape, key: str, line: str) -> Iterable[Row]:
    """The rows of a line with names instead of token ids."""
    return [_row(dict(row), path, key) for row in reshape(line)]


def _row(row: dict[str, object], path: str, key: str) -> Row:
    """Ids that are none (text, negative) leave a row without a chain."""
    ids = row.pop(path, None)
    if not isinstance(ids, list) or not all(type(token) is int for token in ids):
        return row
    try:
        contents = content_hashes(ids, HASH_GRAIN_TOKENS, key)
    except ValueError:
        return row
    scope = scope_id(key, _text(row, "cache_salt"), _text(row, "adapter"), None)
    chain = extend_chain(root_hash(scope or "", key), contents, key)
    row |= {"block_hashes": chain, "content_hashes": contents}
    row |= {"hash_scope": "global", "hash_key_id": hash_key_id(key)}
    return row


def _text(row: dict[str, object], name: str) -> str | None:
    value = row.get(name)
    return value if isinstance(value, str) else None


