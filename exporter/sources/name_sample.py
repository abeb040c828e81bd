"""Which naming rule gives which value: the rows of a sample, read as they would be stored.

Names come from the one reading of the format. Beside it every rule is asked by itself, to tell
which of them spoke. Nothing is written, and only what the rules name leaves the rows.
"""

import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO

import duckdb
import pyarrow as pa

from exporter.errors import PrefixscopeError
from exporter.sources.formats.careful import compile_careful
from exporter.sources.formats.expressions import DEFAULTS
from exporter.sources.formats.mapping import LogFormat
from exporter.sources.formats.names import rule_values, with_names
from exporter.sources.formats.reshape import as_lines, reshaped
from exporter.sources.intake import choose_format
from exporter.sources.lines import LineBatch, LineReader
from exporter.sources.name_checks import holds_prompts
from exporter.sources.names import NAMED_FIELDS, Rule, SourceNames
from exporter.sources.packed import DAMAGED

# How much of an input is looked at; one that is read as a whole may be larger.
SAMPLED_ROWS = 10_000
SAMPLE_BYTES = 16 << 20
_BATCH_BYTES = 1 << 18
# How deep and how far along lists paths are listed.
_DEPTH = 8
_ELEMENTS = 16
# So many different values among so many rows look like ids and not like names.
_IDS_ROWS = 20
_IDS_SHARE = 0.5


@dataclass(frozen=True)
class Given:
    """A name and who gave it: a rule counted from 1, or None for the default of the source."""

    value: str
    rule: int | None


@dataclass(frozen=True)
class SampledRow:
    """`names` lacks fields nobody named; `rejected` says why the row would not be stored."""

    line_number: int
    rejected: str | None
    names: Mapping[str, Given]


@dataclass(frozen=True)
class Sample:
    """Rows of one input, the rules of each field in order, and in how many rows each path that
    a rule can name leads to a value."""

    log_format: LogFormat
    decided_because: str
    rules: Mapping[str, tuple[Rule, ...]]
    rows: list[SampledRow]
    paths: Mapping[str, int]

    def stored(self) -> list[SampledRow]:
        """The rows that are not rejected."""
        return [row for row in self.rows if row.rejected is None]

    def tally(self, field: str) -> dict[int | None, int]:
        """How many stored rows each rule named; None is the default, 0 is nobody."""
        return Counter(row.names[field].rule if field in row.names else 0 for row in self.stored())

    def distinct(self, field: str) -> int:
        """How many different names the field has."""
        return len({row.names[field].value for row in self.stored() if field in row.names})

    def looks_like_ids(self, field: str) -> bool:
        """Do rows hardly share names? A session is an id, so it may."""
        named = sum(field in row.names for row in self.stored())
        many = named >= _IDS_ROWS and self.distinct(field) >= _IDS_SHARE * named
        return many and field != "session"


def sample_names(
    stream: BinaryIO,
    names: SourceNames | None,
    *,
    name: str,
    format: str = "auto",
    rows: int = SAMPLED_ROWS,
    key: str = "",
    defaults: Mapping[str, object] | None = None,
) -> Sample:
    """The first `rows` rows of an input. `name` is what it is called in errors, `key` the secret
    of keyed hashes, `defaults` what the source states for rows that do not say it.

    Raises PrefixscopeError for input of no known format, or that is damaged at its start.
    """
    try:
        head = stream.read(SAMPLE_BYTES)
    except DAMAGED as error:
        raise PrefixscopeError(
            f"{name}: the compressed data is damaged or ends early ({error})"
        ) from error
    plain, because = choose_format(format, head, name)
    if plain.documents:
        stream = as_lines(plain.documents(io.BytesIO(head + stream.read())))
    else:
        # What was cut in the middle of a line ends before it.
        stream = io.BytesIO(head if len(head) < SAMPLE_BYTES else head[: head.rfind(b"\n") + 1])
    lines = _first_rows(stream, plain, rows)
    reader = _Reader(lines, key)
    final = reader.read(with_names(plain, names), dict(defaults or {}))
    mapped = reader.read(plain, {})
    asked = reader.ask(rule_values(names or SourceNames()))
    rules = _rules(names or SourceNames(), list(final.values()))
    sampled = [
        SampledRow(
            row["line_number"],
            row["reason"],
            dict(_given(row, mapped[position], asked[position], rules)),
        )
        for position, row in sorted(final.items())
    ]
    return Sample(plain, because, rules, sampled, _paths(lines))


def _first_rows(stream: BinaryIO, log_format: LogFormat, rows: int) -> pa.Table:
    """The lines that hold the first rows, a row each."""
    found: list[pa.Table] = []
    wanted = rows
    for batch in LineReader(stream, batch_bytes=_BATCH_BYTES):
        lines = LineBatch(batch.table.slice(0, wanted), batch.end, batch.lines)
        if log_format.reshape:
            lines = reshaped(lines, log_format.reshape)
        found.append(lines.table.slice(0, wanted))
        wanted -= found[-1].num_rows
        if not wanted:
            break
    return pa.concat_tables(found) if found else pa.table(_NO_LINES)


# pa.array() would import pandas wherever the command line is started.
_NO_LINES = {
    "position": pa.nulls(0, pa.int64()),
    "line_number": pa.nulls(0, pa.int64()),
    "line": pa.nulls(0, pa.string()),
}


def _paths(lines: pa.Table) -> Counter[str]:
    """Paths by how many rows have them. Values are looked at by nobody, and what holds prompts
    is not entered: people may have written its keys too."""
    rows: Counter[str] = Counter()
    for line in lines["line"].to_pylist():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):  # rejected, and said so by the reading
            continue
        if isinstance(row, dict):
            rows.update(set(_paths_in(row, "")))
    return rows


def _paths_in(value: object, path: str, depth: int = 0) -> Iterator[str]:
    """The paths to texts and numbers below a value."""
    if isinstance(value, dict) and depth < _DEPTH:
        for key, inner in value.items():
            if key and not holds_prompts(key) and '"' not in key and "\\" not in key:
                step = key if re.fullmatch(r"[\w$-]+", key) else f'"{key}"'
                yield from _paths_in(inner, f"{path}.{step}" if path else step, depth + 1)
    elif isinstance(value, list) and depth < _DEPTH:
        for inner in value[:_ELEMENTS]:
            yield from _paths_in(inner, f"{path}[*]", depth + 1)
    elif value is not None and not isinstance(value, dict | list):
        yield path


def _rules(names: SourceNames, rows: list[dict[str, Any]]) -> dict[str, tuple[Rule, ...]]:
    """The rules by field, with the fields that have a name though there is no rule for them."""
    given, alone = names.rules(), (Rule(mapped=True),)
    return {
        name: given.get(name, alone)
        for name in NAMED_FIELDS
        if name in given or any(row.get(name) is not None for row in rows)
    }


def _given(
    final: Mapping[str, Any],
    mapped: Mapping[str, Any],
    asked: Mapping[str, Any],
    rules: Mapping[str, tuple[Rule, ...]],
) -> Iterator[tuple[str, Given]]:
    """Each field that has a name, and the first rule that gives one."""
    for field, listed in rules.items():
        value = final.get(field)
        if value is None:
            continue
        said = asked.get(field, [None] * len(listed))
        own = mapped.get(field)
        spoke = (
            number
            for number, (rule, name) in enumerate(zip(listed, said, strict=True), 1)
            if (own if rule.mapped else name) is not None
        )
        yield field, Given(value, next(spoke, None))


class _Reader:
    """Readings of the same lines in a database of memory only: lines hold prompts."""

    def __init__(self, lines: pa.Table, key: str) -> None:
        self._key = key
        self._connection = duckdb.connect(config={"temp_directory": ""})
        self._connection.register("lines", lines)

    def read(self, log_format: LogFormat, defaults: dict[str, object]) -> dict[int, dict[str, Any]]:
        """By position: line_number, reason of a reject, and the columns the format fills."""
        now = datetime.now(UTC).replace(tzinfo=None)
        return self._rows(
            compile_careful(log_format),
            {
                "source": "sample",
                "arrived": now,
                "began": now,
                "earliest": None,
                "key": self._key,
                "hit_threshold_ratio": 0.8,
                "fingerprint": "sample",
                **{f"default_{name}": defaults.get(name) for name in DEFAULTS},
            },
        )

    def ask(self, values: Mapping[str, list[str]]) -> dict[int, dict[str, Any]]:
        """By position and field: what each rule gives, the format's own left out."""
        columns = [
            f"[{', '.join(value.replace('<mapped>', 'NULL') for value in listed)}] AS {field}"
            for field, listed in values.items()
        ]
        statement = f"SELECT {', '.join(['position', *columns])} FROM lines"  # noqa: S608 - ours
        return self._rows(statement, {"key": self._key})

    def _rows(self, statement: str, parameters: dict[str, object]) -> dict[int, dict[str, Any]]:
        used = set(re.findall(r"\$(\w+)", statement))
        result = self._connection.execute(
            statement, {name: value for name, value in parameters.items() if name in used}
        )
        names = [column[0] for column in result.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in result.fetchall()]
        return {row["position"]: row for row in rows}
