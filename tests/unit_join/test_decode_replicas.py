"""Decode replicas of a prefill/decode split: their rows enter no figure."""

from collections.abc import Iterable
from datetime import UTC, datetime

from exporter.records import EngineSample
from exporter.store.samples import append_samples
from exporter.store.store import Store
from tests.log_path import Answer, Row, hit_ratio, load, requests


def rows(replica: str, count: int, cached: int, prompt: int = 1000) -> Iterable[Row]:
    for number in range(count):
        yield {
            "request_id": f"{replica}-{number}", "ts": f"2026-03-02T12:{number % 60:02}:00Z",
            "model": "big", "replica": replica, "prompt_tokens": prompt, "cached_tokens": cached,
        }  # fmt: skip


def rolled_up(store: Store, table: str) -> Answer:
    store.fold()
    [(requests_, prompt, cached)] = store.cursor().execute(
        f"SELECT sum(requests), sum(prompt_tokens), sum(cached_tokens) FROM {table}"
    ).fetchall()  # fmt: skip
    return {"requests": requests_, "prompt_tokens": prompt, "cached_tokens": cached}


def test_a_replica_whose_prompts_are_always_cached_is_a_decode_replica(store: Store) -> None:
    load(store, rows("prefill", 60, cached=256), "log")
    load(store, rows("decode", 40, cached=999), "log")
    assert hit_ratio(store)["requests"] == 100  # forty rows prove nothing yet
    rolled_up(store, "hour_rollup")
    load(store, list(rows("decode", 60, cached=999))[40:], "log")
    figures = hit_ratio(store)
    # The sixty prompts as the prefill replica counted them: 60 * 256 of 60 * 1000.
    assert (figures["prompt_tokens"], figures["cached_tokens"]) == (60_000, 15_360)
    for table in ("minute_rollup", "hour_rollup"):
        assert rolled_up(store, table) == {
            "requests": 60, "prompt_tokens": 60_000, "cached_tokens": 15_360
        }  # fmt: skip
    flags = [row["flags"] for row in requests(store) if row["replica"] == "decode"]
    assert flags == [["pd_decode"]] * 60


def test_without_a_replica_that_computes_nothing_is_taken_for_one(store: Store) -> None:
    # A benchmark that repeats one prompt on engines that reuse by token looks the same.
    load(store, rows("a", 80, cached=999), "log")
    load(store, rows("b", 80, cached=999), "log")
    assert hit_ratio(store)["requests"] == 160


def test_the_role_on_its_own_page_tells_at_once(store: Store) -> None:
    load(store, rows("d-0", 3, cached=999), "log")
    sample = EngineSample(
        target="d-0", replica="d-0", engine="sglang", model="big", role="decode",
        ts=datetime(2026, 3, 2, 12, 30, tzinfo=UTC),
    )  # fmt: skip
    with store.write() as cursor:
        append_samples(cursor, [sample])
    assert hit_ratio(store)["requests"] == 0
    load(store, list(rows("d-0", 6, cached=999))[3:], "log")
    assert hit_ratio(store)["requests"] == 0


def test_a_role_that_rows_state_stands(store: Store) -> None:
    load(store, rows("prefill", 60, cached=256), "log")
    stated = [{**row, "replica_role": "unified"} for row in rows("other", 60, cached=999)]
    load(store, stated, "log")
    assert hit_ratio(store)["requests"] == 120
