"""Reuse of KV that was written under other weights, another adapter or before a restart."""

from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.sources.pages import ingest_pages
from exporter.store.store import Store as StoredStore
from tests import empty_store
from tests.log_path import CAPTURES, SMALL, ask, needs_captures
from tests.unit_offload.conftest import Store
from tests.unit_offload.simulation import START, Row

_MINUTES = count()


def request(cached: int | None, minute: float | None = None, **more: object) -> Row:
    """200 tokens that begin with block 7, hashed by the engine without its weights."""
    at = START + timedelta(minutes=next(_MINUTES) if minute is None else minute)
    return {
        "ts": at, "replica": "a", "model": "m", "prompt_tokens": 200, "cached_tokens": cached,
        "block_size": 16, "block_hashes": [7, 8, 9], "hash_scope": "global", "hash_key_id": "k",
        **more,
    }  # fmt: skip


def findings(store: Store, **params: object) -> list[tuple[Any, ...]]:
    """Severity, reason, requests and tokens of each finding."""
    return [
        (row["severity"], row["reason"], row["requests"], row["tokens"])
        for row in store.ask("stale_reuse", **params)
    ]


V1, V2 = {"model_fingerprint": "v1"}, {"model_fingerprint": "v2"}


def test_deploy_that_does_not_clear_is_critical_until_someone_computes_again(store: Store) -> None:
    """v1 writes and reads; v2 reads twice what only v1 wrote, computes once, reads its own."""
    store.add("requests", [
        request(0, **V1), request(160, **V1),
        request(160, **V2), request(144, **V2), request(0, **V2), request(160, **V2),
    ])  # fmt: skip
    (row,) = store.ask("stale_reuse")
    assert (row["severity"], row["reason"], row["evidence"]) == (
        "critical", "model_fingerprint", "requests")  # fmt: skip
    assert (row["requests"], row["tokens"]) == (2, 160 + 144)
    assert (row["written_under"], row["read_under"]) == ("v1", "v2")
    assert row["sentence"].startswith("304 tokens written under other weights were reused: ")


def test_deploy_that_clears_has_no_finding(store: Store) -> None:
    store.add("requests", [
        request(0, **V1), request(160, **V1), request(0, **V2), request(160, **V2),
    ])  # fmt: skip
    assert findings(store) == []


def test_reuse_that_nobody_can_have_written_since_the_weights_changed(store: Store) -> None:
    """Hashes that hold the scope differ under v2, so that only the absence of a writer shows."""
    store.add("requests", [
        request(0, block_hashes=[1, 2], **V1), request(160, block_hashes=[1, 2], **V1),
        request(160, block_hashes=[5, 6], **V2),
    ])  # fmt: skip
    (row,) = store.ask("stale_reuse")
    assert (row["severity"], row["reason"]) == ("warning", "unaccounted")
    assert (row["written_under"], row["read_under"]) == ("v1", "v2")


def test_t86_reuse_across_adapters_is_critical(store: Store) -> None:
    """The same prompt to base, adapter-1, adapter-1: only the last may reuse anything."""
    ones = {"adapter": "adapter-1", "model": "m"}
    store.add("requests", [request(0), request(0, **ones), request(192, **ones)])
    assert findings(store) == []
    store.add("requests", [request(192, adapter="adapter-2")])
    (row,) = store.ask("stale_reuse")
    assert (row["severity"], row["reason"], row["tokens"]) == ("critical", "adapter", 192)
    assert row["read_under"] == "m + adapter-2"


def test_two_names_of_a_model_are_a_warning_only(store: Store) -> None:
    """Without fingerprints an alias cannot be told from another model."""
    store.add("requests", [request(0), request(160, model="alias")])
    assert findings(store) == [("warning", "model_name", 1, 160)]


def test_same_fingerprint_under_two_names_is_the_same_model(store: Store) -> None:
    store.add("requests", [request(0, **V1), request(160, model="alias", **V1)])
    assert findings(store) == []


def test_device_memory_is_no_other_replicas_and_a_shared_tier_is(store: Store) -> None:
    elsewhere = {"replica": "b", "cached_host": 0, "cached_disk": 0}
    store.add("requests", [request(0)])
    store.add("requests", [request(160, cached_device=0, cached_remote=160, **elsewhere)])
    assert findings(store) == []
    store.add("requests", [request(160, cached_device=160, cached_remote=0, **elsewhere)])
    assert findings(store) == [("unknown", "before_log", 1, 160)]


@pytest.mark.parametrize(
    "writer",
    [
        pytest.param({"cached_tokens": None}, id="count_unknown"),
        pytest.param({"ineligible_reason": "lookup_skipped"}, id="look_up_skipped"),
        pytest.param({"cached_tokens": 10}, id="less_than_a_block_reused"),
    ],
)
def test_whoever_may_have_written_accounts_for_it(store: Store, writer: Row) -> None:
    store.add("requests", [request(0, **V1), {**request(0, **V2), **writer}, request(160, **V2)])
    assert findings(store) == []


def test_less_than_a_block_is_no_reuse_of_the_chain(store: Store) -> None:
    store.add("requests", [request(0, **V1), request(15, **V2)])
    assert findings(store) == []


def test_hashes_of_other_keys_and_engines_are_not_compared(store: Store) -> None:
    store.add("requests", [request(0, **V1), request(160, hash_key_id="other")])
    assert findings(store) == [("unknown", "before_log", 1, 160)]
    store.execute("UPDATE requests SET hash_key_id = NULL, hash_scope = 'engine'")
    assert findings(store) == []
    store.execute("UPDATE requests SET replica = 'b' WHERE cached_tokens > 0")
    assert findings(store) == [("unknown", "before_log", 1, 160)]


def sample(minute: int, **more: object) -> Row:
    """A minute of an engine with a pool of 2,304 tokens on its device."""
    at = START + timedelta(minutes=minute)
    return {
        "since": at - timedelta(minutes=1), "ts": at, "replica": "a", "model": "m",
        "version": "0.32.0", "kv_capacity_tokens": 2304, "prompt_tokens": 1000,
        "cached_tokens": 0, "cached_device": 0, "output_tokens": 50, **more,
    }  # fmt: skip


def test_t26_what_was_on_a_device_before_a_restart_is_gone(store: Store) -> None:
    """Written at minute 1, restart inside minute 3: a device hit in minute 5 is from elsewhere."""
    store.add("engine_samples", [sample(3, reset=True)])
    on_device = {"cached_device": 160, "cached_host": 0}
    store.add("requests", [request(0, 1), request(160, 2, **on_device)])
    assert findings(store) == []
    store.add("requests", [request(160, 5, **on_device)])
    (row,) = store.ask("stale_reuse")
    assert (row["severity"], row["reason"], row["tier"]) == ("info", "engine_start", "device")
    store.add("requests", [request(0, 4)])
    assert findings(store) == []


def test_restart_seen_by_events_counts_too(store: Store) -> None:
    store.add("block_resets", [{
        "ts": START + timedelta(minutes=3), "source": "s", "replica": "a", "tier": "device",
        "reason": "restart", "blocks": 5,
    }])  # fmt: skip
    store.add("requests", [request(0, 1), request(160, 5)])
    assert findings(store) == [("info", "engine_start", 1, 160)]


PERSISTENT = {"reset": True, "cached_disk": 600, "cached_tokens": 600}


@pytest.mark.parametrize(
    ("before", "after", "right"),
    [
        pytest.param({}, {}, ("info", "engine_start", None, 600), id="same_version"),
        pytest.param({}, {"version": "0.33.0"}, ("warning", "engine_version", None, 600),
                     id="engine_upgraded"),
        pytest.param({"model": "old"}, {}, ("critical", "model_name", None, 600),
                     id="other_model"),
        pytest.param({"model": "old"}, {"reset": False},
                     ("critical", "model_name", None, 600), id="other_model_no_reset_seen"),
    ],
)  # fmt: skip
def test_lower_tier_hits_right_after_a_start(
    store: Store, before: Row, after: Row, right: tuple[Any, ...]
) -> None:
    """400 computed, 600 from disk and 50 generated fit into 2,304: nothing was evicted since the
    start, so that what disk served had been written before."""
    store.add("engine_samples", [sample(1, **before), sample(2, **{**PERSISTENT, **after})])
    assert findings(store) == [right]


def test_what_was_written_since_the_start_proves_nothing(store: Store) -> None:
    """Minute 2 fits into the device, minute 3 no more: 600 + 400 + 50 and 1,000 + 600 + 50."""
    again = sample(3, prompt_tokens=1600, cached_tokens=600, cached_disk=600)
    store.add("engine_samples", [sample(1), sample(2, **PERSISTENT), again])
    assert findings(store) == [("info", "engine_start", None, 600)]
    store.execute("UPDATE engine_samples SET kv_capacity_tokens = NULL")
    assert findings(store) == []
    # Pages that count writes prove it without a capacity, until the first write.
    store.execute("UPDATE engine_samples SET offload_bytes = MAP(['store/disk'], [0])")
    assert findings(store) == [("info", "engine_start", None, 1200)]
    store.execute("UPDATE engine_samples SET offload_bytes = MAP(['store/disk'], [1]) WHERE reset")
    assert findings(store) == []


def test_another_replica_may_have_written_into_a_tier_both_reach(store: Store) -> None:
    store.add("engine_samples", [
        sample(1, model="old"), sample(1, replica="b"), sample(2, **PERSISTENT),
    ])  # fmt: skip
    (row,) = store.ask("stale_reuse")
    assert (row["severity"], row["reason"]) == ("unknown", "model_name")
    assert "or by another replica" in row["sentence"]
    host = {"cached_disk": 0, "cached_host": 600}
    store.execute("DELETE FROM engine_samples WHERE reset")
    store.add("engine_samples", [sample(2, **{**PERSISTENT, **host})])
    assert findings(store) == [("critical", "model_name", None, 600)]


def test_without_a_start_lower_tier_hits_are_no_finding(store: Store) -> None:
    store.add("engine_samples", [sample(1), sample(2, cached_disk=600, cached_tokens=600)])
    assert findings(store) == []


def test_window_is_of_the_reuse_and_not_of_the_writing(store: Store) -> None:
    store.add("requests", [request(0, 0, **V1), request(160, 10, **V2), request(160, 20, **V2)])
    since = (START + timedelta(minutes=15)).isoformat() + "Z"
    assert findings(store, since=since) == [("critical", "model_fingerprint", 1, 160)]
    assert findings(store, until=since) == [("critical", "model_fingerprint", 1, 160)]
    assert findings(store, replica="b") == []


@needs_captures
@pytest.mark.parametrize("name", ["main", "restart", "external", "dp2"])
def test_captures_have_no_stale_reuse(tmp_path: Path, name: str) -> None:
    """`restart` starts again with an empty cache and no lower tier, `external` never restarts."""
    store = StoredStore.open(tmp_path, SMALL)
    ingest_pages(store, [CAPTURES / "vllm-0.32.0" / name / "metrics"])
    assert ask(store, "stale_reuse") == []
    restarts = store.cursor().execute("SELECT count(DISTINCT replica) FROM replica_starts")
    assert restarts.fetchone() == (1 if name == "restart" else 0,)
    store.close()


def judged_the_long_way(rows: list[Row]) -> list[tuple[str, int]]:
    """Reason and tokens of every stale read, by looking at all earlier rows of each."""
    found = []
    for row in rows:
        if row["cached_tokens"] < 16:
            continue
        earlier = [
            w for w in rows
            if w["ts"] < row["ts"] and w["cached_tokens"] < 16
            and w["block_hashes"][0] == row["block_hashes"][0]
        ]  # fmt: skip
        if any(_identity(w) == _identity(row) for w in earlier):
            continue
        fingerprints = {w["model_fingerprint"] for w in earlier}
        first = min(w["ts"] for w in rows if _identity(w) == _identity(row))
        changed = any(
            w["adapter"] == row["adapter"] and w["model_fingerprint"] != row["model_fingerprint"]
            and min(o["ts"] for o in rows if _identity(o) == _identity(w)) < first
            for w in rows
        )  # fmt: skip
        if fingerprints - {row["model_fingerprint"]}:
            reason = "model_fingerprint"
        elif earlier:
            reason = "adapter"
        else:
            reason = "unaccounted" if changed else "before_log"
        found.append((reason, row["cached_tokens"]))
    return sorted(found)


def _identity(row: Row) -> tuple[Any, ...]:
    return (row["model_fingerprint"], row["adapter"])


@settings(max_examples=40)
@given(st.lists(
    st.fixed_dictionaries({
        "cached_tokens": st.sampled_from([0, 15, 16, 160]),
        "model_fingerprint": st.sampled_from(["v1", "v2"]),
        "adapter": st.sampled_from([None, "x"]),
        "block_hashes": st.lists(st.integers(1, 3), min_size=1, max_size=2),
    }), min_size=1, max_size=12,
))  # fmt: skip
def test_every_stale_read_is_found_and_no_other(drawn: list[Row]) -> None:
    rows = [{**request(0, minute), **one} for minute, one in enumerate(drawn)]
    sql = "SELECT reason, tokens FROM stale_reads(NULL, NULL, NULL, NULL) ORDER BY ALL"
    with empty_store.lent() as connection:
        store = Store(connection)
        store.add("requests", rows)
        assert store.execute(sql) == judged_the_long_way(rows)
