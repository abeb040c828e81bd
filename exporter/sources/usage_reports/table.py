"""What a usage API's answers look like, as a typed table, and the one reader for all of them.

An answer is a page: buckets of time, each with one result per group. A page with a fault is
refused as a whole, by the place of the fault: a report of which a part was dropped would be
compared as if it were all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import ValidationError

from exporter.errors import PrefixscopeError
from exporter.sources.usage_reports.rows import LONGEST_BUCKET_SECONDS, MOST_TOKENS, UsageRow

Measure = Literal[
    "requests", "prompt_tokens", "cached_tokens", "cache_write_tokens", "output_tokens"
]
Grain = Literal["1d", "1h"]
# The parts of a member that is itself an object: `cache_creation.*`.
EVERY_PART = ".*"
_KEY_LETTERS = 40


class ReportProblem(PrefixscopeError):
    """A report cannot be read or fetched; the message names the place and what to do."""


@dataclass(frozen=True)
class Sum:
    """The members of a result that make up one measure, added up.

    `required` ones must be there: without them the measure would be too small and look whole.
    """

    parts: tuple[str, ...]
    required: bool = True


@dataclass(frozen=True)
class ReportTable:
    """One provider's usage API: how it is asked and how its answers are read."""

    provider: str
    title: str
    url: str
    key_variable: str
    key_advice: str
    headers: Callable[[str], dict[str, str]]
    query: Callable[[datetime, datetime | None, Grain], list[tuple[str, str]]]
    start: str
    end: str
    moment: Callable[[object], datetime]
    measures: Mapping[Measure, Sum]
    tenant: tuple[str, ...]
    model: str = "model"


@dataclass(frozen=True)
class Page:
    """One answer as read. `rows` by bucket; a bucket without results has its row of zeros."""

    buckets: Mapping[tuple[datetime, int], tuple[UsageRow, ...]]
    more: bool = False
    next_page: str | None = None
    odd: tuple[str, ...] = field(default=())


def read_page(table: ReportTable, document: object, where: str) -> Page:
    """One answer of the API; ReportProblem names page, bucket, result and field of a fault."""
    page = _object(document, where)
    buckets: dict[tuple[datetime, int], tuple[UsageRow, ...]] = {}
    odd: list[str] = []
    for number, value in enumerate(_list(page, "data", where), 1):
        place = f"{where}, bucket {number}"
        bucket = _object(value, place)
        start, seconds = _span(table, bucket, place)
        place = f"{place} ({start.isoformat().replace('+00:00', 'Z')})"
        rows = tuple(_rows(table, _list(bucket, "results", place), start, seconds, place))
        odd += [f"{place}: more cached and written than prompt tokens" for row in rows if _odd(row)]
        buckets[start, seconds] = rows
    return Page(buckets, page.get("has_more") is True, _next(page, where), tuple(odd))


def _rows(
    table: ReportTable, results: Sequence[object], start: datetime, seconds: int, place: str
) -> Iterator[UsageRow]:
    common: dict[str, Any] = {"day": start, "bucket_seconds": seconds, "provider": table.provider}
    if not results:
        yield UsageRow(**common, requests=0, prompt_tokens=0, cached_tokens=0,
                       cache_write_tokens=0, output_tokens=0)  # fmt: skip
    for number, result in enumerate(results, 1):
        where = f"{place}, result {number}"
        given = _object(result, where)
        told: dict[str, Any] = {
            name: _sum(given, wanted, where) for name, wanted in table.measures.items()
        }
        told["model"] = _name(given, (table.model,), where)
        told["tenant"] = _name(given, table.tenant, where)
        try:
            yield UsageRow.model_validate({**common, **told})
        except ValidationError as error:
            fault = error.errors(include_input=False, include_url=False)[0]
            name = ".".join(str(part) for part in fault["loc"])
            raise ReportProblem(f"{where}: {name}: {fault['msg']}") from None


def _sum(result: Mapping[str, Any], wanted: Sum, where: str) -> int | None:
    """The parts added up; None where none is there and none must be."""
    found = [count for part in wanted.parts for count in _counts(result, part, wanted, where)]
    return sum(found) if found else None


def _counts(result: Mapping[str, Any], part: str, wanted: Sum, where: str) -> Iterator[int]:
    name = part.removesuffix(EVERY_PART)
    value = result.get(name)
    if value is None:
        if wanted.required:
            raise ReportProblem(f"{where}: {name}: is missing")
        return
    if part.endswith(EVERY_PART):
        members = _object(value, f"{where}: {name}")
        yield from (_count(members[one], f"{where}: {name}.{_key(one)}") for one in members)
    else:
        yield _count(value, f"{where}: {name}")


def _count(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ReportProblem(f"{where}: must be a whole number, not {_kind(value)}")
    if not 0 <= value <= MOST_TOKENS:
        raise ReportProblem(f"{where}: must be between 0 and {MOST_TOKENS:,}")
    return value


def _name(result: Mapping[str, Any], fields: Sequence[str], where: str) -> str | None:
    """The first of the names that is given."""
    for name in fields:
        value = result.get(name)
        if value is not None and not isinstance(value, str):
            raise ReportProblem(f"{where}: {name}: must be text or null, not {_kind(value)}")
        if value:
            return value
    return None


def _span(table: ReportTable, bucket: Mapping[str, Any], where: str) -> tuple[datetime, int]:
    """Start and length of a bucket."""
    start = _moment(table, bucket, table.start, where)
    seconds = (_moment(table, bucket, table.end, where) - start).total_seconds()
    if not 0 < seconds <= LONGEST_BUCKET_SECONDS or seconds != int(seconds):
        raise ReportProblem(f"{where}: {table.end}: must be whole seconds after {table.start}")
    return start, int(seconds)


def _moment(table: ReportTable, bucket: Mapping[str, Any], name: str, where: str) -> datetime:
    try:
        return table.moment(bucket.get(name)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        raise ReportProblem(f"{where}: {name}: is missing or no time") from None


def _next(page: Mapping[str, Any], where: str) -> str | None:
    token = page.get("next_page")
    if token is not None and not isinstance(token, str):
        raise ReportProblem(f"{where}: next_page: must be text or null, not {_kind(token)}")
    return token or None


def _odd(row: UsageRow) -> bool:
    return (row.cached_tokens or 0) + (row.cache_write_tokens or 0) > row.prompt_tokens


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ReportProblem(f"{where}: must be an object, not {_kind(value)}")
    return value


def _list(value: Mapping[str, Any], name: str, where: str) -> Sequence[object]:
    found = value.get(name)
    if not isinstance(found, list):
        raise ReportProblem(f"{where}: {name}: must be a list, not {_kind(found)}")
    return found


def _kind(value: object) -> str:
    """What stands there, never what it says: a file given by mistake may hold anything."""
    kinds = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return "nothing" if value is None else kinds.get(type(value), "another number")


def _key(name: str) -> str:
    return name[:_KEY_LETTERS] if name.isidentifier() else "?"
