"""Rows no cache could serve: told by the engine's page, whichever came first."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from exporter.records import EngineSample
from exporter.store.samples import append_samples
from exporter.store.store import Store, StoreSettings
from tests.log_path import NOON, hit_ratio, load

START = datetime.fromisoformat(NOON)


@pytest.fixture
def narrow_store(tmp_path: Path) -> Iterator[Store]:
    """Room for one tenant; all others are folded."""
    store = Store.open(tmp_path / "store", StoreSettings(memory_limit="256MB", top_tenants=1))
    yield store
    store.close()


def sample(replica: str, *, caching: bool | None, minutes: int = 5) -> EngineSample:
    return EngineSample(
        target=replica, replica=replica, engine="vllm", ts=START + timedelta(minutes=minutes),
        since=START - timedelta(minutes=5), caching_enabled=caching,
    )  # fmt: skip


def take(store: Store, *samples: EngineSample) -> None:
    with store.write() as cursor:
        append_samples(cursor, samples)


def rows(*tenants: str, **more: object) -> list[dict[str, object]]:
    return [{"request_id": f"{tenant}-{more}", "ts": NOON, "prompt_tokens": 100,
             "cached_tokens": 0, "tenant": tenant, **more} for tenant in tenants]  # fmt: skip


def ineligible(store: Store, **filters: object) -> int:
    return int(hit_ratio(store, **filters)["ineligible_requests"])


def rolled(store: Store) -> dict[str, tuple[int, int, int]]:
    store.fold()
    return {tenant: tuple(sums) for tenant, *sums in store.cursor().execute(
        """SELECT tenant, sum(requests)::BIGINT, sum(ineligible_requests)::BIGINT,
        sum(reported_prompt_tokens)::BIGINT FROM hour_rollup GROUP BY tenant ORDER BY tenant"""
    ).fetchall()}  # fmt: skip


@pytest.mark.parametrize("folded_before", [True, False])
def test_marking_late_moves_the_sums_of_folded_tenants_where_they_are(
    narrow_store: Store, folded_before: bool
) -> None:
    load(narrow_store, rows("a", "b", "c"), origin="http")
    if folded_before:
        assert rolled(narrow_store) == {"a": (1, 0, 100), "other": (2, 0, 200)}
    take(narrow_store, sample("r0", caching=False))
    assert ineligible(narrow_store) == 3
    assert rolled(narrow_store) == {"a": (1, 1, 0), "other": (2, 2, 0)}


def test_a_row_is_ineligible_by_its_own_replica_only(store: Store) -> None:
    take(store, sample("off", caching=False), sample("on", caching=True))
    load(store, [*rows("a", replica="off"), *rows("b", replica="on"), *rows("c")])
    assert [ineligible(store, tenant=tenant) for tenant in ("a", "b", "c")] == [1, 0, 0]


def test_outside_what_pages_cover_nothing_is_known(store: Store) -> None:
    take(store, sample("off", caching=False))
    early = (START - timedelta(hours=2)).astimezone(UTC).isoformat()
    load(store, [*rows("a", ts=early), *rows("b")])
    assert [ineligible(store, tenant=tenant) for tenant in ("a", "b")] == [0, 1]


def test_a_reason_of_the_row_itself_stays(store: Store) -> None:
    load(store, rows("a", ineligible_reason="lookup_skipped"))
    take(store, sample("off", caching=False))
    reason = store.cursor().execute("SELECT ineligible_reason FROM requests").fetchall()
    assert reason == [("lookup_skipped",)]
    assert ineligible(store) == 1


def test_marking_twice_changes_nothing_more(store: Store) -> None:
    load(store, rows("a", "b"))
    take(store, sample("off", caching=False))
    once = rolled(store), hit_ratio(store)
    take(store, sample("off", caching=False, minutes=6))
    assert (rolled(store), hit_ratio(store)) == once
