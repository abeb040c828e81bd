"""Labels beside a trace, as `prefixscope export --labels` writes them: line by line, as numbers."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
import numpy as np

from exporter.errors import PrefixscopeError
from exporter.sources.packed import DAMAGED, open_input
from replay.counted import counted
from replay.recorded import Labels


class _Line(msgspec.Struct):
    session: int | None = None
    template: int | None = None
    tenant: int | None = None
    replica: int | None = None
    scope: int | None = None


@dataclass(frozen=True)
class TraceLabels:
    """Of each request in the order of the trace; None where no line has such a label."""

    session: Labels | None = None
    template: Labels | None = None
    tenant: Labels | None = None
    replica: Labels | None = None
    scope: Labels | None = None

    def words(self) -> str:
        """What they tell."""
        names = [each.name for each in fields(self) if getattr(self, each.name) is not None]
        return f"Labels of each request: {', '.join(names) or 'none that is known here'}"


def read_labels(path: Path, requests: int) -> TraceLabels:
    """PrefixscopeError where a line is none, or there are more or fewer than requests."""
    lines = _lines(path)
    if len(lines) != requests:
        raise PrefixscopeError(
            f"{path}: {counted(len(lines), 'line')} of labels beside a trace of "
            f"{counted(requests, 'request')}: give the file that `prefixscope export --labels` "
            "wrote with this trace"
        )
    named = {name: [getattr(line, name) for line in lines] for name in _Line.__struct_fields__}
    return TraceLabels(**{name: _labels(told) for name, told in named.items()})


def _lines(path: Path) -> list[_Line]:
    decode = msgspec.json.Decoder(_Line).decode
    lines: list[_Line] = []
    try:
        with path.open("rb") as file:
            lines.extend(decode(line) for line in open_input(cast("BinaryIO", file)))
    except msgspec.DecodeError as error:
        said = f"{path}, line {len(lines) + 1}: {error}; labels are numbers"
        raise PrefixscopeError(said) from None
    except OSError as error:
        raise PrefixscopeError(f"{path}: {error.strerror or error}") from error
    except DAMAGED as error:
        raise PrefixscopeError(f"{path}: the packed data is damaged: {error}") from error
    return lines


def _labels(told: list[int | None]) -> Labels | None:
    if all(number is None for number in told):
        return None
    numbers = np.array([-1 if number is None else number for number in told], np.int64)
    names, codes = np.unique(numbers[numbers >= 0], return_inverse=True)
    found = np.full(len(told), -1, np.int64)
    found[numbers >= 0] = codes
    return Labels(found, [str(name) for name in names.tolist()])
