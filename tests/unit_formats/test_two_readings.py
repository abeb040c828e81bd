"""Rows are read quickly where nothing needs judgement and carefully otherwise: same meaning.

Whatever the quick reading does not leave to the careful one it must read as that would; and
both must read our own rows as plain Python does.
"""

import itertools
import json
import math
import re
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from exporter.sources.formats import FORMATS, format_named
from exporter.sources.formats.aside import Aside
from exporter.sources.formats.careful import compile_careful
from exporter.sources.formats.expressions import DEFAULTS
from exporter.sources.formats.mapping import Field, LogFormat
from exporter.sources.formats.quick import compile_quick
from exporter.store.store import Store
from tests import strategies
from tests.log_path import NOON, Answer, by_id, load, utc

# Looking for a smaller example would take longer than reading the one that was found.
FEW = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)  # fmt: skip
_numbers = itertools.count()
GIVEN = {"model": "default model", "block_size": 16, "cached_tokens": 0}
# Only of these does the quick reading look for wrong types; of others it keeps no bad value.
RELIED_ON = {"prompt_tokens", "cached_tokens", "output_tokens", "ttft_seconds", "queue_seconds",
             "prefill_seconds", "e2e_seconds"}  # fmt: skip


@cache
def _reader() -> tuple[duckdb.DuckDBPyConnection, Aside]:
    connection, aside = duckdb.connect(), Aside()
    aside.listen(connection)
    return connection, aside


def reading(sql: str, lines: list[str], given_defaults: dict[str, Any]) -> dict[int, Answer]:
    """The rows of one reading by line number."""
    connection, aside = _reader()
    numbers = list(range(len(lines)))
    connection.register(
        "lines", pa.table({"position": numbers, "line_number": numbers, "line": lines})
    )
    values = {
        "source": "s", "arrived": utc("2026-03-02 12:05"), "began": utc("2026-03-02 12:05"),
        "key": "k", "earliest": None, "batch": 1,
        "hit_threshold_ratio": 0.8, "fingerprint": "f",
        **{f"default_{name}": given_defaults.get(name) for name in DEFAULTS},
    }  # fmt: skip
    named = set(re.findall(r"\$(\w+)", sql))
    result = connection.execute(sql, {name: values[name] for name in named})
    columns = [column[0] for column in result.description or ()]
    rows = [dict(zip(columns, row, strict=True)) for row in result.fetchall()]
    connection.unregister("lines")
    aside.take()
    return {row.pop("position"): row for row in rows}


def without_optional_flags(row: Answer) -> Answer:
    kept = [flag for flag in row.get("flags") or []
            if not flag.startswith("unusable:") or flag.split(":")[1] in RELIED_ON]  # fmt: skip
    return {**row, "flags": kept}


def comparable(row: Answer) -> Answer:
    """Only what is known: a column a reading does not have is stored as NULL."""
    row = {k: v for k, v in row.items() if k not in ("line_number", "reason", "excerpt", "batch")}
    return {k: v for k, v in without_optional_flags(row).items() if v is not None}


@pytest.mark.parametrize("log_format", FORMATS, ids=lambda log_format: log_format.name)
@pytest.mark.parametrize("defaults", [{}, GIVEN], ids=["bare", "with defaults"])
def test_quick_reading_is_the_careful_one(log_format: LogFormat, defaults: dict[str, Any]) -> None:
    chance = Random(f"{log_format.name} {sorted(defaults)}")
    lines = [strategies.line_of(log_format, chance) for _ in range(1500)]
    quick = reading(compile_quick(log_format, frozenset(defaults)), lines, defaults)
    careful = reading(compile_careful(log_format), lines, defaults)
    assert set(careful) == set(range(len(lines)))
    wrong = {}
    for number, row in quick.items():
        got, right = comparable(row), comparable(careful[number])
        if careful[number]["reason"] is not None or got != right:
            names = sorted(name for name in {*got, *right} if got.get(name) != right.get(name))
            wrong[lines[number]] = [(n, got.get(n), right.get(n)) for n in names]
    assert dict(list(wrong.items())[:3]) == {}, f"{len(wrong)} of {len(quick)} rows"
    # A start that follows from the end, or from a trace, is worked out with care.
    # So is what a log has no word for: an id of a row, and that its prompt is unknown.
    clean = {"ts", "request_id", "prompt_tokens"} <= {entry.name for entry in log_format.fields}
    easy = clean and not log_format.relative_time
    assert len(quick) > 20 or not easy, "many rows need no judgement"


def test_clean_rows_are_read_quickly() -> None:
    """Else the quick reading would be right and useless."""
    rows = {
        "ndjson": {"ts": NOON, "request_id": "r", "prompt_tokens": 100, "cached_tokens": 64,
                   "output_tokens": 20, "ttft_s": 0.5, "queue_s": 0.1, "prefill_s": 0.3,
                   "e2e_s": 2.5, "tenant": "t", "stream": True, "status": 200},
        "openai": {"id": "c", "created": 1772452800, "model": "m", "usage": {
            "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 64}}},
        "anthropic": {"id": "m", "created_at": NOON, "usage": {
            "input_tokens": 36, "cache_read_input_tokens": 64, "output_tokens": 20}},
        "capture": {"id": "c", "sent_unix": 1772452800, "ttft_s": 0.5, "total_s": 2.5, "usage": {
            "prompt_tokens": 100, "completion_tokens": 20,
            "prompt_tokens_details": {"cached_tokens": 64}}},
    }  # fmt: skip
    for name, clean in rows.items():
        (row,) = reading(compile_quick(format_named(name)), [json.dumps(clean)], {}).values()
        assert (row["prompt_tokens"], row["cached_tokens"]) == (100, 64), name


def put_all(row: dict[str, Any], entry: Field, path: str, value: object) -> None:
    for term in replace(entry, paths=(path,)).terms():
        strategies.put(row, term, value)


@pytest.mark.parametrize("log_format", FORMATS, ids=lambda log_format: log_format.name)
def test_a_count_of_the_wrong_type_hides_behind_no_other(log_format: LogFormat) -> None:
    """The parse takes it for none, and would take the count from the next place that has one."""
    told = ["abc", [], True, False, {}, -1, 12.5, "12", None, "", 1000, 0, 1]
    plain = {"ts": NOON, "request_id": "r", "prompt_tokens": 900, "cached_tokens": 64,
             "output_tokens": 20}  # fmt: skip
    fields = {entry.name: entry for entry in log_format.fields if entry.name in plain}
    lines = []
    for entry in (field for field in fields.values() if field.kind == "tokens"):
        for first, other in itertools.permutations(entry.paths, 2):
            for value in told:
                row: dict[str, Any] = {}
                for name, field in fields.items():
                    put_all(row, field, field.paths[0], plain[name])
                put_all(row, entry, other, 77)
                put_all(row, entry, first, value)
                lines.append(json.dumps(row))
    quick = reading(compile_quick(log_format), lines, {})
    careful = reading(compile_careful(log_format), lines, {})
    for number, row in quick.items():
        assert comparable(row) == comparable(careful[number]), lines[number]


# ------------------------------------------------------------- against plain Python


def count(value: object) -> int | None:
    """A whole number of tokens, from a number or a text that is one."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not math.isfinite(value) or value != int(value) or not 0 <= value < 1e9:
        return None
    return int(value)


def span(value: object) -> float | None:
    """A number of seconds."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0 <= value < 1e9 else None


def as_python_reads(row: dict[str, Any]) -> Answer:
    """Our own format, from its description: prompt is inclusive, unknown is not zero."""
    prompt, cached = count(row.get("prompt_tokens")), count(row.get("cached_tokens"))
    flags = {f"unusable:{name}" for name, use in (
        ("prompt_tokens", count), ("cached_tokens", count), ("output_tokens", count),
        ("ttft_seconds", span), ("e2e_seconds", span),
    ) if row.get(name) is not None and use(row[name]) is None}  # fmt: skip
    if prompt == 0:
        flags.add("zero_prompt")
        prompt = None
    if prompt is None or cached is None:
        cached = None
    elif cached > prompt + max(16, 0.02 * prompt):
        flags.add("cached_impossible")
        cached = None
    elif cached > prompt:
        flags.add("cached_capped")
        cached = prompt
    ttft, end = span(row.get("ttft_seconds")), span(row.get("e2e_seconds"))
    if ttft is not None:
        streamed = row.get("stream") is not False
        late = streamed and end is not None and ttft >= end
        flags |= {"ttft_not_streamed"} if not streamed else set()
        flags |= {"ttft_equals_end"} if late else set()
        flags |= {"ttft_zero"} if ttft == 0 else set()
        ttft = None if late or not streamed or ttft == 0 else ttft
    if cached is None or prompt is None:
        outcome = "unknown"
    else:
        outcome = "miss" if cached == 0 else "hit" if cached >= 0.8 * prompt else "partial"
    return {"prompt_tokens": prompt, "cached_tokens": cached, "ttft_seconds": ttft,
            "output_tokens": count(row.get("output_tokens")), "e2e_seconds": end,
            "outcome": outcome, "flags": flags}  # fmt: skip


ODD = st.sampled_from([
    None, True, False, -1, -3.5, 2.5, "many", "", [], [7], {}, {"a": 1}, float("nan"),
    float("inf"), 10**9, 2**63, 2**64, 10**30,
])  # fmt: skip
COUNT = st.one_of(
    st.integers(0, 1200), st.integers(0, 1200).map(str), st.integers(0, 1200).map(float),
    st.sampled_from([0, 1, 100, 116, 117, 999_999_999]), ODD,
)  # fmt: skip
SPAN = st.one_of(st.floats(0, 20).map(lambda n: round(n, 3)), st.integers(0, 9),
                 st.floats(0, 20).map(lambda n: str(round(n, 3))), ODD)  # fmt: skip
ROW = st.fixed_dictionaries({}, optional={
    "prompt_tokens": COUNT, "cached_tokens": COUNT, "output_tokens": COUNT,
    "ttft_seconds": SPAN, "e2e_seconds": SPAN, "stream": st.booleans(),
})  # fmt: skip


@FEW
@given(st.lists(ROW, min_size=40, max_size=80))
def test_mapping_reads_as_plain_python_does(
    shared_store: Store, rows: list[dict[str, Any]]
) -> None:
    source = f"python {next(_numbers)}"
    whole = [{**row, "ts": NOON, "request_id": str(n)} for n, row in enumerate(rows)]
    load(shared_store, whole, source)
    stored = by_id(shared_store, source)
    assert len(stored) == len(rows), "whatever is odd in a row, the row is kept"
    for number, row in enumerate(rows):
        expected = as_python_reads(row)
        kept = stored[str(number)]
        got = {name: kept[name] for name in expected}
        got["flags"] = set(kept["flags"] or [])
        # An excess of cached tokens over a prompt that is unknown may be told, or not.
        if expected["prompt_tokens"] is None:
            got["flags"] -= {"cached_capped", "cached_impossible"}
        assert got == expected, row
