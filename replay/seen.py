"""Which blocks were ever seen, and where: one generation of the memory of a pass that goes on.

Arrays instead of objects: a block takes 19 to 30 bytes for its name, 1 for its flags, 2 a replica
and, where contents are known, 12 to 20 each for what it holds and for its prefix. What a minute
adds is told as arrays too, so that it can be kept and taken in again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from replay.hash_table import HashTable
from replay.name_set import NameSet
from replay.traffic import Names, Numbers, Seconds, Small

# Of a replica's resets: which stay a block was last seen in, from 1; 0: never there.
StayNumbers = npt.NDArray[np.uint16]
MOST_STAYS = np.iinfo(np.uint16).max
# What a minute added, by name of the array.
Change = Mapping[str, npt.NDArray[np.generic]]

STARTED, ENDS = np.uint8(1), np.uint8(2)
# A prompt ended with the block of which nobody knows how far it, or its answer, filled a cache.
OPEN = np.uint8(4)
NEVER_USED = -np.inf
_SMALLEST = 64
_GROWTH_RATIO = 1.25
_ANSWER_COLUMNS = (
    "served", "number", "stay", "length", "prompt_tokens", "output_tokens", "furthest_tokens",
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """What is known of some blocks. `stays`, `used`: a row a block, a column a replica."""

    flags: npt.NDArray[np.uint8]
    stays: StayNumbers
    used: Seconds | None


@dataclass(frozen=True)
class AnswerRows:
    """Answered prompts by key (last block and replica); columns as in `history.EarlierAnswers`,
    `stay` as for blocks."""

    keys: Names
    columns: dict[str, Numbers]

    @classmethod
    def none(cls) -> "AnswerRows":
        """No answers."""
        empty = np.empty(0, np.int64)
        return cls(np.empty(0, np.uint64), dict.fromkeys(_ANSWER_COLUMNS, empty))


class Generation:
    """Everything seen since some moment. `lifetimes`: when blocks were used is kept too."""

    def __init__(self, begun_seconds: float, lifetimes: bool) -> None:
        self.begun_seconds = begun_seconds
        self._rows = HashTable()
        self._flags = np.zeros(_SMALLEST, np.uint8)
        # Of the replicas that were met: number → column.
        self._columns: dict[int, int] = {}
        self._stays: StayNumbers = np.zeros((_SMALLEST, 0), np.uint16)
        self._used: Seconds | None = np.zeros((_SMALLEST, 0)) if lifetimes else None
        self.contents, self.prefixes = NameSet(), NameSet()
        # Of scopes that sent anything, and that sent a prompt whose blocks have no names.
        self.roots, self.open_roots = NameSet(), NameSet()
        self._answer_rows = HashTable()
        self._answers = {name: np.zeros(_SMALLEST, np.int64) for name in _ANSWER_COLUMNS}

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def bytes(self) -> int:
        """Memory of all tables."""
        used = 0 if self._used is None else self._used.nbytes
        arrays = self._flags.nbytes + self._stays.nbytes + used
        answers = self._answer_rows.bytes + sum(each.nbytes for each in self._answers.values())
        sets = (self.contents, self.prefixes, self.roots, self.open_roots)
        return self._rows.bytes + arrays + answers + sum(each.bytes for each in sets)

    # ------------------------------------------------------------------ what is known

    def find(self, names: Names, replicas: int) -> Found:
        """Of every name, known or not."""
        rows = self._rows.find(names)
        known = np.flatnonzero(rows >= 0)
        rows = rows[known]
        flags = np.zeros(len(names), np.uint8)
        flags[known] = self._flags[rows]
        stays: StayNumbers = np.zeros((len(names), replicas), np.uint16)
        used = None if self._used is None else np.full((len(names), replicas), NEVER_USED)
        for replica, column in self._columns.items():
            stays[known, replica] = self._stays[rows, column]
            if used is not None and self._used is not None:
                used[known, replica] = self._used[rows, column]
        return Found(flags, stays, used)

    def find_answers(self, keys: Names) -> tuple[Numbers, AnswerRows]:
        """The answers that are known, and of which keys they are."""
        rows = self._answer_rows.find(keys)
        places = np.flatnonzero(rows >= 0)
        columns = {name: each[rows[places]] for name, each in self._answers.items()}
        return places, AnswerRows(keys[places], columns)

    # ------------------------------------------------------------------ what is added

    def add(self, names: Names, found: Found) -> Change:
        """Blocks, each once, with what is now known of them as well. What that changed."""
        before = self._rows.find(names)
        fresh = before < 0
        rows = self._rows_of(names)
        flags, stays = self._flags[rows] | found.flags, self._grown(rows, found.stays)
        changed = fresh | (flags != self._flags[rows])
        for replica, column in self._columns.items():
            changed |= stays[:, replica] != self._stays[rows, column]
        used = None
        if found.used is not None:
            used = np.maximum(self._used_of(rows, found.used.shape[1]), found.used)
            changed |= (used > self._used_of(rows, used.shape[1])).any(axis=1)
        picked = np.flatnonzero(changed)
        part = Found(flags[picked], stays[picked], None if used is None else used[picked])
        self._set(rows[picked], part)
        change: dict[str, npt.NDArray[np.generic]] = {
            "names": names[picked], "flags": part.flags, "stays": part.stays
        }  # fmt: skip
        if part.used is not None:
            change["used"] = part.used
        return change

    def _grown(self, rows: Small, stays: StayNumbers) -> StayNumbers:
        """The later stay of each block and replica. A replica that was not met gets a column."""
        for replica in np.flatnonzero(stays.any(axis=0)).tolist():
            if replica not in self._columns:
                self._columns[replica] = len(self._columns)
                self._widen()
        known = np.zeros_like(stays)
        for replica, column in self._columns.items():
            known[:, replica] = self._stays[rows, column]
        grown: StayNumbers = np.maximum(known, stays)
        return grown

    def _widen(self) -> None:
        """Room for one replica more."""
        self._stays = np.pad(self._stays, ((0, 0), (0, 1)))
        if self._used is not None:
            self._used = np.pad(self._used, ((0, 0), (0, 1)), constant_values=NEVER_USED)

    def _used_of(self, rows: Small, replicas: int) -> Seconds:
        used = np.full((len(rows), replicas), NEVER_USED)
        if self._used is not None:
            for replica, column in self._columns.items():
                used[:, replica] = self._used[rows, column]
        return used

    def _set(self, rows: Small, found: Found) -> None:
        self._flags[rows] = found.flags
        for replica, column in self._columns.items():
            self._stays[rows, column] = found.stays[:, replica]
            if self._used is not None and found.used is not None:
                self._used[rows, column] = found.used[:, replica]

    def _rows_of(self, names: Names) -> Small:
        """The row of each name; new ones get one."""
        rows = self._rows.find(names)
        missing = np.flatnonzero(rows < 0)
        count = len(self._rows)
        rows[missing] = np.arange(count, count + len(missing), dtype=np.int32)
        self._rows.insert(names[missing], rows[missing])
        if count + len(missing) > len(self._flags):
            self._make_room(int(_GROWTH_RATIO * (count + len(missing))))
        return rows

    def _make_room(self, rows: int) -> None:
        more = rows - len(self._flags)
        self._flags = np.pad(self._flags, (0, more))
        self._stays = np.pad(self._stays, ((0, more), (0, 0)))
        if self._used is not None:
            self._used = np.pad(self._used, ((0, more), (0, 0)), constant_values=NEVER_USED)

    def add_answers(self, answers: AnswerRows) -> None:
        """Answers, each key once; one that was known is replaced."""
        rows = self._answer_rows.find(answers.keys)
        missing = np.flatnonzero(rows < 0)
        count = len(self._answer_rows)
        rows[missing] = np.arange(count, count + len(missing), dtype=np.int32)
        self._answer_rows.insert(answers.keys[missing], rows[missing])
        for name, column in self._answers.items():
            if count + len(missing) > len(column):
                room = int(_GROWTH_RATIO * (count + len(missing)))
                column = np.pad(column, (0, room - len(column)))  # noqa: PLW2901 - it has grown
                self._answers[name] = column
            column[rows] = answers.columns[name]

    def take_in(self, change: Change) -> None:
        """Add again what `add` and the sets told that it changed."""
        names = np.asarray(change["names"], np.uint64)
        used = change.get("used")
        stays = np.asarray(change["stays"], np.uint16)
        found = Found(
            np.asarray(change["flags"], np.uint8),
            stays,
            None if used is None else np.asarray(used, np.float64),
        )
        self.add(names, found)
        self.contents.add(np.asarray(change["contents"], np.uint64))
        self.prefixes.add(np.asarray(change["prefixes"], np.uint64))
        self.roots.add(np.asarray(change["roots"], np.uint64))
        self.open_roots.add(np.asarray(change["open_roots"], np.uint64))
        columns = {name: np.asarray(change[name], np.int64) for name in _ANSWER_COLUMNS}
        self.add_answers(AnswerRows(np.asarray(change["answers"], np.uint64), columns))


def answer_change(answers: AnswerRows) -> Change:
    """Answers as part of what a minute changed."""
    return {"answers": answers.keys, **answers.columns}
