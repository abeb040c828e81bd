"""An interval of an engine that came in two ways is in the sums once, and both are compared."""

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.records import Origin
from exporter.sources.target_state import TargetIdentity
from exporter.store.samples import append_samples
from exporter.store.store import Store
from tests.log_path import ask
from tests.unit_sources.conftest import BEGAN, Counts, sums, take

# What one engine counted: 15 s apart, 100 prompt and 60 cached tokens a second apart from pauses.
COURSE = [(0, 1_000, 400), (15, 2_500, 1_300), (30, 4_000, 2_200), (45, 4_000, 2_200),
          (60, 7_000, 4_000)]  # fmt: skip
GREW = (6_000, 3_600)
NAMES: list[tuple[str, Origin, str | None]] = [
    ("scrape", "scrape", None),
    ("prometheus a", "prometheus", "http://a:9090"),
    ("prometheus b", "prometheus", "http://b:9090"),
    ("backfill", "backfill", "http://a:9090"),
    ("file", "file", None),
]


def who(target: str, origin: Origin, name: str | None) -> TargetIdentity:
    return TargetIdentity(target, "gpu-0", None, 15, origin, name)


PAIRS = [(a, b) for a in NAMES for b in NAMES if a[1:] != b[1:]]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda way: way[0])
@pytest.mark.parametrize("same_target", [True, False])
def test_the_same_moments_from_elsewhere_add_nothing(
    new_store: Callable[[], Store],
    one: tuple[str, Origin, str | None],
    other: tuple[str, Origin, str | None],
    same_target: bool,
) -> None:
    store = new_store()
    take(store, who("10.0.0.5:8000", *one[1:]), COURSE)
    take(store, who("10.0.0.5:8000" if same_target else "engine-0:8000", *other[1:]), COURSE)
    assert sums(store) == {"gpu-0": GREW}
    (pair,) = ask(store, "source_pairs")
    assert (pair["kind"], pair["replica"], pair["added"]) == ("two_readings", "gpu-0", False)
    assert (pair["first_prompt_tokens"], pair["second_prompt_tokens"]) == (6_000, 6_000)
    assert (pair["difference_tokens"], pair["difference_ratio"]) == (0, 0)
    assert (pair["first_cached_tokens"], pair["second_cached_tokens"]) == (3_600, 3_600)
    assert pair["shared"] == 4
    assert pair["first_source"].startswith(one[1])
    assert pair["second_source"].startswith(other[1])


def test_other_moments_of_the_same_time_add_nothing_either(new_store: Callable[[], Store]) -> None:
    """Polled at 0, 15, … and read from a Prometheus that scraped at 5, 20, …"""
    store = new_store()
    take(store, who("t", "scrape", None), COURSE)
    # From 5 to 50 the engine went from 1,500 to 5,000 prompt tokens.
    shifted = [(5, 1_500, 700), (20, 3_000, 1_600), (35, 4_000, 2_200), (50, 5_000, 2_800)]
    take(store, who("u", "prometheus", "http://a:9090"), shifted)
    assert sums(store) == {"gpu-0": GREW}
    (pair,) = ask(store, "source_pairs")
    # By our own samples: two thirds of 1,500, all of 1,500, 0, and one third of 3,000.
    assert (pair["first_prompt_tokens"], pair["second_prompt_tokens"]) == (3_500, 3_500)


def test_a_hole_of_one_is_told_by_the_other(new_store: Callable[[], Store]) -> None:
    store = new_store()
    take(store, who("t", "scrape", None), COURSE[:2])
    take(store, who("u", "prometheus", "http://a:9090"), COURSE)
    assert sums(store) == {"gpu-0": GREW}
    sources = {row["basis"]: row for row in ask(store, "figure_sources")}
    assert sources["scrape"]["prompt_tokens"] == 1_500
    assert sources["prometheus"]["prompt_tokens"] == 4_500
    assert sources["prometheus"]["source"] == "http://a:9090"


HOUR = 3600
SCRAPED = [(-15, 985, 394), (0, 1_000, 400), (HOUR, 1_600, 640)]


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        # Ten minutes of the hour, in which 100 of the 600 tokens came.
        ([(0, 1_000, 400), (600, 1_100, 440)], [(600, HOUR, 500, 200)]),
        # The last ten.
        ([(3000, 1_450, 580), (HOUR, 1_600, 640)], [(0, 3000, 450, 180)]),
        # Twenty minutes in the middle, 300 tokens: of the other 300 a quarter came before, by time.
        ([(600, 1_100, 440), (1800, 1_400, 560)], [(0, 600, 75, 30), (1800, HOUR, 225, 90)]),
        # Half of what the other tells (30 of 60) is of another time.
        ([(HOUR - 300, 1_570, 628), (HOUR + 300, 1_630, 652)], [(0, HOUR - 300, 570, 228)]),
        # One page alone tells nothing of any time.
        ([(1800, 1_200, 480)], [(0, HOUR, 600, 240)]),
    ],
)
def test_what_nobody_told_of_an_outage_is_kept(
    new_store: Callable[[], Store], told: Counts, kept: list[tuple[int, int, int, int]]
) -> None:
    store = new_store()
    take(store, who("t", "backfill", "http://a:9090"), told)
    take(store, who("u", "scrape", None), SCRAPED)
    found = store.cursor().execute(
        f"SELECT epoch(since) - {BEGAN}, epoch(ts) - {BEGAN}, prompt_tokens, cached_tokens, gap"
        " FROM engine_samples WHERE origin = 'scrape' AND ts > make_timestamp($1) ORDER BY ts",
        [int(BEGAN * 1e6)],
    ).fetchall()  # fmt: skip
    assert found == [(*one, True) for one in kept]


def test_all_of_an_outage_told_elsewhere_stays_beside(new_store: Callable[[], Store]) -> None:
    """Also where the other counted more: then there are two readings of one thing."""
    for more in (0, 50):
        store = new_store()
        told = [(0, 1_000, 400), (1800, 1_650 + more, 640), (HOUR - 60, 1_650 + more, 640)]
        if not more:
            told = [(0, 1_000, 400), (1800, 1_300, 520), (HOUR, 1_600, 640)]
        take(store, who("t", "backfill", "http://a:9090"), told)
        take(store, who("u", "scrape", None), SCRAPED)
        assert sums(store)["gpu-0"][0] == told[-1][1] - 1_000 + 15
        (pair,) = ask(store, "source_pairs")
        assert pair["second_prompt_tokens"] == 600


def test_a_remainder_is_counted_in_metrics_too(new_store: Callable[[], Store]) -> None:
    """What is returned is what was appended: two pages before the outage, one remainder."""
    store = new_store()
    take(store, who("t", "backfill", "http://a:9090"), [(0, 1_000, 400), (600, 1_100, 440)])
    assert take(store, who("u", "scrape", None), SCRAPED) == 3
    assert sums(store) == {"gpu-0": (615, 246)}


def test_an_engine_that_really_is_another_stays(new_store: Callable[[], Store]) -> None:
    """Another replica, or another program of the same pod, told by another source."""
    store = new_store()
    take(store, who("t", "scrape", None), COURSE)
    other = TargetIdentity("u", "gpu-1", None, 15, "prometheus", "http://a:9090")
    take(store, other, COURSE, started=BEGAN - 1800)
    assert sums(store) == {"gpu-0": GREW, "gpu-1": GREW}
    assert ask(store, "source_pairs") == []


def test_two_targets_of_our_own_may_be_one_replica(new_store: Callable[[], Store]) -> None:
    """As the settings say: their owner named both so."""
    store = new_store()
    for target in ("t", "u"):
        take(store, who(target, "scrape", None), COURSE)
    assert sums(store) == {"gpu-0": (12_000, 7_200)}


def test_spans_that_touch_are_both_told(new_store: Callable[[], Store]) -> None:
    store = new_store()
    take(store, who("t", "backfill", "http://a:9090"), COURSE[:3])
    take(store, who("t", "scrape", None), COURSE[2:])
    assert sums(store) == {"gpu-0": GREW}
    assert ask(store, "source_pairs") == []


@settings(max_examples=25, deadline=None)
@given(
    moments=st.lists(st.integers(1, 400), min_size=4, max_size=40, unique=True),
    order=st.permutations(range(2)),
    data=st.data(),
)
def test_however_two_sources_interleave_nothing_counts_twice(
    moments: list[int], order: list[int], data: st.DataObject
) -> None:
    """One token a second: what is stored is never more than the time any of them watched."""
    ways = [[m for m in sorted(moments) if data.draw(st.booleans())] for _ in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder))
        try:
            for number in order:
                name = f"http://{number}:9090"
                take(store, who(f"t{number}", "prometheus", name),
                     [(m, m, 0) for m in ways[number]])  # fmt: skip
            found = store.cursor().execute(
                "SELECT epoch(since), epoch(ts), prompt_tokens FROM engine_samples"
                " WHERE since IS NOT NULL ORDER BY ts"
            ).fetchall()  # fmt: skip
            dropped = store.cursor().execute("SELECT count(*) FROM samples_beside").fetchone()
        finally:
            store.close()
    for (_, ended, _), (began, _, _) in itertools.pairwise(found):
        assert began >= ended, "two stored intervals overlap"
    assert all(tokens == ended - began for began, ended, tokens in found)
    first = ways[order[0]]
    covered = first[-1] - first[0] if len(first) > 1 else 0
    assert sum(tokens for _, _, tokens in found) >= covered, "the first source lost something"
    assert dropped is not None


def test_what_was_kept_is_returned(new_store: Callable[[], Store]) -> None:
    """The counters of /metrics take no more than figures do."""
    store = new_store()
    assert take(store, who("t", "scrape", None), COURSE) == len(COURSE)
    assert take(store, who("u", "prometheus", "http://a:9090"), COURSE) < len(COURSE)
    with store.write() as cursor:
        assert append_samples(cursor, []) == []
