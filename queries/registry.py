"""Finds the questions and runs one: parameters are checked, bound as variables, never pasted."""

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from types import MappingProxyType

import duckdb
import pyarrow as pa

from queries.header import Param, Question, parse_question
from queries.times import as_utc, parse_time
from queries.views import views_sql

__all__ = [
    "BadParameter", "UnknownQuestion", "checked", "question", "questions", "rows", "run",
    "views_sql",
]  # fmt: skip

# `execute` plans a question once, `sql` twice, a third to a half of all it costs where few rows
# come out. Its extra copy of the answer, which DuckDB warns of, matters where many do.
warnings.filterwarnings("ignore", "Arrow output on a DB-API result")


class UnknownQuestion(LookupError):
    """No question has that name; the message lists those that exist."""


class BadParameter(ValueError):
    """A parameter is unknown, missing or of the wrong kind; the message names the known ones."""


@cache
def questions() -> Mapping[str, Question]:
    """Every question by name, in order of name. Read once per process."""
    files = sorted(resources.files("queries").iterdir(), key=lambda file: file.name)
    found: dict[str, Question] = {}
    for file in files:
        if file.name.endswith(".sql"):
            asked = parse_question(file.read_text(encoding="utf-8"), file.name)
            found[asked.name] = asked
    return MappingProxyType(found)


def question(name: str) -> Question:
    """The question of that name, else UnknownQuestion."""
    try:
        return questions()[name]
    except KeyError:
        raise UnknownQuestion(
            f"unknown question {name!r}; known: {', '.join(questions())}"
        ) from None


def run(
    cursor: duckdb.DuckDBPyConnection, name: str, params: Mapping[str, object] | None = None
) -> pa.Table:
    """Answer a question on a store.

    `cursor` is used by one thread at a time and keeps the variables set. A parameter that is
    absent or None takes its default. Time stamps of the answer are UTC without a zone. With `by`
    the column `value` carries the dimension's name, without `by` it is left out.
    """
    asked = question(name)
    values = checked(asked, params or {})
    if values.get("zone") is not None:
        _check_zone(cursor, values["zone"])
    for variable, param in asked.params.items():
        # Names and types come from the header, never from the caller; values are bound.
        cursor.execute(
            f'SET VARIABLE "{variable}" = CAST(? AS {param.type})', [values.get(variable)]
        )
    answer = cursor.sql(asked.sql) if asked.many_rows else cursor.execute(asked.sql)
    return _named(asked, answer.to_arrow_table(), values.get("by"))


def _check_zone(cursor: duckdb.DuckDBPyConnection, zone: object) -> None:
    """Only DuckDB knows which zones it knows, and it looks only where rows come to be asked for."""
    try:
        cursor.execute("SELECT TIMESTAMP '2026-01-01' AT TIME ZONE ?", [zone])
    except duckdb.NotImplementedException:
        raise BadParameter(
            f"parameter zone: {str(zone)[:60]!r} is no time zone; write UTC or Europe/Berlin"
        ) from None


def rows(table: pa.Table) -> list[dict[str, object]]:
    """The table as JSON-ready rows: ISO times with Z, no NaN or infinity, maps as objects."""
    plain = table.to_pydict()
    for field in table.schema:
        plain[field.name] = [_jsonable(value, field.type) for value in plain[field.name]]
    return [dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)]


def checked(asked: Question, params: Mapping[str, object]) -> dict[str, object]:
    """The given parameters in their declared types; BadParameter says what to change."""
    unknown = [name for name in params if name not in asked.params]
    if unknown:
        known = ", ".join(asked.params) or "none"
        raise BadParameter(
            f"unknown parameter {unknown[0]!r} of {asked.name}; known parameters: {known}"
        )
    values = {name: _value(name, asked.params[name], value) for name, value in params.items()}
    for name, param in asked.params.items():
        if param.required and values.get(name) is None:
            choices = f"; one of: {', '.join(param.one_of)}" if param.one_of else ""
            raise BadParameter(f"{asked.name} needs the parameter {name}{choices}")
    return values


def _value(name: str, param: Param, value: object) -> object:
    if value is None:
        return None
    try:
        converted = _CONVERT[param.type](value)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadParameter(f"parameter {name}: {error}") from None
    if param.one_of is not None and converted not in param.one_of:
        raise BadParameter(f"parameter {name}: {value!r} is not one of: {', '.join(param.one_of)}")
    if param.minimum is not None and isinstance(converted, int) and converted < param.minimum:
        raise BadParameter(f"parameter {name}: {value!r} is below {param.minimum}")
    return converted


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def _whole(value: object) -> int:
    number = value if isinstance(value, int) else int(_text(value))
    if isinstance(value, bool) or not -(2**63) <= number < 2**63:
        raise ValueError(f"{value!r} is not a whole number of at most 64 bits")
    return number


def _number(value: object) -> float:
    number = float(value) if isinstance(value, int | float) else float(_text(value))
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError(f"{value!r} is not a finite number")
    return number


def _moment(value: object) -> datetime:
    moment = as_utc(value) if isinstance(value, datetime) else parse_time(_text(value))
    return moment.replace(tzinfo=None)


_CONVERT = {"VARCHAR": _text, "BIGINT": _whole, "DOUBLE": _number, "TIMESTAMP": _moment}


def _named(asked: Question, table: pa.Table, dimension: object) -> pa.Table:
    if "by" not in asked.params:
        return table
    if dimension is None:
        return table.drop_columns(["value"])
    return table.rename_columns({"value": str(dimension)})


def _jsonable(value: object, kind: pa.DataType) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC).isoformat().replace("+00:00", "Z")
    if value is not None and pa.types.is_map(kind):
        return {str(key): _jsonable(item, kind.item_type) for key, item in _entries(value)}
    return value


def _entries(value: object) -> Iterator[tuple[object, object]]:
    assert isinstance(value, Iterable)
    yield from value
