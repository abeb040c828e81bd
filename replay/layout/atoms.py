"""Prompts as sequences that can be aligned: words and signs, with what is volatile by its looks
(times, ids, numbers) standing for any of its kind."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from replay.layout.prompt import Segment

Ints = npt.NDArray[np.int64]

_TIME = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s?[AaPp](?:[Mm]\b|\.[Mm]\.))?"
_ZONE = r"(?:\s?(?:Z\b|UTC\b|GMT\b|[+-]\d{2}:?\d{2}\b))?"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*\.?,?\s+"
_NTH = r"\d{1,2}(?:st|nd|rd|th)?"
_DATE = (
    rf"(?:\d{{4}}[-/]\d{{2}}[-/]\d{{2}}|\d{{1,2}}[./]\d{{1,2}}[./]\d{{4}}"
    rf"|{_NTH}\s+{_MONTH},?\s+\d{{4}}|{_MONTH}\s+{_NTH},?\s+\d{{4}})"
)
_CLOCK = (
    rf"(?<![\w.:-])(?:{_DAY})?{_DATE}(?:(?:T|,?\s+(?:at\s+)?){_TIME}{_ZONE})?(?!\w)"
    rf"|(?<![\w.:])(?:{_DAY})?{_TIME}{_ZONE}(?![\w:])"
    r"|(?<![\w.])(?:1[5-9]|20)\d{8}(?:\d{3}|\.\d+)?(?!\w|\.\d)"
)
_PREFIX = r"(?<![\w-])(?:[A-Za-z]{2,12}[_-])?"
_UUID = (
    r"(?<!\w)[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?!\w)"
    rf"|{_PREFIX}(?=[0-9a-f]*[a-f])(?=[a-f]*\d)[0-9a-f]{{8,}}(?!\w)"
    rf"|{_PREFIX}(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{{10,}}(?!\w)"
)
_ATOM = re.compile(
    rf"(?P<clock>{_CLOCK})|(?P<uuid>{_UUID})|(?P<email>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"
    r"|(?P<number>(?<![\w.])\d[\d,]*(?:\.\d+)?(?!\w))|(?P<word>\w+)|(?P<sign>[^\w\s])"
)
WILD = ("clock", "uuid", "email", "number")
THINKING = re.compile(r"<(?P<mark>think|thinking|reasoning)>.*?(?:</(?P=mark)>\s*|\Z)", re.DOTALL)


def looks_of(text: str) -> str:
    """The kind of a text that is one atom: clock, uuid, email, number or word; '' for others."""
    found = _ATOM.fullmatch(text)
    return (found.lastgroup or "") if found else ""


class Numbering:
    """Numbers for texts, the same for the same text; remembers lines it has cut, as prompts repeat
    theirs."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {f"\0{kind}": n for n, kind in enumerate(WILD)}
        self._lines: dict[str, Ints] = {}

    def of(self, text: str) -> int:
        """The number of a text."""
        return self._numbers.setdefault(text, len(self._numbers))

    def line(self, text: str) -> Ints:
        """The atoms of a line with its end: rows of key, raw, before, begin and end. What stands
        before the first is left to whoever knows the line above."""
        known = self._lines.get(text)
        if known is None:
            rows, last = [], 0
            for found in _ATOM.finditer(text):
                kind, begin, end = found.lastgroup or "", found.start(), found.end()
                key = WILD.index(kind) if kind in WILD else self.of(found[0])
                rows.append((key, self.of(found[0]), self.of(text[last:begin]), begin, end))
                last = end
            known = np.array(rows, np.int64).reshape(-1, 5)
            self._lines[text] = known
        return known


@dataclass
class Atoms:
    """A prompt as atoms. All arrays have one entry an atom.

    `keys` are what alignment compares, below `len(WILD)` any text of that kind; `raw` numbers the
    text itself, `before` the white space and thinking in front of it; `segment`, `begin` and `end`
    say where it stands. A segment begins with an atom of no text, so that each has one.
    `tail` is what follows the last atom.
    """

    keys: Ints
    raw: Ints
    before: Ints
    segment: Ints
    begin: Ints
    end: Ints
    tail: str = ""
    segments: Sequence[Segment] = field(default_factory=tuple)

    def __len__(self) -> int:
        return len(self.keys)

    def gap(self, place: int) -> str:
        """The white space and thinking in front of an atom, as text."""
        begin = 0
        if place and self.segment[place - 1] == self.segment[place]:
            begin = int(self.end[place - 1])
        return self.segments[int(self.segment[place])].text[begin : int(self.begin[place])]


def atoms_of(segments: Sequence[Segment], numbering: Numbering) -> Atoms:
    """Cut the segments of a prompt into atoms."""
    tables: list[Ints] = []
    tail = ""
    for number, segment in enumerate(segments):
        head = (numbering.of(f"\0{segment.role}"), 0, 0, 0, 0)
        own, tail = _cut(segment.text, numbering)
        rows = np.concatenate([np.array([head], np.int64), *own])
        tables.append(np.column_stack([rows, np.full(len(rows), number, np.int64)]))
    table: Ints = np.concatenate(tables) if tables else np.empty((0, 6), np.int64)
    columns = [np.ascontiguousarray(table[:, column]) for column in range(6)]
    keys, raw, before, begin, end, places = columns
    return Atoms(keys, raw, before, places, begin, end, tail, segments)


def _cut(text: str, numbering: Numbering) -> tuple[list[Ints], str]:
    """The atoms of a text line by line, and what follows the last. What a model thought is left
    out, as if it were white space."""
    tables: list[Ints] = []
    last = 0
    for at, line in _lines(text):
        rows = numbering.line(line)
        if not len(rows):
            continue
        rows = rows.copy()
        rows[:, 3:] += at
        rows[0, 2] = numbering.of(text[last : int(rows[0, 3])])
        last = int(rows[-1, 4])
        tables.append(rows)
    return tables, text[last:]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Place and text of every line that is no thought."""
    begin = 0
    for thought in THINKING.finditer(text):
        yield from _lines_between(text, begin, thought.start())
        begin = thought.end()
    yield from _lines_between(text, begin, len(text))


def _lines_between(text: str, begin: int, end: int) -> Iterator[tuple[int, str]]:
    while begin < end:
        after = text.find("\n", begin, end) + 1 or end
        yield begin, text[begin:after]
        begin = after
