"""What /metrics says of offload and of stale reuse: as the questions judge, and nothing unknown."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from exporter import verdicts
from exporter.metrics import Page
from exporter.store.store import Store as StoredStore
from exporter.verdicts import MOST_SERIES, Verdicts, VerdictWatch, add_verdicts, judge
from tests.running import eventually
from tests.unit_offload.conftest import Store
from tests.unit_offload.simulation import START, Replica, Row, Traffic, simulate

OLD, NEW = {"model_fingerprint": "v1"}, {"model_fingerprint": "v2"}


@pytest.fixture
def rows() -> Store:
    """A store in memory."""
    return Store()


def shown(told: Verdicts) -> dict[str, float]:
    page = Page()
    add_verdicts(page, told)
    return {
        f"{family.name}{{{labels}}}": value
        for family in page.families()
        for _, labels, value in family.lines
    }


def at(store: Store, until: datetime) -> Verdicts:
    return judge(store.connection.cursor(), until)


def reads(minute: int, cached: int, **more: object) -> Row:
    """200 tokens that begin with the same block."""
    return {
        "ts": START + timedelta(minutes=minute), "replica": "a", "model": "m",
        "prompt_tokens": 200, "cached_tokens": cached, "block_size": 16,
        "block_hashes": [7, 8, 9], "hash_scope": "global", "hash_key_id": "k", **more,
    }  # fmt: skip


@pytest.mark.parametrize(("load_seconds", "pays"), [(50e-6, 1), (500e-6, 0)])
def test_offload_pays_or_not_by_model_and_tier(rows: Store, load_seconds: float, pays: int) -> None:
    """Computing a token takes 250 µs: loading one in 50 is sooner, in 500 later."""
    traffic = simulate(Replica(load_seconds_per_token=load_seconds), Traffic(count=1500))
    rows.load(traffic)
    end = traffic[-1]["ts"] + timedelta(minutes=1)
    assert shown(at(rows, end)) == {'prefixcache_offload_pays{model="m",tier="host"}': pays}


def test_what_cannot_be_told_has_no_series(rows: Store) -> None:
    traffic = simulate(Replica(), Traffic(count=40))
    rows.load(traffic)
    assert shown(at(rows, traffic[-1]["ts"] + timedelta(minutes=1))) == {}


def test_old_rows_are_not_judged(rows: Store) -> None:
    traffic = simulate(Replica(), Traffic(count=1500))
    rows.load(traffic)
    assert at(rows, traffic[-1]["ts"] + timedelta(hours=25)) == Verdicts()


def test_stale_tokens_of_the_last_hour_by_reason(rows: Store) -> None:
    """v2 reads 160 tokens that v1 wrote; two hours later that is over."""
    rows.add("requests", [reads(0, 0, **OLD), reads(1, 160, **OLD), reads(2, 160, **NEW)])
    moment = START + timedelta(minutes=30)
    assert shown(at(rows, moment)) == {
        'prefixcache_stale_reused_tokens{model="m",reason="model_fingerprint"}': 160
    }
    assert at(rows, moment + timedelta(hours=2)) == Verdicts()


def test_a_restart_of_the_same_weights_is_no_stale_reuse(rows: Store) -> None:
    """What a persistent tier gives back is meant, and what came before the rows is unknown."""
    rows.add("requests", [reads(0, 160, **OLD)])
    assert at(rows, START + timedelta(minutes=30)) == Verdicts()


def test_series_are_bounded(rows: Store) -> None:
    for number in range(MOST_SERIES + 20):
        own = {"block_hashes": [1000 + number, 2], "model": f"m{number}"}
        rows.add("requests", [reads(0, 0, **own, **OLD), reads(1, 160, **own, **NEW)])
    assert len(at(rows, START + timedelta(minutes=30)).stale_tokens) == MOST_SERIES


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[StoredStore]:
    """An empty store on disk."""
    store = StoredStore.open(tmp_path)
    yield store
    store.close()


def test_the_watch_starts_tells_and_stops(stored: StoredStore) -> None:
    watch = VerdictWatch(stored, every_seconds=0.01)
    watch.start()
    assert watch.alive
    watch.stop()
    assert not watch.alive
    assert watch.current() == judge(stored.cursor(), datetime.now(UTC)) == Verdicts()


def test_when_it_last_judged_is_told_and_a_failure_is_no_judgement(
    stored: StoredStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()

    def broken(*_: object) -> Verdicts:
        failed.set()
        raise duckdb.OutOfMemoryException("no room")

    watch = VerdictWatch(stored, every_seconds=0.01)
    made_at = watch.judged_at
    monkeypatch.setattr(verdicts, "judge", broken)
    watch.start()
    assert failed.wait(60)
    watch.stop()
    assert watch.judged_at == made_at
    monkeypatch.undo()
    again = VerdictWatch(stored, every_seconds=0.01)
    made_at = again.judged_at
    again.start()
    eventually("judgement", lambda: again.judged_at != made_at)
    again.stop()
    assert again.judged_at > made_at
