"""The parts of a change are whole tokens, sum to it exactly, and are what the definition says."""

from datetime import timedelta
from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from queries import registry
from tests.unit_queries.test_query_properties import START, store

_count = st.one_of(st.integers(0, 50), st.integers(0, 10**12))


@st.composite
def segments(draw: st.DrawFn) -> dict[str, tuple[int, int, int, int]]:
    """Tenant -> prompt and cached tokens before, prompt and cached tokens now."""
    found = {}
    for tenant in draw(st.sets(st.sampled_from("abcdefgh"), min_size=1)):
        before, now = draw(_count), draw(_count)
        found[tenant] = (before, draw(st.integers(0, before)), now, draw(st.integers(0, now)))
    return found


def exact(traffic: dict[str, tuple[int, int, int, int]]) -> dict[str, tuple[Fraction, Fraction]]:
    """(within, mix) of every tenant by the words of the definition."""
    p0, c0, p1, _ = (sum(column) for column in zip(*traffic.values(), strict=True))
    whole = Fraction(c0, p0)
    parts = {}
    for tenant, (before, cached_before, now, cached) in traffic.items():
        own = Fraction(cached_before, before) if before else None
        if own is None:
            parts[tenant] = (Fraction(0), cached - whole * now)
        else:
            within = cached - own * now if now else Fraction(0)
            parts[tenant] = (within, (own - whole) * (now - Fraction(before, p0) * p1))
    return parts


@settings(deadline=None, max_examples=30)
@given(traffic=segments())
def test_parts_sum_exactly(traffic: dict[str, tuple[int, int, int, int]]) -> None:
    rows = explained(traffic)
    known = {tenant: row for tenant, row in traffic.items() if row[0] or row[2]}
    assert set(rows) == set(known)
    p0, c0, p1, c1 = (sum(column) for column in zip(*traffic.values(), strict=True))
    if not p0 or not p1:
        assert all(row["change_tokens"] is None for row in rows.values())
        return
    change = c1 - Fraction(c0, p0) * p1
    total = sum(row["change_tokens"] for row in rows.values())
    # A trillion tokens leave a double a thousandth to round by.
    assert abs(total - change) <= Fraction(501, 1000)
    for tenant, (within, mix) in exact(known).items():
        row = rows[tenant]
        assert row["change_tokens"] == row["within_tokens"] + row["mix_tokens"]
        assert abs(row["within_tokens"] - within) < Fraction(1001, 1000)
        assert abs(row["mix_tokens"] - mix) < Fraction(1001, 1000)


def explained(traffic: dict[str, tuple[int, int, int, int]]) -> dict[Any, dict[str, Any]]:
    """Rows of the question by tenant, for windows of one request each."""
    hours = (START, START + timedelta(hours=1))
    requests = [
        {"ts": hour, "tenant": tenant, "prompt_tokens": prompt, "cached_tokens": cached}
        for tenant, (before, cached_before, now, cached_now) in traffic.items()
        for hour, prompt, cached in zip(
            hours, (before, now), (cached_before, cached_now), strict=True
        )
    ]
    params = {"by": "tenant", "since": hours[1], "until": hours[1] + timedelta(hours=1)}
    answer = registry.run(store("requests", requests).cursor(), "explain", params)
    return {row["tenant"]: row for row in registry.rows(answer)}
