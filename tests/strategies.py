"""Hypothesis generators of the tests, in one place.

`worlds` are sets of rows that do not contradict each other; `deliveries` are ways in which
such a set may arrive: split, in any order, twice, and interrupted.
"""

import json
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

from hypothesis import strategies as st

from exporter.sources.formats.mapping import Field, Kind, LogFormat, parts_of

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
        "ts": BASE_SECONDS + draw(st.integers(0, _SPREAD_SECONDS * 1000)) / 1000,
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


# How often a field is there, so that many rows need no judgement and many do.
_PRESENCE = {
    "ts": 0.98, "request_id": 0.98, "prompt_tokens": 0.98, "prompt_logprobs": 0.05,
    **dict.fromkeys(("cached_device", "cached_host", "cached_disk", "cached_remote"), 0.05),
    **dict.fromkeys(("prompt_note", "content_hashes", "piece_lengths"), 0.1),
}  # fmt: skip
# Fields that usually fit each other.
_USUAL = {
    "prompt_tokens": (1000, 3000), "cached_tokens": (0, 900), "ttft_seconds": (1, 40),
    "e2e_seconds": (41, 99),
}  # fmt: skip
_ODD: list[Any] = [
    None, True, False, -1, -0.5, 1.5, 2.0, "7", "7.0", "x", "", [], [1], {}, {"a": 1}, 2**31,
    2**53, 2**63, 2**64, 1e16, 1e300, float("nan"), float("inf"), "NaN",
    "2026-03-02T12:00:00Z", 17, 200, "ok", "é" * 300, "{braced}", "a\x00b",
    "1e3", "+7", " 7 ", "7 ", "0x1F", "1_000", "1,000", "١٢", "7.5", ".5", "5.", "1e-3",
    "-0", "007",
]  # fmt: skip


def _fine(entry: Field, chance: Random) -> object:
    """A value the field is meant to hold."""
    if entry.name in _USUAL:
        return chance.choice([_USUAL[entry.name][0], chance.randint(*_USUAL[entry.name])])
    if entry.name == "piece_lengths":
        return [chance.randint(1, 300) for _ in range(3)]
    values: dict[Kind, list[object]] = {
        "text": ["a", "bb", "ccc"],
        "bool": [True, False],
        "time": [BASE_SECONDS, BASE_SECONDS * 1000, "2026-03-02T12:00:00Z"],
        "status": [200, "ok", "completed", 500, 499],
        "tokens": [0, 1, 2, 16, chance.randrange(3000), chance.randrange(3000)],
        "seconds": [0, 1, 0.5, round(chance.uniform(0, 100), 3)],
        "milliseconds": [0, 1, 250.5, round(chance.uniform(0, 9999), 1)],
        "hashes": [[], [chance.randrange(2**64) for _ in range(3)]],
    }
    return chance.choice(values[entry.kind])


@cache
def _terms(entry: Field, path: str) -> list[str]:
    return list(replace(entry, paths=(path,)).terms())


@cache
def _parts(path: str) -> list[str]:
    return parts_of(path)


def put(row: dict[str, Any], path: str, value: object) -> None:
    *parents, leaf = _parts(path)
    for parent in parents:
        child = row.setdefault(parent, {})
        if not isinstance(child, dict):  # an odd value stands there already
            return
        row = child
    row[leaf] = value


def line_of(log_format: LogFormat, chance: Random) -> str:
    """A line of a format, most as meant, some with a field or two that is odd, a few cut.

    Not a Hypothesis strategy: hundreds of lines go through one statement, and a seed and the
    line itself say all there is to know about a failure.
    """
    row: dict[str, Any] = {}
    counts: list[int] = []
    odd = chance.sample(log_format.fields, chance.choice([0, 0, 1, 1, 2]))
    for entry in log_format.fields:
        if chance.random() >= _PRESENCE.get(entry.name, 0.75):
            continue
        value = chance.choice(_ODD) if entry in odd else _fine(entry, chance)
        if entry.name == "total_tokens" and entry not in odd and chance.random() < 0.7:
            value = sum(counts)
        if entry.name in ("prompt_tokens", "output_tokens"):
            counts.append(value if isinstance(value, int) else 0)
        for case in entry.cases:
            if chance.random() < 0.05:
                put(row, case.path, chance.choice([*case.words, "none of them"]))
        if entry.paths:
            for path in _terms(entry, chance.choice(entry.paths)):
                put(row, path, value)
    line = json.dumps(row)
    return line[: chance.randrange(len(line))] if chance.random() < 0.03 else line
