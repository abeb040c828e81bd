"""What is known of caches beside the rows of requests: recorded events, and resets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from exporter.blocks.order import Heard as Place
from exporter.blocks.order import Order, digest
from exporter.blocks.stays import StayReader
from exporter.blocks.wire import BadBatch, Decoder
from exporter.causes.sealing import reset_moments
from exporter.sources.events.recorded_lines import read_recorded
from exporter.sources.packed import open_input
from exporter.sources.page_files import target_name
from prefixscope.loading import open_file
from replay.columns import Fleet
from replay.residency import replicas_by_events
from replay.traffic import Flags, Moments, Numbers, Stays, Traffic


@dataclass(frozen=True)
class Heard:
    """`replicas` names the numbers in `resets` and `stays`; `stays` None: no events. `key_id`:
    the key that the blocks of events are named with. `block_tokens`: of the caches of those
    replicas whose events tell."""

    replicas: tuple[str, ...] = ()
    resets: Moments = field(default_factory=Moments)
    stays: Stays | None = None
    key_id: str = ""
    block_tokens: Mapping[str, int] = field(default_factory=dict)


def told_resets(table: pa.Table) -> Heard:
    """From an answer of `block_resets`."""
    rows = reset_moments(table)
    names = tuple(dict.fromkeys(name for name, _ in rows))
    return Heard(names, Moments.of([(names.index(name), moment) for name, moment in rows]))


class EventFiles:
    """Reads recordings of KV-cache events, each replica named after the folder of its file."""

    def __init__(self, key: str, key_id: str, say: Callable[[str], None]) -> None:
        self._reader, self._decoder = StayReader(key), Decoder(tokens=True)
        self._key_id, self.refuse = key_id, say
        self._orders: dict[tuple[str, str], Order] = {}
        self._numbers: dict[tuple[str, int], int] = {}

    def read(self, path: Path) -> None:
        """Take a whole recording. What cannot be read of it is said, and costs only itself."""
        folder = target_name(path.parent)
        with open_file(path) as file:
            for line in read_recorded(open_input(file), str(path), self):
                try:
                    batch = self._decoder.decode(line.batch.payload)
                except BadBatch as error:
                    self.refuse(f"{path}: {error}")
                    continue
                replica = self._numbers.setdefault((folder, batch.rank or 0), len(self._numbers))
                placed = self._place(folder, line.endpoint, line.batch.sequence, line.batch.payload)
                if placed is Place.RESTARTED:
                    self._reader.restart(replica)
                if placed is not Place.REPEATED:
                    self._reader.take(replica, batch)

    def _place(self, folder: str, endpoint: str, sequence: int, payload: bytes) -> Place:
        order = self._orders.setdefault((folder, endpoint), Order())
        placed = order.place(sequence, digest(payload), replayed=False)
        if placed is Place.GAP or order.missing:
            self.refuse(f"{folder}: event batches are missing before {sequence}; what its cache"
                        " held may be wrong from there on")  # fmt: skip
            order.give_up()
            order.place(sequence, digest(payload), replayed=False)
        return placed

    def told(self) -> Heard:
        """All of it."""
        stays, resets = self._reader.told()
        folders = [folder for folder, _ in self._numbers]
        names = tuple(
            f"{folder}/{rank}" if folders.count(folder) > 1 else folder
            for folder, rank in self._numbers
        )
        sizes = {names[replica]: size for replica, size in self._reader.block_tokens.items()}
        return Heard(names, resets, stays, self._key_id, sizes)


@dataclass(frozen=True)
class Served:
    """Rows beside the fleet that served them. `names`: of the replicas that `traffic` and `fleet`
    number. `unplaced`: rows of which neither they nor events tell the replica, so that they stand
    with the first of several."""

    traffic: Traffic
    fleet: Fleet
    names: list[str]
    unplaced: Flags


def beside(traffic: Traffic, names: Sequence[str], heard: Heard) -> Served:
    """Put rows beside what was heard of the fleet.

    `names`: of the rows' replicas, '' where a row names none. Such rows are of the one replica
    that was heard, or of the rank whose events show the blocks they computed.
    """
    unplaced = np.zeros(len(traffic), np.bool_)
    unnamed = list(names) == [""]
    # Resets alone do not say which replica rows without one were served by.
    if not heard.replicas or (unnamed and heard.stays is None):
        return Served(traffic, Fleet(), list(names), unplaced)
    every = list(dict.fromkeys([*heard.replicas, *names]))
    numbers = np.array([every.index(name) for name in names], np.int64)
    own = np.zeros(len(traffic), np.int64) if traffic.replica is None else traffic.replica
    replica = numbers[own]
    if unnamed and heard.stays is not None:
        found = _heard_at(traffic, heard.stays, len(heard.replicas))
        replica, unplaced = np.maximum(found, 0), found < 0
    stays = heard.stays
    if stays is not None:
        stays = replace(stays, deployment=_served(traffic, replica, len(every))[stays.replica])
    fleet = Fleet(resets=heard.resets, stays=stays)
    return Served(replace(traffic, replica=replica), fleet, every, unplaced)


def _heard_at(traffic: Traffic, stays: Stays, replicas: int) -> Numbers:
    """Which of the replicas that were heard served each row; -1 where events do not tell. Rows
    without any cached count have no times, and no causes either."""
    if replicas == 1 or traffic.looked_up is None:
        return np.zeros(len(traffic), np.int64)
    return replicas_by_events(traffic, stays)


def _served(traffic: Traffic, replica: Numbers, replicas: int) -> Numbers:
    """What each replica served, by its rows: the last of it where there was more than one."""
    served = np.zeros(replicas, np.int64)
    if traffic.deployment is not None:
        served[replica] = traffic.deployment
    return served
