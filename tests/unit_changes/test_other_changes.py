"""Coverage gaps, breakpoints never read, evictions reused and sessions, by hand.

Tokens are of one day: the data begins and ends within the day before the window ends.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import duckdb
import pytest

from tests.unit_changes.changes_store import UNTIL, ChangesStore, bounds

NOON = UNTIL - timedelta(hours=12)


@pytest.fixture
def store() -> ChangesStore:
    """Data of a day, the last one of the window: what happens in it happens a day."""
    made = ChangesStore()
    made.reach()
    made.hour(UNTIL - timedelta(days=1), 0, 0)
    return made


def every(
    seconds: float, count: int, begin: datetime = NOON, **columns: object
) -> list[dict[str, object]]:
    """Requests at equal gaps."""
    return [{"ts": begin + timedelta(seconds=seconds * n), **columns} for n in range(count)]


def known(rows: Sequence[dict[str, object]], *columns: str) -> list[tuple[object, ...]]:
    """Some columns of each row."""
    return [tuple(row[column] for column in columns) for row in rows]


def test_tokens_nobody_told_of_may_be_won_or_not(store: ChangesStore) -> None:
    """600 of 1000 requests tell; 400,000 tokens are between nothing and all."""
    store.requests(every(1, 600, prompt_tokens=1000, cached_tokens=500, source="gw"))
    store.requests(every(1, 400, prompt_tokens=1000, cached_tokens=None, source="gw"))
    [row] = store.changes()
    assert bounds(row) == ("coverage gap", "gw", 0, 400_000)
    assert (row["dimension"], row["basis"]) == ("source", "estimated")
    assert "400 requests a day" in row["evidence"]
    assert "400,000 of 1,000,000 prompt tokens a day (coverage 60.0 %)" in row["evidence"]


def test_t08_tokens_the_cache_could_not_serve_are_no_gap(store: ChangesStore) -> None:
    store.requests(every(1, 100, prompt_tokens=1000, cached_tokens=500))
    store.requests(
        every(1, 400, prompt_tokens=1000, cached_tokens=None, ineligible_reason="lookup_skipped")
    )
    assert store.changes() == []


def test_a_source_that_nearly_always_tells_has_no_gap(store: ChangesStore) -> None:
    store.requests(every(1, 95, prompt_tokens=1000, cached_tokens=500))
    store.requests(every(1, 5, prompt_tokens=1000, cached_tokens=None))
    assert store.changes() == []
    assert len(store.changes(least_coverage_ratio=0.96)) == 1


# Ten requests 14 s apart write 2000 tokens each; nine of them while the write before is alive.
WRITES = {"prompt_tokens": 2500, "cached_tokens": 0, "cache_write_tokens": 2000, "template": "t"}


def test_written_again_and_again_and_never_read(store: ChangesStore) -> None:
    store.requests(every(14, 10, **WRITES))
    [row] = store.changes()
    assert bounds(row) == ("breakpoints never read", "t", 0, 18_000)
    assert (row["dimension"], row["basis"]) == ("template", "measured")
    assert "Of 20,000 tokens written a day at least 20,000 were never read" in row["evidence"]


def test_reads_are_taken_off_what_was_never_read(store: ChangesStore) -> None:
    """15,000 tokens read: at most that many of 20,000 were. At 20,000 all may have been."""
    store.requests(every(14, 10, **WRITES))
    read = {"prompt_tokens": 2500, "cached_tokens": 1500, "cache_write_tokens": 0, "template": "t"}
    store.requests(every(14, 10, begin=NOON + timedelta(seconds=7), **read))
    [row] = store.changes()
    assert "at least 5,000 were never read (15,000 were read)" in row["evidence"]
    store.requests(
        every(14, 4, begin=NOON + timedelta(seconds=300), **{**read, "cached_tokens": 1250})
    )
    assert store.changes() == []


def test_reads_just_after_the_window_count(store: ChangesStore) -> None:
    begin = UNTIL - timedelta(minutes=10)
    store.requests(every(14, 10, begin=begin, **WRITES))
    store.requests([{**WRITES, "ts": UNTIL + timedelta(minutes=5), "cached_tokens": 20_000,
                     "prompt_tokens": 20_000, "cache_write_tokens": 0}])  # fmt: skip
    assert store.changes() == []


def test_what_was_written_after_the_life_of_a_write_cannot_be_read(store: ChangesStore) -> None:
    """400 s apart: each write has expired before the next, unless it lives an hour."""
    store.requests(every(400, 10, **WRITES))
    assert store.changes() == []
    store.requests(every(400, 10, **WRITES, cache_write_1h=2000, model="hour"))
    assert [bounds(row)[3] for row in store.changes()] == [18_000]


def test_evicted_and_stored_again(store: ChangesStore) -> None:
    """Buckets end at 1.08, 109.4 and 510 s: 15,000 blocks of 16 tokens came back within 300 s,
    16,000 in all; 20,000 were evicted."""
    store.blocks(NOON, evicted_blocks=20_000, reused={0: 10_000, 60: 5000, 80: 1000})
    [row] = store.changes()
    assert bounds(row) == ("evicted and reused", "m", 240_000, 256_000)
    assert row["basis"] == "measured"
    assert row["evidence"] == (
        "Of 320,000 tokens evicted a day on 1 replica 256,000 were stored again, 240,000 of them "
        "within 300 s: computed twice."
    )
    assert [bounds(row)[2:] for row in store.changes(soon_seconds=60)] == [(160_000, 256_000)]
    assert store.changes(template="t") == []


def test_evictions_nobody_wanted_back_are_no_change(store: ChangesStore) -> None:
    store.blocks(NOON, evicted_blocks=20_000)
    assert store.changes() == []


def test_an_uncertain_state_of_events_is_said(store: ChangesStore) -> None:
    store.blocks(NOON, reused={0: 10}, uncertain="missed events")
    assert store.changes()[0]["evidence"].endswith(" Not certain: missed events.")


def conversations(
    store: ChangesStore,
    name: str,
    count: int,
    cached_tokens: int,
    replicas: str = "aa",
    **columns: object,
) -> None:
    """Conversations of two turns a minute apart: 1000 tokens, then 1500, of those some cached."""
    turns = ((1000, 0, 0), (1500, cached_tokens, 60))
    store.requests([
        {
            "ts": NOON + timedelta(seconds=number + later), "session": f"{name}-{number}",
            "prompt_tokens": prompt, "cached_tokens": cached, "replica": replica, **columns,
        }
        for number in range(count)
        for (prompt, cached, later), replica in zip(turns, replicas, strict=True)
    ])  # fmt: skip


def test_turns_on_another_replica_reuse_less(store: ChangesStore) -> None:
    """100 turns that stay have 800 of the 1000 tokens they resend, 50 that move have 100. At most
    900 more each; by the lower quarter of those that stay 700 more."""
    conversations(store, "stay", 100, 800, template="t")
    conversations(store, "move", 50, 100, "ab", template="t")
    [row] = store.changes()
    assert bounds(row) == ("replica spread", "t", 35_000, 45_000)
    assert row["evidence"] == (
        "50 turns a day were served by another replica than the turn before: of 50,000 tokens a "
        "day they resend 10.0 % were cached, of those that stay 80.0 %."
    )


def test_of_many_conversations_a_share_speaks_for_all(store: ChangesStore) -> None:
    """3,000 requests where 1,000 may be looked at: one conversation of three, counted threefold."""
    conversations(store, "stay", 1_000, 800, template="t")
    conversations(store, "move", 500, 100, "ab", template="t")
    store.hour(NOON, 3_750_000, 850_000, requests=3_000, template="t")
    [row] = store.changes(most_turns=1_000)
    picked = duckdb.sql(
        "SELECT count(*) FROM range(500) r(i) WHERE hash('move-' || i) % 3 = 0"
    ).fetchall()[0][0]
    assert 100 < picked < 250
    assert bounds(row) == ("replica spread", "t", 3 * picked * 700, 3 * picked * 900)
    assert row["evidence"].startswith(f"{3 * picked} turns a day were served by another replica")
    assert row["evidence"].endswith(" Counted in one of 3 conversations.")
    [row] = store.changes(most_turns=3_000)
    assert bounds(row) == ("replica spread", "t", 350_000, 450_000)


def test_too_few_turns_that_stay_show_nothing(store: ChangesStore) -> None:
    conversations(store, "stay", 99, 800, template="t")
    conversations(store, "move", 50, 100, "ab", template="t")
    assert store.changes() == []


def test_where_moving_costs_nothing_it_is_no_change(store: ChangesStore) -> None:
    """As with a store all replicas share."""
    conversations(store, "stay", 100, 800, template="t")
    conversations(store, "move", 50, 780, "ab", template="t")
    assert store.changes() == []


def spread_hour(
    store: ChangesStore, days_ago: int, replicas: str, cached_tokens: int, **columns: object
) -> None:
    """40 requests of 1000 tokens in an hour, in turns on some replicas."""
    begin = NOON - timedelta(days=days_ago)
    store.requests([
        {"ts": begin + timedelta(minutes=number), "template": "t", "prompt_tokens": 1000,
         "cached_tokens": cached_tokens, "replica": replicas[number % len(replicas)], **columns}
        for number in range(40)
    ])  # fmt: skip


def test_hours_on_fewer_replicas_show_what_spreading_costs(store: ChangesStore) -> None:
    """One hour on four replicas has 400 of 1000 tokens, three on one or two had 700, 700 and 1000:
    800. Of 40,000 tokens 16,000 more at most. Something else may have differed: 0 at least."""
    spread_hour(store, 0, "abcd", 400)
    spread_hour(store, 8, "a", 700)
    spread_hour(store, 9, "ab", 700)
    assert store.changes() == []  # two hours are too few
    spread_hour(store, 10, "ab", 1000)
    [row] = store.changes()
    assert bounds(row) == ("replica spread", "t", 0, 16_000)
    assert row["evidence"] == (
        "In hours in which at least 4 replicas shared them 40.0 % of 40,000 tokens a day were "
        "cached, in hours of as many requests on at most 2 it was 80.0 %."
    )


def test_hours_of_another_size_or_length_or_on_more_replicas_show_nothing(
    store: ChangesStore,
) -> None:
    spread_hour(store, 0, "abcd", 400)
    for days_ago in (8, 9, 10):
        spread_hour(store, days_ago, "abc", 800)  # 3 of 4 are not half
        spread_hour(store, days_ago + 3, "a", 800, prompt_tokens=2000)
        for _ in range(3):
            spread_hour(store, days_ago + 6, "a", 800)  # 120 requests in the hour
        spread_hour(store, days_ago + 27, "a", 800)  # more than four weeks before the window
    assert store.changes() == []
    for days_ago in (8, 9, 10):
        spread_hour(store, days_ago + 12, "a", 800)
    assert [bounds(row)[3] for row in store.changes()] == [16_000]


def test_known_conversations_tell_more_than_hours(store: ChangesStore) -> None:
    spread_hour(store, 0, "abcd", 400, session="s")
    for days_ago in (8, 9, 10):
        spread_hour(store, days_ago, "a", 800)
    assert store.changes() == []


def test_turns_that_stay_and_reuse_nothing(store: ChangesStore) -> None:
    """1024 tokens and more are resent and nothing is cached, with another template 80 % are."""
    long = {"template": "t", "model": "m"}
    rows = [
        {"ts": NOON + timedelta(seconds=number + later), "session": f"s{number}", **long,
         "prompt_tokens": prompt, "cached_tokens": 0}
        for number in range(100) for prompt, later in ((2000, 0), (2600, 60))
    ]  # fmt: skip
    store.requests(rows)
    [row] = store.changes()
    assert bounds(row) == ("history not reused", "t", 0, 200_000)
    conversations(store, "other", 100, 800, template="u")
    [row] = store.changes()
    assert bounds(row) == ("history not reused", "t", 160_000, 200_000)
    assert (
        "three of four turns of the model's other templates reuse more than 80.0 %"
        in (row["evidence"])
    )


def test_short_prompts_and_shorter_turns_resend_no_history(store: ChangesStore) -> None:
    """1000 tokens are below what providers cache; a prompt that shrank is no longer the same."""
    conversations(store, "short", 100, 0, template="t")
    assert store.changes() == []
    shrunk = [
        {"ts": NOON + timedelta(seconds=number + later), "session": f"s{number}",
         "prompt_tokens": prompt, "cached_tokens": 0, "template": "t"}
        for number in range(100) for prompt, later in ((4000, 0), (3000, 60))
    ]  # fmt: skip
    store.requests(shrunk)
    assert store.changes() == []


def test_surely_won_tokens_stand_first_and_shared_ones_are_said(store: ChangesStore) -> None:
    """Events speak of all tokens of the model, also of those of the template's conversations and
    of those nobody told of. What nobody told of is in no conversation's figures."""
    conversations(store, "stay", 100, 800, template="t", source="engine")
    conversations(store, "move", 50, 100, "ab", template="t", source="engine")
    store.blocks(NOON, reused={0: 2000})
    store.requests(every(1, 20, prompt_tokens=1000, cached_tokens=None, source="gw"))
    store.hour(NOON, 395_000, 0)
    assert known(store.changes(), "rank", "kind", "overlaps") == [
        (1, "replica spread", None),
        (2, "evicted and reused", "may be the same tokens as 1"),
        (3, "coverage gap", "may be the same tokens as 2"),
    ]


def test_other_models_share_no_tokens(store: ChangesStore) -> None:
    conversations(store, "stay", 100, 800, template="t", model="n")
    conversations(store, "move", 50, 100, "ab", template="t", model="n")
    store.blocks(NOON, reused={0: 2000})
    assert known(store.changes(), "model", "overlaps") == [("n", None), ("m", None)]


def test_a_gap_of_more_than_half_stands_first(store: ChangesStore) -> None:
    """What follows speaks for the smaller half."""
    store.blocks(NOON, reused={0: 10_000})
    store.hour(NOON, 100_000, 0, reported_prompt_tokens=30_000, reported_requests=30)
    store.requests(every(1, 70, prompt_tokens=1000, cached_tokens=None))
    store.requests(every(1, 30, prompt_tokens=1000, cached_tokens=0))
    assert known(store.changes(), "kind") == [("coverage gap",), ("evicted and reused",)]


def test_at_most_so_many_rows(store: ChangesStore) -> None:
    for model in ("m", "n", "o"):
        store.blocks(NOON, reused={0: 1000}, model=model, replica=model)
    assert len(store.changes(limit=2)) == 2
    assert len(store.changes(model="n")) == 1
