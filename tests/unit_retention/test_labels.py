"""The daily choice of label values, worked out by hand."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from exporter.store.labels import choose_labels
from exporter.store.retention import run_maintenance
from exporter.store.store import Store, StoreSettings
from tests.unit_retention.aged import at, one, put

SETTINGS = StoreSettings(top_tenants=2, top_models=2)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "s", SETTINGS)
    yield opened
    opened.close()


def _serve(store: Store, when: str, **tokens: int) -> None:
    """One live request of each tenant with that many prompt tokens."""
    rows: list[dict[str, object]] = [
        {"request_id": f"{when}-{tenant}", "ts": when, "tenant": tenant, "prompt_tokens": count}
        for tenant, count in tokens.items()
    ]
    put(store, rows, at(when))
    store.fold()


def _shown(store: Store) -> dict[str, int]:
    """Prompt tokens by tenant, as on /metrics."""
    series = store.counters.snapshot().requests
    return {tenant: row.prompt_tokens for (_, _, _, tenant), row in series.items()}


def _chosen(store: Store, label: str = "tenant") -> list[str]:
    rows = store.cursor().execute(
        "SELECT value FROM label_values WHERE label = $label ORDER BY ALL", {"label": label}
    ).fetchall()  # fmt: skip
    return [value for (value,) in rows]


def test_t49_promoted_starts_at_0_and_demoted_stands_still(store: Store) -> None:
    _serve(store, "03-02 09:00", ann=10, ben=20)
    _serve(store, "03-02 10:00", cleo=500, dan=5)
    # Two places, taken by those who came first; cleo and dan are 'other'.
    assert _shown(store) == {"ann": 10, "ben": 20, "other": 505}
    choose_labels(store, at("03-02 12:00"))
    assert _chosen(store) == ["ben", "cleo"]
    assert _shown(store) == {"ann": 10, "ben": 20, "other": 505}
    _serve(store, "03-02 12:30", ann=1, ben=2, cleo=3, dan=4)
    # ann is frozen at 10 and counts in 'other' (505 + 1 + 4); cleo starts at 0.
    assert _shown(store) == {"ann": 10, "ben": 22, "cleo": 3, "other": 510}
    # 30 + 505 + 10 tokens were served, and 545 are shown: totals stay right.
    assert sum(_shown(store).values()) == one(store, "SELECT sum(prompt_tokens) FROM requests")


def test_roll_ups_follow_the_choice(store: Store) -> None:
    _serve(store, "03-02 09:00", ann=10, ben=20)
    _serve(store, "03-02 10:00", cleo=500)
    choose_labels(store, at("03-02 12:00"))
    _serve(store, "03-02 12:30", ann=1, cleo=3)
    sums = store.cursor().execute(
        "SELECT tenant, sum(prompt_tokens) FROM hour_rollup GROUP BY ALL ORDER BY ALL"
    ).fetchall()  # fmt: skip
    assert sums == [("ann", 10), ("ben", 20), ("cleo", 3), ("other", 501)]


def test_only_the_last_day_counts(store: Store) -> None:
    _serve(store, "03-01 11:59", ann=9000)
    _serve(store, "03-01 12:00", ben=30)
    _serve(store, "03-02 11:00", cleo=20, dan=40)
    choose_labels(store, at("03-02 12:00"))
    assert _chosen(store) == ["ben", "dan"]


def test_at_most_once_a_day(store: Store) -> None:
    _serve(store, "03-02 09:00", ann=10, ben=20)
    choose_labels(store, at("03-02 12:00"))
    _serve(store, "03-02 13:00", cleo=500)
    choose_labels(store, at("03-03 11:59"))
    assert _chosen(store) == ["ann", "ben"]
    choose_labels(store, at("03-03 12:00"))
    # cleo by tokens; nobody else was served, and ann comes before ben.
    assert _chosen(store) == ["ann", "cleo"]


def test_a_choice_of_a_wrong_clock_does_not_bind(store: Store) -> None:
    choose_labels(store, at("06-01 00:00"))
    _serve(store, "03-02 09:00", ann=10, ben=20, cleo=30)
    choose_labels(store, at("03-02 12:00"))
    assert _chosen(store) == ["ben", "cleo"]


def test_nobody_is_demoted_where_there_is_room(store: Store) -> None:
    _serve(store, "03-02 09:00", ann=10)
    since = one(store, "SELECT since FROM label_values WHERE label = 'tenant'")
    _serve(store, "03-03 11:00", ben=20)
    choose_labels(store, at("03-04 10:00"))
    assert _chosen(store) == ["ann", "ben"]
    assert one(store, "SELECT since FROM label_values WHERE value = 'ann'") == since


def test_a_newcomer_without_tokens_takes_no_place(store: Store) -> None:
    _serve(store, "03-02 09:00", yan=10, zoe=20)
    put(store, [{"request_id": "a", "ts": "03-04 09:00", "tenant": "ann"}], at("03-04 09:00"))
    choose_labels(store, at("03-04 10:00"))
    assert _chosen(store) == ["yan", "zoe"]


def test_choice_lasts_over_a_restart(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s", SETTINGS)
    _serve(store, "03-02 09:00", ann=10, ben=20)
    _serve(store, "03-02 10:00", cleo=500)
    run_maintenance(store, at("03-02 12:00"))
    store.close()
    store = Store.open(tmp_path / "s", SETTINGS)
    _serve(store, "03-02 12:30", ann=1, cleo=3)
    assert _chosen(store) == ["ben", "cleo"]
    assert _shown(store)["cleo"] == 3
    store.close()


def test_each_label_by_itself_and_without_decode_replicas(store: Store) -> None:
    rows: list[dict[str, object]] = [
        {"model": "m1", "prompt_tokens": 5}, {"model": "m2", "prompt_tokens": 6},
        {"model": "m3", "prompt_tokens": 7, "tenant": "ann"}, {"model": "m3"},
        {"model": "m4", "prompt_tokens": 900, "replica_role": "decode"},
    ]  # fmt: skip
    put(store, [row | {"request_id": str(n), "ts": "03-02 09:00"} for n, row in enumerate(rows)],
        at("03-02 09:00"))  # fmt: skip
    choose_labels(store, at("03-02 09:00") + timedelta(minutes=1))
    assert (_chosen(store, "model"), _chosen(store)) == (["m2", "m3"], ["ann"])
