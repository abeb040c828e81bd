"""How far causes were named, kept in the store in the same transaction as the sums."""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import duckdb
import numpy as np

from exporter.causes.lasting import Lasting
from exporter.causes.packed import packed, unpacked
from exporter.causes.settings import CauseSettings
from exporter.isolation.unnamed import UnnamedScopes
from exporter.store.database import cursor_beside
from replay.memory import Limits
from replay.seen import Change
from replay.streaming import CauseStream, Named

_log = logging.getLogger(__name__)

_JSON = "json"
# Raised whenever what is kept, or what it means, is another.
_FORMAT = 1


@dataclass
class PartState:
    """What is remembered of the rows of one cache rule whose hashes stand for equally many tokens,
    so that their chains can be compared. `until`: the end of the last span it was given. `resets`:
    the last reset of each replica that it was told of."""

    stream: CauseStream
    until: float
    resets: dict[str, float] = field(default_factory=dict)


@dataclass
class CauseState:
    """All that is remembered between two seals. Counted are the rows before `sealed`, and of those
    that came late for it the ones up to `batch`. `is_anew`: what the store has cannot be read."""

    sealed: datetime
    batch: int
    is_anew: bool = field(default=False, kw_only=True)
    lasting: Lasting = field(default_factory=Lasting)
    unnamed: UnnamedScopes = field(default_factory=UnnamedScopes)
    parts: dict[str, PartState] = field(default_factory=dict)


def limits_of(settings: CauseSettings) -> Limits:
    """As the memory takes them."""
    return Limits(settings.horizon_days * 86_400, settings.most_blocks)


def load(cursor: duckdb.DuckDBPyConnection, settings: CauseSettings) -> CauseState | None:
    """As it was at the last seal; None before the first. Where another version kept it, nothing is
    remembered but what was sealed: `begin_anew` then."""
    row = cursor.execute("SELECT sealed, batch, state FROM cause_state").fetchone()
    if row is None:
        return None
    arrays = unpacked(row[2])
    told = json.loads(arrays.pop(_JSON).tobytes())
    try:
        if told["format"] == _FORMAT:
            return _restored(cursor, settings, CauseState(row[0], row[1]), told, arrays)
    except KeyError as missing:
        _log.debug("of what was known of causes %s is missing", missing)
    _log.warning(
        "what was seen before %s was kept by another version and cannot be read: from there on"
        " causes are named anew, and for a while more tokens count as new", row[0]
    )  # fmt: skip
    return CauseState(row[0], row[1], is_anew=True)


def _restored(
    cursor: duckdb.DuckDBPyConnection,
    settings: CauseSettings,
    state: CauseState,
    told: dict[str, Any],
    arrays: dict[str, Any],
) -> CauseState:
    """With all that was kept of it. Raises KeyError where something is not there."""
    state.lasting = Lasting.from_kept(told["lasting"])
    state.unnamed = UnnamedScopes.from_kept(told["unnamed"])
    for name, part in told["parts"].items():
        own = {
            key.removeprefix(f"{name}|"): array
            for key, array in arrays.items()
            if key.startswith(f"{name}|")
        }
        stream = CauseStream.restored(
            limits_of(settings), part["lifetimes"], (part["memory"], own), _changes(cursor, name)
        )
        state.parts[name] = PartState(stream, part["until"], part["resets"])
    return state


def _changes(cursor: duckdb.DuckDBPyConnection, part: str) -> Iterator[tuple[int, Change]]:
    own = cursor_beside(cursor)
    own.execute(
        "SELECT generation, change FROM cause_changes WHERE part = $part ORDER BY minute, batch",
        {"part": part},
    )
    while row := own.fetchone():
        yield row[0], unpacked(row[1])
    own.close()


def begin_anew(cursor: duckdb.DuckDBPyConnection, state: CauseState) -> None:
    """Inside a transaction: forget what cannot be read."""
    cursor.execute("DELETE FROM cause_changes")
    state.is_anew = False
    keep(cursor, state)


def keep(cursor: duckdb.DuckDBPyConnection, state: CauseState) -> None:
    """Inside a transaction: all but the changes."""
    parts: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for name, part in state.parts.items():
        memory, own = part.stream.kept()
        lifetimes = part.stream.memory.lifetimes
        parts[name] = {
            "memory": memory,
            "until": part.until,
            "resets": part.resets,
            "lifetimes": lifetimes,
        }
        arrays |= {f"{name}|{key}": array for key, array in own.items()}
    told = json.dumps({
        "format": _FORMAT, "lasting": state.lasting.kept(), "unnamed": state.unnamed.kept(),
        "parts": parts,
    })  # fmt: skip
    cursor.execute("DELETE FROM cause_state")
    cursor.execute(
        "INSERT INTO cause_state VALUES ($sealed, $batch, $state)",
        {
            "sealed": state.sealed,
            "batch": state.batch,
            "state": packed({**arrays, _JSON: np.frombuffer(told.encode(), np.uint8)}),
        },
    )


def keep_change(
    cursor: duckdb.DuckDBPyConnection, part: str, state: CauseState, named: Named
) -> None:
    """Inside a transaction: what the span that was sealed last added to the memory of a part."""
    if named.turned:
        cursor.execute(
            "DELETE FROM cause_changes WHERE part = $part AND generation < $oldest",
            {"part": part, "oldest": named.generation - 1},
        )
    cursor.execute(
        "INSERT INTO cause_changes VALUES ($part, $generation, $minute, $batch, $change)",
        {
            "part": part,
            "generation": named.generation,
            "minute": state.sealed,
            "batch": state.batch,
            "change": packed(named.change),
        },
    )
