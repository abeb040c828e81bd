"""Sums against plain Python on generated rows; parts add up to the whole."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cache
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queries import registry
from tests import empty_store
from tests.unit_queries.conftest import FILLED

START = datetime(2026, 11, 30, tzinfo=UTC)
DIMENSIONS = ("model", "replica", "route", "template", "template_version", "tenant", "source")
name = st.sampled_from([None, "a", "b", "c"])
seconds = st.integers(0, 7200)


@st.composite
def request(draw: st.DrawFn) -> dict[str, Any]:
    prompt = draw(st.none() | st.integers(0, 2000))
    cached = draw(st.none() | st.integers(0, prompt or 0))
    return {
        "ts": START + timedelta(seconds=draw(seconds)),
        "source": draw(st.sampled_from(["s", "t"])),
        **{dimension: draw(name) for dimension in DIMENSIONS[:-1]},
        "replica_role": draw(st.sampled_from([None, "unified", "decode"])),
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "ineligible_reason": draw(st.sampled_from([None, None, "caching_off"])),
        "output_tokens": draw(st.none() | st.integers(0, 100)),
    }


@st.composite
def sample(draw: st.DrawFn) -> dict[str, Any]:
    begin, length = draw(seconds), draw(st.integers(1, 3600))
    prompt = draw(st.none() | st.integers(0, 10**6))
    cached = draw(st.none() | st.integers(0, prompt if prompt is not None else 10**6))
    looked_up = draw(st.none() | st.integers(0, 10**6))
    return {
        "replica": draw(st.sampled_from(["a", "b"])),
        "model": draw(st.sampled_from([None, "m"])),
        "role": draw(st.sampled_from(["unified", "prefill", "decode"])),
        "since": START + timedelta(seconds=begin),
        "ts": START + timedelta(seconds=begin + length),
        "caching_enabled": draw(st.sampled_from([None, True, False])),
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "lookup_tokens": looked_up,
        "lookup_hit_tokens": None if looked_up is None else draw(st.integers(0, looked_up)),
    }


@cache
def _tables() -> duckdb.DuckDBPyConnection:
    return empty_store.in_memory()


def store(table: str, rows: list[dict[str, Any]]) -> duckdb.DuckDBPyConnection:
    """The one store of these tests, with these rows in place of those before."""
    connection = _tables()
    connection.execute("DELETE FROM requests")
    connection.execute("DELETE FROM engine_samples")
    for row in rows:
        full = {**FILLED[table], **row}
        full.setdefault("target" if table == "engine_samples" else "arrived", row["ts"])
        values = [v.isoformat() if isinstance(v, datetime) else v for v in full.values()]
        connection.execute(
            f"INSERT INTO {table} ({', '.join(full)}) VALUES ({', '.join('?' * len(full))})",
            values,
        )
    return connection


def ask(
    connection: duckdb.DuckDBPyConnection, question: str, **params: object
) -> list[dict[str, Any]]:
    return registry.rows(registry.run(connection.cursor(), question, params))


def quotient(part: int, whole: int) -> object:
    return pytest.approx(part / whole) if whole else None


def measured(rows: list[dict[str, Any]]) -> dict[str, object]:
    """The measures of MEASURES by their definitions, one row at a time."""
    reported = [r for r in rows if None not in (r["prompt_tokens"], r["cached_tokens"])
                and r["ineligible_reason"] is None]  # fmt: skip
    out = [r for r in rows if r["ineligible_reason"] is not None]
    prompt = sum(r["prompt_tokens"] or 0 for r in rows)
    reported_prompt = sum(r["prompt_tokens"] for r in reported)
    ineligible_prompt = sum(r["prompt_tokens"] or 0 for r in out)
    cached = sum(r["cached_tokens"] for r in reported)
    reuse = sum(r["cached_tokens"] > 0 for r in reported)
    return {
        "requests": len(rows),
        "reported_requests": len(reported),
        "ineligible_requests": len(out),
        "reuse_requests": reuse,
        "prompt_tokens": prompt,
        "reported_prompt_tokens": reported_prompt,
        "ineligible_prompt_tokens": ineligible_prompt,
        "cached_tokens": cached,
        "computed_tokens": reported_prompt - cached,
        "output_tokens": sum(r["output_tokens"] or 0 for r in rows),
        "token_hit_ratio": quotient(cached, reported_prompt),
        "coverage_ratio": quotient(reported_prompt, prompt - ineligible_prompt),
        "request_coverage_ratio": quotient(len(reported), len(rows) - len(out)),
        "request_hit_ratio": quotient(reuse, len(reported)),
    }


def grouped(
    rows: list[dict[str, Any]], key: Callable[[dict[str, Any]], object]
) -> dict[object, dict[str, object]]:
    groups: dict[object, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["replica_role"] != "decode":
            groups[key(row)].append(row)
    return {value: measured(members) for value, members in groups.items()}


def only(row: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: row[name] for name in names}


@settings(max_examples=15, deadline=None)
@given(st.lists(request(), max_size=12), st.sampled_from(DIMENSIONS), seconds, seconds, name)
def test_hit_ratio_is_what_its_definitions_say(
    rows: list[dict[str, Any]], by: str, since: int, until: int, tenant: str | None
) -> None:
    connection = store("requests", rows)
    window = {
        "since": START + timedelta(seconds=since), "until": START + timedelta(seconds=until)
    }  # fmt: skip
    inside = [
        row for row in rows
        if window["since"] <= row["ts"] < window["until"]
        and (tenant is None or row["tenant"] == tenant)
    ]  # fmt: skip
    expected = grouped(inside, lambda row: row[by] or "")
    answer = ask(connection, "hit_ratio", by=by, tenant=tenant, **window)
    assert len(answer) == len(expected)
    for row in answer:
        assert only(row, expected[row[by]]) == expected[row[by]]
    (whole,) = ask(connection, "hit_ratio", tenant=tenant, **window)
    served = [row for row in inside if row["replica_role"] != "decode"]
    assert only(whole, measured(served)) == measured(served)
    for total in ("requests", "prompt_tokens", "cached_tokens", "computed_tokens"):
        assert sum(row[total] for row in answer) == whole[total]


@settings(max_examples=15, deadline=None)
@given(
    st.lists(request(), max_size=12),
    st.none() | st.sampled_from(DIMENSIONS),
    st.sampled_from([60, 300, 3600]),
)
def test_hit_ratio_over_time_is_hit_ratio_step_by_step(
    rows: list[dict[str, Any]], by: str | None, step: int
) -> None:
    def key(row: dict[str, Any]) -> object:
        begin = int((row["ts"] - START).total_seconds()) // step * step
        moment = (START + timedelta(seconds=begin)).isoformat().replace("+00:00", "Z")
        return (moment, (row[by] or "") if by else None)

    expected = grouped(rows, key)
    answer = ask(store("requests", rows), "hit_ratio_over_time", by=by, step_seconds=step)
    assert [row["ts"] for row in answer] == sorted(row["ts"] for row in answer)
    assert len(answer) == len(expected)
    for row in answer:
        wanted = expected[row["ts"], row[by] if by else None]
        assert only(row, wanted) == wanted


def overlap(row: dict[str, Any], since: datetime, until: datetime) -> Fraction:
    inside = min(row["ts"], until) - max(row["since"], since)
    whole = row["ts"] - row["since"]
    return max(
        Fraction(0), Fraction(int(inside.total_seconds()), int(whole.total_seconds()))
    )  # fmt: skip


def pair(row: dict[str, Any]) -> tuple[int, int] | None:
    """Cached and prompt tokens of one family of counters, None where neither is complete."""
    if row["prompt_tokens"] is not None and row["cached_tokens"] is not None:
        return row["cached_tokens"], row["prompt_tokens"]
    if row["lookup_tokens"] is not None:
        return row["lookup_hit_tokens"], row["lookup_tokens"]
    return None


def engine_reference(
    rows: list[dict[str, Any]], since: datetime, until: datetime
) -> tuple[Fraction, Fraction, Fraction]:
    """(cached, reported prompt tokens, ineligible prompt tokens), not rounded."""
    parts = [(row, overlap(row, since, until)) for row in rows if row["role"] != "decode"]
    parts = [(row, share) for row, share in parts if share > 0]
    cached = reported = ineligible = Fraction(0)
    for row, share in parts:
        peers = [
            (r, s) for r, s in parts if (r["replica"], r["model"]) == (row["replica"], row["model"])
        ]
        looked_up = [r["lookup_tokens"] * s for r, s in peers if r["lookup_tokens"] is not None]
        hits = [
            (r["cached_tokens"] if r["cached_tokens"] is not None else r["lookup_hit_tokens"] or 0)
            * s
            for r, s in peers
        ]
        # Whole tokens decide whether anything was looked up, as in the answer.
        skipped = bool(looked_up) and round(sum(looked_up)) == 0 and round(sum(hits)) == 0
        if row["caching_enabled"] is False or skipped:
            ineligible += (row["prompt_tokens"] or 0) * share
        elif (counts := pair(row)) is not None:
            cached += counts[0] * share
            reported += counts[1] * share
    return cached, reported, ineligible


@settings(max_examples=15, deadline=None)
@given(st.lists(sample(), max_size=8))
def test_engine_hit_ratio_over_all_time_is_exact(rows: list[dict[str, Any]]) -> None:
    connection = store("engine_samples", rows)
    cached, reported, ineligible = engine_reference(rows, START, START + timedelta(days=1))
    (whole,) = ask(connection, "engine_hit_ratio")
    assert whole["reported_prompt_tokens"] in ({None, 0} if reported == 0 else {reported})
    assert whole["ineligible_prompt_tokens"] == ineligible
    if reported:
        assert whole["token_hit_ratio"] == pytest.approx(float(cached / reported))
        assert whole["computed_tokens"] == reported - cached
    for by in ("model", "replica", "role", "engine"):
        parts = ask(connection, "engine_hit_ratio", by=by)
        for total in ("prompt_tokens", "cached_tokens", "reported_prompt_tokens", "lookup_tokens"):
            assert sum(row[total] or 0 for row in parts) == (whole[total] or 0)


@settings(max_examples=15, deadline=None)
@given(st.lists(sample(), min_size=1, max_size=6), seconds, st.integers(1, 7200))
def test_engine_hit_ratio_of_a_window_takes_shares_of_intervals(
    rows: list[dict[str, Any]], begin: int, length: int
) -> None:
    # One family and no exclusions, so that shares are all there is to get wrong.
    rows = [
        {**row, "caching_enabled": None, "lookup_tokens": None, "lookup_hit_tokens": None}
        for row in rows
    ]
    since, until = START + timedelta(seconds=begin), START + timedelta(seconds=begin + length)
    cached, reported, _ = engine_reference(rows, since, until)
    connection = store("engine_samples", rows)
    (whole,) = ask(connection, "engine_hit_ratio", since=since, until=until)
    # Rounded once per replica, model and role: at most half a token for each of the 8.
    assert abs((whole["reported_prompt_tokens"] or 0) - reported) <= 4
    assert whole["token_hit_ratio"] is None or 0 <= whole["token_hit_ratio"] <= 1
    if reported > 10**4:
        assert whole["token_hit_ratio"] == pytest.approx(float(cached / reported), abs=1e-3)


@settings(max_examples=15, deadline=None)
@given(st.lists(sample(), max_size=6), st.sampled_from([300, 900, 3600]))
def test_steps_add_up_to_the_window(rows: list[dict[str, Any]], step: int) -> None:
    connection = store("engine_samples", rows)
    (whole,) = ask(connection, "engine_hit_ratio")
    steps = ask(connection, "engine_hit_ratio_over_time", step_seconds=step)
    # Each step rounds at most 12 cells (replica, model, role, caching) by half a token.
    for total in ("prompt_tokens", "cached_tokens", "lookup_tokens"):
        parts = sum(row[total] or 0 for row in steps)
        assert abs(parts - (whole[total] or 0)) <= 6 * len(steps)
