"""Which spans are free, and whose samples cover a target."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.records import EngineSample
from exporter.store.backfills import Filled, Span, free_spans, own_spans, put
from exporter.store.samples import append_samples
from exporter.store.store import Store

spans = st.builds(
    lambda start, length: Span(start, start + length), st.integers(0, 60), st.integers(0, 20)
)


@given(st.lists(spans, max_size=6), spans)
def test_free_is_what_nobody_covers(covered: list[Span], asked: Span) -> None:
    """Counted in half units, ends left out: those touch."""
    free = free_spans(asked, covered)
    for half in range(2 * 90):
        moment = half / 2 + 0.25
        inside = asked.since < moment < asked.until
        taken = any(span.since < moment < span.until for span in covered)
        assert any(span.since < moment < span.until for span in free) == (inside and not taken)
    assert all(before.until <= after.since for before, after in pairwise(free))


def sample(target: str, replica: str, since: float | None, ts: float) -> EngineSample:
    def utc(unix: float) -> datetime:
        return datetime.fromtimestamp(unix, UTC)

    return EngineSample(
        target=target, replica=replica, engine="vllm", ts=utc(ts),
        since=None if since is None else utc(since),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("target", "replica", "expected"),
    [
        ("a:1", "r", [Span(10, 30), Span(50, 60)]),
        # Another address of the same replica, with ranks.
        ("b:1", "pod-0", [Span(100, 120)]),
        # A path is no rank.
        ("c:1", "c:1", []),
        ("d:1", "x", []),
    ],
)
def test_whose_samples_cover(
    new_store: Callable[[str], Store], target: str, replica: str, expected: Sequence[Span]
) -> None:
    store = new_store("spans")
    with store.write() as cursor:
        append_samples(cursor, [
            sample("a:1", "r", None, 10), sample("a:1", "r", 10, 20), sample("a:1", "r", 20, 30),
            sample("a:1", "r", None, 50), sample("a:1", "r", 50, 60),
            sample("z:1", "pod-0/1", 100, 120), sample("y:1", "c:1/metrics", 1, 2),
            # Filled, so nobody's own.
            sample("d:1", "x", None, 10), sample("d:1", "x", 10, 20),
        ])  # fmt: skip
        put(cursor, Filled("d:1", "{}", "x", "http://p", 0, 10, 20, ""))
    assert own_spans(store.cursor(), target, replica) == expected
