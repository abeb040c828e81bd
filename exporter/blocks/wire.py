"""One batch of KV-cache events as vLLM and SGLang put it on the wire.

A batch is a msgpack array `[time, events, rank]`. Events are arrays in vLLM up to 0.23 and SGLang
up to 0.5.19, maps with a `type` since. Arrays grew at their end and maps by keys, so that a field
an engine does not have yet is at its default here, and one we do not know is passed over. Fields
that are not declared never become objects: prompts stay bytes unless they are asked for.
"""

from array import array
from collections.abc import Sequence
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from exporter.errors import PrefixscopeError
from exporter.records import Tier

# Engines' words, in capitals, and ours. Where an event does not say, it speaks of the device.
_TIERS: dict[str | None, Tier] = {
    None: "device", "": "device",
    "GPU": "device", "CPU": "host", "CPU_PINNED": "host",
    "STORAGE": "disk", "DISK": "disk", "EXTERNAL": "remote",
}  # fmt: skip
_HASH_BYTES = 8
_LOW_64 = 2**64 - 1
_LATEST_SECONDS = 2.0**33  # in the year 2242

Hash = int | bytes
# Far above any engine's, and low enough for every sum of tokens to stay a number the store holds.
BlockSize = Annotated[int, msgspec.Meta(le=2**24)]
GroupIndex = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class BadBatch(PrefixscopeError):
    """A batch that cannot be read. Says which field is odd, never what it holds."""


class Removed(msgspec.Struct, tag="BlockRemoved", gc=False):
    """Blocks that left a tier."""

    block_hashes: list[Hash]
    medium: str | None = None
    group_idx: GroupIndex | None = None


class Cleared(msgspec.Struct, tag="AllBlocksCleared", gc=False):
    """Everything left. Published with the first batch after it happened."""


class Stored(msgspec.Struct, tag="BlockStored", gc=False):
    """A run of blocks, each the parent of the next.

    `block_size`: tokens a block; 0 in placeholders of offloading connectors, which have neither
    tokens nor parent. `kv_cache_spec_kind` names the kind of attention of the group.
    """

    block_hashes: list[Hash]
    block_size: BlockSize
    parent_block_hash: Hash | None = None
    medium: str | None = None
    group_idx: GroupIndex | None = None
    kv_cache_spec_kind: str | None = None


class StoredTokens(Stored, tag="BlockStored", gc=False):
    """The same with what names of our own are made from. Secret: to be hashed and dropped."""

    token_ids: list[int | list[int]] = []
    lora_id: int | str | None = None
    lora_name: str | None = None
    extra_keys: list[Any] | None = None
    cache_salt: str | None = None


class _RemovedRow(Removed, tag="BlockRemoved", array_like=True, gc=False):
    pass


class _ClearedRow(Cleared, tag="AllBlocksCleared", array_like=True, gc=False):
    pass


class _StoredRow(msgspec.Struct, tag="BlockStored", array_like=True, gc=False):
    """Fields by position; what is not needed stays bytes inside the payload."""

    block_hashes: list[Hash]
    parent_block_hash: Hash | None
    token_ids: msgspec.Raw
    block_size: BlockSize
    lora_id: msgspec.Raw = msgspec.Raw()
    medium: str | None = None
    lora_name: msgspec.Raw = msgspec.Raw()
    extra_keys: msgspec.Raw = msgspec.Raw()
    group_idx: GroupIndex | None = None
    kv_cache_spec_kind: str | None = None


class _StoredTokensRow(msgspec.Struct, tag="BlockStored", array_like=True, gc=False):
    block_hashes: list[Hash]
    parent_block_hash: Hash | None
    token_ids: list[int | list[int]]
    block_size: BlockSize
    lora_id: int | str | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[Any] | None = None
    group_idx: GroupIndex | None = None
    kv_cache_spec_kind: str | None = None


# Which of the classes an event may be, by what it tells.
STORED = frozenset({Stored, StoredTokens, _StoredRow, _StoredTokensRow})
REMOVED = frozenset({Removed, _RemovedRow})

_Event = TypeVar("_Event")


class _Shell(msgspec.Struct, Generic[_Event], array_like=True, gc=False):
    """The array around the events of either form."""

    ts: float
    events: list[_Event]
    rank: int | None = None


class Batch(msgspec.Struct, gc=False):
    """What one message told. `ts`: seconds since the epoch, the engine's clock; `rank`: of data
    parallelism. `unknown_events`: of types we do not know."""

    ts: float
    events: Sequence[Any]  # types of STORED and REMOVED, else a clear
    rank: int | None = None
    unknown_events: int = 0


class Decoder:
    """Reads batches; `tokens` says whether token ids and scopes are wanted."""

    def __init__(self, tokens: bool) -> None:
        stored, row = (StoredTokens, _StoredTokensRow) if tokens else (Stored, _StoredRow)
        maps: Any = stored | Removed | Cleared
        rows: Any = row | _RemovedRow | _ClearedRow
        shells: tuple[Any, Any] = (_Shell[maps], _Shell[rows])
        self._batches = [msgspec.msgpack.Decoder(shell) for shell in shells]
        self._events = [msgspec.msgpack.Decoder(kind) for kind in (maps, rows)]

    def decode(self, payload: bytes) -> Batch:
        """Read a batch. BadBatch where its shape is not one an engine sends."""
        try:
            return self._decode(payload)
        except RecursionError:
            raise BadBatch("no batch of KV-cache events: values too deep in each other") from None

    def _decode(self, payload: bytes) -> Batch:
        for decoder in self._batches:
            try:
                shell = decoder.decode(payload)
            except msgspec.DecodeError:
                continue
            # The form that was right is tried first the next time: engines keep to theirs.
            if decoder is not self._batches[0]:
                self._batches.reverse()
            return Batch(_checked(shell.ts), shell.events, shell.rank)
        return self._one_by_one(payload)

    def _one_by_one(self, payload: bytes) -> Batch:
        """Passes over events of unknown types, and says which field of the others is odd."""
        try:
            shell = _RAW.decode(payload)
        except msgspec.DecodeError as error:
            raise BadBatch(f"no batch of KV-cache events: {_where(error)}") from None
        batch = Batch(_checked(shell.ts), [], shell.rank)
        events: list[Any] = []
        for number, raw in enumerate(shell.events):
            known, is_map = _known(raw)
            if known:
                events.append(self._event(raw, is_map, number))
            else:
                batch.unknown_events += 1
        batch.events = events
        return batch

    def _event(self, raw: msgspec.Raw, is_map: bool, number: int) -> object:
        try:
            event: object = self._events[0 if is_map else 1].decode(raw)
            return event
        except msgspec.DecodeError as error:
            raise BadBatch(f"event {number} of a batch: {_where(error)}") from None


class _Typed(msgspec.Struct, gc=False):
    type: str


_RAW = msgspec.msgpack.Decoder(_Shell[msgspec.Raw])
_MAP_TYPE = msgspec.msgpack.Decoder(_Typed)
_ROW_TYPE = msgspec.msgpack.Decoder(list[msgspec.Raw])
_TEXT = msgspec.msgpack.Decoder(str)
_KNOWN = {"BlockStored", "BlockRemoved", "AllBlocksCleared"}


def _known(raw: msgspec.Raw) -> tuple[bool, bool]:
    """Whether the type of an event is known, and whether the event is a map."""
    try:
        return _MAP_TYPE.decode(raw).type in _KNOWN, True
    except msgspec.DecodeError:
        pass
    try:
        parts = _ROW_TYPE.decode(raw)
        return bool(parts) and _TEXT.decode(parts[0]) in _KNOWN, False
    except msgspec.DecodeError as error:
        raise BadBatch(f"an event without a type: {_where(error)}") from None


def _checked(ts: float) -> float:
    """Seconds since the epoch that a calendar has."""
    if not 0 <= ts < _LATEST_SECONDS:
        raise BadBatch("no batch of KV-cache events: its time is no time of this age")
    return ts


def _where(error: msgspec.DecodeError) -> str:
    """The path and kinds of msgspec's message. Its own words name types and positions only, but
    for tags, which are quoted."""
    text = str(error)
    return text if "'" not in text else "a field of an unexpected kind"


def tier_of(medium: str | None) -> Tier | None:
    """Our word for where an event says a block is; None for a word we do not know."""
    tier = _TIERS.get(medium)
    return tier or _TIERS.get((medium or "").upper())


def unsigned(block_hashes: Sequence[Hash]) -> "array[int]":
    """Block hashes as unsigned 64-bit numbers, whichever way an engine writes them: signed ones
    by their bits, bytes by their last eight, which is what vLLM publishes of them as a number."""
    try:
        return array("Q", block_hashes)  # type: ignore[arg-type]  # bytes raise TypeError
    except (OverflowError, TypeError):
        return array("Q", map(unsigned_hash, block_hashes))


def unsigned_hash(block_hash: Hash) -> int:
    """The same for one; no bytes at all are 0."""
    if isinstance(block_hash, bytes):
        return int.from_bytes(block_hash[-_HASH_BYTES:], "big")
    return block_hash & _LOW_64
