"""Reuse across scopes minute by minute in a store: found to the token, told on /metrics, kept."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from exporter.causes.sealing import Sealer
from exporter.causes.settings import CauseSettings
from exporter.collector import Collector, Inputs
from exporter.isolation.crossed import FIRST_AT_ZERO_SECONDS, CrossedTotals
from exporter.isolation.unnamed import MOST_SCOPES, UnnamedScopes
from exporter.store.retention import compact
from exporter.store.store import Store
from tests.log_path import SMALL, ask, load

RECORDING = Path(__file__).parent / "llama_two_tenants" / "tap.ndjson"
NAME = "prefixcache_cross_scope_reused_tokens_total"
Row = dict[str, Any]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "store", SMALL)
    yield opened
    opened.close()


def minutes_ago(minutes: float) -> datetime:
    return datetime.now(UTC) - timedelta(minutes=minutes)


def recorded(start: datetime, **changed: object) -> list[Row]:
    """The recording at another time, a second between requests."""
    rows: list[Row] = [json.loads(line) for line in RECORDING.read_text().splitlines()]
    for number, row in enumerate(rows):
        row |= {"ts": (start + timedelta(seconds=number)).isoformat(), **changed}
    return rows


def unrelated(ts: datetime, **changed: object) -> Row:
    """A request whose prompt nobody else has, of a scope of its own."""
    row = {**recorded(ts)[3], "tenant": "elm", "scope": "e" * 16, "request_id": str(ts)}
    for name in ("block_hashes", "content_hashes"):
        row[name] = [number ^ 1 for number in row[name]]
    return row | changed


def sealed(store: Store, rows: list[Row], horizon_days: float = 7) -> Sealer:
    """A sealer that has sealed all of some rows."""
    summary = load(store, rows)
    assert summary.accepted == len(rows)
    sealer = Sealer(store, CauseSettings(horizon_days=horizon_days))
    sealer.seal(datetime.now(UTC), wait_for_older=False)
    return sealer


def shown(sealer: Sealer, store: Store) -> list[str]:
    inputs = Inputs(
        counters=store.counters.snapshot, engines=dict, targets=tuple, store_file=store.path,
        version="0", crossed=sealer.crossed.snapshot,
    )  # fmt: skip
    lines = Collector(inputs).render(openmetrics=False).decode().splitlines()
    return [line.removeprefix(NAME) for line in lines if line.startswith(NAME)]


def at(tokens: int) -> list[str]:
    return [f'{{model="tiny",replica="llama-0"}} {float(tokens)}']


def old_enough() -> list[Row]:
    """The replica has been heard of for eight days, with no gap as long as the horizon."""
    return [unrelated(minutes_ago(days * 24 * 60)) for days in (8, 4)]


def test_reuse_across_scopes_is_found_to_the_token_and_told(store: Store) -> None:
    sealer = sealed(store, [*old_enough(), *recorded(minutes_ago(5))])
    whole, *found = ask(store, "cross_scope_reuse")
    # A prompt of 500 tokens that acme had sent first: birch and who has no salt were served it from
    # its cache, cedar too, of whose earlier prompt less than a block may be the same.
    assert (whole["scope"], whole["checked_requests"], whole["reused_requests"]) == (None, 9, 3)
    assert (whole["reused_at_least_tokens"], whole["reused_at_most_tokens"]) == (1483, 1498)
    assert whole["cannot_tell_tokens"] == 0
    told = {row["tenant"]: row["reused_at_least_tokens"] for row in found}
    assert told == {"no salt": 500, "birch": 499, "cedar": 484}
    # A series begins at 0, so that what it begins with is an increase.
    assert shown(sealer, store) == at(0)
    # What was counted before this process was shown by that one.
    assert shown(Sealer(store), store) == at(1483)


def test_a_new_series_stands_at_zero_for_whoever_looks() -> None:
    """Five minutes, however often it is read; what others begin with meanwhile is their own."""
    now = [1000.0]
    totals, key, other = CrossedTotals(lambda: now[0]), ("m", "a"), ("m", "b")
    totals.add({key: 7})
    assert [totals.snapshot(), totals.snapshot()] == [{key: 0}] * 2
    now[0] += FIRST_AT_ZERO_SECONDS - 1
    totals.add({key: 5, other: 1})
    assert totals.snapshot() == {key: 0, other: 0}
    now[0] += 1
    assert totals.snapshot() == {key: 12, other: 0}
    now[0] += FIRST_AT_ZERO_SECONDS
    assert totals.snapshot() == {key: 12, other: 1}


def test_nothing_is_told_while_the_log_is_young(store: Store) -> None:
    sealer = sealed(store, recorded(minutes_ago(5)))
    whole, *found = ask(store, "cross_scope_reuse")
    assert whole["reused_at_most_tokens"] == 0
    # By replica: of a log without a horizon's past it may be every request of every user.
    assert (whole["cannot_tell_requests"], found) == (3, [])
    assert whole["cannot_tell_tokens"] >= 1483
    # What reused nothing but its own can be told all the same.
    assert shown(sealer, store) == at(0)


def test_the_counter_goes_on_after_a_restart_and_old_rows_are_not_in_it(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", SMALL)
    load(store, old_enough())
    late = Sealer(store)
    late.seal(datetime.now(UTC), wait_for_older=False)
    load(store, recorded(minutes_ago(60)))  # not live: an hour old as it comes
    late.seal(datetime.now(UTC), wait_for_older=False)
    assert shown(late, store) == []
    assert ask(store, "cross_scope_reuse")[0]["reused_at_least_tokens"] == 1483
    store.close()
    again = Store.open(tmp_path / "store", SMALL)
    # What was known before is known again: the same tenants reuse now what is their own.
    sealer = sealed(again, recorded(minutes_ago(5), request_id=None, response_id=None))
    compact(again)
    assert ask(again, "cross_scope_reuse")[0]["reused_at_least_tokens"] == 1483
    assert shown(sealer, again) == shown(Sealer(again), again) == at(0)
    again.close()


def test_a_scope_with_requests_without_a_chain_is_not_accused(store: Store) -> None:
    """birch had sent something whose blocks nobody knows: it may have been that very prompt."""
    rows = recorded(minutes_ago(5))
    nameless = {
        **{name: value for name, value in rows[1].items() if not name.endswith("_hashes")},
        "ts": minutes_ago(30).isoformat(), "request_id": "image", "response_id": "image",
    }  # fmt: skip
    sealed(store, [*old_enough(), nameless, *rows])
    told = {row["tenant"]: row for row in ask(store, "cross_scope_reuse")}
    assert "birch" not in told, "its own request may have brought it there"
    assert told["cedar"]["reused_at_least_tokens"] == 484


@pytest.mark.parametrize(("tier", "found"), [("cached_device", 1483), ("cached_disk", 0)])
def test_a_reset_is_enough_unless_a_lower_tier_outlasts_it(
    store: Store, tier: str, found: int
) -> None:
    """The replica has been heard of for twenty minutes, and was restarted ten minutes ago."""
    before = unrelated(minutes_ago(20), cached_tokens=16, **{tier: 16})
    store.cursor().execute(
        "INSERT INTO block_resets (ts, source, replica, model, tier, reason, blocks)"
        " VALUES (?, 'kv', 'llama-0', 'tiny', 'device', 'restart', 1)",
        [minutes_ago(10).replace(tzinfo=None)],
    )
    sealed(store, [before, *recorded(minutes_ago(5))])
    whole = ask(store, "cross_scope_reuse")[0]
    assert whole["reused_at_least_tokens"] == found
    assert whole["cannot_tell_tokens"] == (16 if found else 16 + 1483)


def test_an_engine_that_honours_salts_is_never_accused(store: Store) -> None:
    """The same requests, as they would have been served: each scope its own."""
    cached = (0, 0, 496, 0, 0, 192, 0)
    rows = [row | {"cached_tokens": tokens, "block_size": 16}
            for row, tokens in zip(recorded(minutes_ago(5)), cached, strict=True)]  # fmt: skip
    sealer = sealed(store, [*old_enough(), *rows])
    (whole,) = ask(store, "cross_scope_reuse")
    assert (whole["checked_requests"], whole["reused_at_most_tokens"]) == (9, 0)
    assert shown(sealer, store) == at(0)


def test_scopes_that_cannot_be_compared_are_remembered_within_bounds() -> None:
    scopes = UnnamedScopes()
    scopes.add(["a", "b"], 100.0)
    assert scopes.of(["a", "c"]) == ["a"]
    scopes.forget(101.0)
    assert scopes.of(["a", "c"]) == []
    scopes.add((str(number) for number in range(MOST_SCOPES + 1)), 200.0)
    assert len(scopes.seen) == MOST_SCOPES
    assert scopes.of(["a", "c"]) == ["a", "c"], "there was no room to remember all"
    again = UnnamedScopes.from_kept(json.loads(json.dumps(scopes.kept())))
    again.forget(201.0)
    assert again.of(["a", "c"]) == []


def test_scopes_whose_hashes_mean_two_things_cannot_be_compared() -> None:
    scopes = UnnamedScopes()
    scopes.settle("key 1", ["a", "b"], 1.0)
    assert scopes.of(["a"]) == []
    # Who was there before a second key came is not known: for a horizon nothing is told.
    scopes.settle("key 2", ["b"], 2.0)
    assert scopes.of(["a", "z"]) == ["a", "z"]
    scopes.settle("key 1", ["a", "b"], 3.0)
    scopes.forget(2.5)
    assert scopes.of(["a", "b"]) == ["b"]
