"""Hypothesis generators of the tests, in one place.

`worlds` are sets of rows that do not contradict each other; `deliveries` are ways in which
such a set may arrive: split, in any order, twice, and interrupted.
"""

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from exporter.sources.formats.mapping import Field, LogFormat

BASE_SECONDS = 1772452800  # 2026-03-02T12:00:00Z
_SPREAD_SECONDS = 3 * 3600

_names = st.sampled_from([None, "a", "b"])
_counts = st.integers(0, 5000)
_seconds = st.floats(0.001, 60, allow_nan=False).map(lambda number: round(number, 4))


@st.composite
def ndjson_rows(draw: st.DrawFn) -> dict[str, Any]:
    """A good row of our own format, with a time and without an id."""
    prompt = draw(st.integers(1, 5000))
    row: dict[str, Any] = {
        "ts": BASE_SECONDS + draw(st.integers(0, _SPREAD_SECONDS)) + draw(st.integers(0, 999)) / 1e3,
        "prompt_tokens": prompt,
        "cached_tokens": draw(st.none() | st.integers(0, prompt)),
        "output_tokens": draw(st.none() | _counts),
        "ttft_s": draw(st.none() | _seconds),
        "stream": draw(st.sampled_from([None, True, False])),
        "status": draw(st.sampled_from([None, "ok", "error", "cancelled"])),
        "replica_role": draw(st.sampled_from([None, None, None, "decode"])),
        "ineligible_reason": draw(st.sampled_from([None, None, None, "lookup_skipped"])),
        **{name: draw(_names) for name in ("route", "template", "tenant", "replica")},
    }
    tier = draw(st.sampled_from([None, "device", "host"]))
    if tier and row["cached_tokens"] is not None:
        row[f"cached_{tier}"] = row["cached_tokens"]
    return {name: value for name, value in row.items() if value is not None}


@st.composite
def anthropic_lines(draw: st.DrawFn, response: str) -> list[dict[str, Any]]:
    """One to three lines of one response: input repeats, output grows, minutes pass."""
    usage = {"input_tokens": draw(st.integers(1, 500)),
             "cache_read_input_tokens": draw(_counts),
             "cache_creation_input_tokens": draw(_counts)}  # fmt: skip
    start = BASE_SECONDS + draw(st.integers(0, _SPREAD_SECONDS))
    outputs = sorted(draw(st.lists(_counts, min_size=1, max_size=3, unique=True)))
    return [
        {"timestamp": start + 30 * number,
         "message": {"id": response, "usage": {**usage, "output_tokens": output}}}
        for number, output in enumerate(outputs)
    ]  # fmt: skip


@dataclass(frozen=True)
class World:
    """Rows of one format, none in conflict with another."""

    format: str
    rows: list[dict[str, Any]]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Up to a dozen rows with ids, of our own format or of one that merges lines."""
    size = draw(st.integers(1, 8))
    if draw(st.booleans()):
        rows = [draw(ndjson_rows()) | {"request_id": f"r{n}"} for n in range(size)]
        return World("ndjson", rows)
    responses = [draw(anthropic_lines(f"m{n}")) for n in range((size + 1) // 2)]
    return World("anthropic", [line for lines in responses for line in lines])


@dataclass(frozen=True)
class Delivery:
    """Which rows come in one batch, in which order, and whether the first try is interrupted."""

    indexes: list[int]
    interrupted: bool


@st.composite
def deliveries(draw: st.DrawFn, size: int) -> list[Delivery]:
    """Batches that together bring every one of `size` rows at least once."""
    index = st.integers(0, size - 1)
    early = draw(st.lists(st.lists(index, min_size=1, max_size=6), max_size=3))
    rest = draw(st.permutations(range(size)))
    cut = draw(st.integers(0, size))
    batches = [*early, list(rest[:cut]), list(rest[cut:])]
    return [Delivery(batch, draw(st.booleans())) for batch in batches if batch]


_ODD: list[Any] = [
    None, True, False, -1, -0.5, 1.5, 2.0, "7", "7.0", "x", "", [], [1], {}, {"a": 1}, 2**31,
    2**53, 2**63, 2**64, 1e16, 1e300, float("nan"), float("inf"), "NaN",
    "2026-03-02T12:00:00Z", 17, 200, "ok", "é" * 300, "{braced}", "a\x00b",
]  # fmt: skip


def _fine(entry: Field) -> st.SearchStrategy[Any]:
    """Values the field is meant to hold."""
    return {
        "text": st.sampled_from(["a", "bb", "ccc"]),
        "bool": st.booleans(),
        "time": st.sampled_from([BASE_SECONDS, BASE_SECONDS * 1000, "2026-03-02T12:00:00Z"]),
        "status": st.sampled_from([200, "ok", "completed", 500]),
        "tokens": st.integers(0, 3000),
        "seconds": st.floats(0, 100).map(lambda number: round(number, 3)),
        "milliseconds": st.floats(0, 9999).map(lambda number: round(number, 1)),
        "hashes": st.lists(st.integers(0, 2**64 - 1), max_size=3),
    }[entry.kind]


def _put(row: dict[str, Any], path: str, value: object) -> None:
    *parents, leaf = path.split(".")
    for parent in parents:
        row = row.setdefault(parent, {})
    row[leaf] = value


@st.composite
def lines_of(draw: st.DrawFn, log_format: LogFormat) -> str:
    """A line of a format: mostly as meant, a field here and there odd, absent or elsewhere."""
    row: dict[str, Any] = {}
    for entry in log_format.fields:
        if draw(st.integers(0, 3)) == 0:
            continue
        value = draw(st.sampled_from(_ODD)) if draw(st.integers(0, 11)) == 0 else draw(_fine(entry))
        for path in draw(st.sampled_from(entry.paths)).split(" + "):
            _put(row, path, value)
    line = json.dumps(row)
    return line[: draw(st.integers(0, len(line)))] if draw(st.integers(0, 30)) == 0 else line
