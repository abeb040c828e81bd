"""Lines of a log whose rows may carry prompts: where they do, names take their place."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from exporter.prompts.naming import PromptReader
from exporter.sources.formats.mapping import LogFormat, PromptPlaces, Row, parts_of
from exporter.sources.formats.reshape import one_object


@dataclass(frozen=True)
class Reshape:
    """How lines become rows for a table. `marks`: only lines with one of these texts need it, the
    others stay as they are; none: every line."""

    rows: Callable[[str], Iterable[Row]]
    marks: tuple[str, ...] = ()


def reshape_of(log_format: LogFormat, reader: PromptReader, key: str) -> Reshape | None:
    """For the lines of a format; None: they are read as they are."""
    places = log_format.prompts
    if places is None:
        return Reshape(log_format.reshape) if log_format.reshape else None
    rows_of = log_format.reshape or _as_it_is

    def rows(line: str) -> Iterable[Row]:
        return [reader.named(row, log_format, key) for row in rows_of(line)]

    return Reshape(rows, () if log_format.reshape else _marks(places))


def _as_it_is(line: str) -> Iterable[Row]:
    return [one_object(line)]


def _marks(places: PromptPlaces) -> tuple[str, ...]:
    """The keys that a row with a prompt has, as they are written. A key spelt with escapes is not
    found, and its row stays without names."""
    keys = [parts_of(path)[-1] for path in (*places.token_ids, *places.texts)]
    marks = [f'"{key}"' for key in keys]
    if places.requests:  # which may be JSON text inside the row
        marks += [f"{key}{end}" for key in ('"messages', '"prompt') for end in ('"', '\\"')]
    return tuple(dict.fromkeys(marks))
