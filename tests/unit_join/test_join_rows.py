"""One call, written by a gateway and by an engine, is one request."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from exporter.store.store import Store, StoreSettings
from tests.log_path import (
    CAPTURES,
    NOON,
    Answer,
    Row,
    ask,
    by_id,
    hit_ratio,
    load,
    needs_captures,
    requests,
    utc,
)

GATEWAY: Row = {
    "request_id": "call-1", "ts": NOON, "tenant": "acme", "route": "chat", "template": "triage",
    "prompt_tokens": 1000, "output_tokens": 50, "ttft_seconds": 0.9, "ttft_point": "gateway",
    "e2e_seconds": 4.0, "model": "big",
}  # fmt: skip
ENGINE: Row = {
    "request_id": "chatcmpl-call-1", "ts": "2026-03-02T12:00:00.200Z", "replica": "r-1",
    "prompt_tokens": 1000, "cached_tokens": 640, "cached_device": 512, "cached_host": 128,
    "ttft_seconds": 0.6, "ttft_point": "engine_arrival", "queue_seconds": 0.1, "block_size": 16,
}  # fmt: skip


def gateway(store: Store, *rows: Row) -> None:
    load(store, rows, "gw", defaults={"side": "gateway"})


def engine(store: Store, *rows: Row) -> None:
    load(store, rows, "eng", defaults={"side": "engine"})


@pytest.mark.parametrize("first", [gateway, engine])
def test_both_rows_become_one_request(store: Store, first: object) -> None:
    if first is gateway:
        gateway(store, GATEWAY)
        engine(store, ENGINE)
    else:
        engine(store, ENGINE)
        gateway(store, GATEWAY)
    (row,) = requests(store)
    # The gateway knows whose it was, the engine what it cost and where.
    assert (row["tenant"], row["route"], row["template"]) == ("acme", "chat", "triage")
    assert (row["prompt_tokens"], row["cached_tokens"], row["replica"]) == (1000, 640, "r-1")
    assert (row["cached_device"], row["cached_host"]) == (512, 128)
    assert (row["ttft_seconds"], row["ttft_point"], row["queue_seconds"]) == (0.9, "gateway", 0.1)
    assert (row["ts"], row["source"], row["flags"]) == (utc(NOON), "gw", ["joined"])
    # 640 of at most floor(999 / 16) * 16 = 992 tokens: below 80 %.
    assert row["outcome"] == "partial"
    figures = hit_ratio(store)
    assert (figures["requests"], figures["prompt_tokens"], figures["cached_tokens"]) == (
        1,
        1000,
        640,
    )
    store.fold()
    for table in ("minute_rollup", "hour_rollup"):
        sums = store.cursor().execute(
            f"SELECT sum(requests), sum(prompt_tokens), sum(cached_tokens) FROM {table}"
        )
        assert sums.fetchall() == [(1, 1000, 640)]


def test_both_first_token_times_are_kept_with_their_point(store: Store) -> None:
    gateway(store, GATEWAY)
    engine(store, ENGINE)
    parts = store.cursor().execute(
        "SELECT ttft_point, ttft_seconds, source FROM request_parts ORDER BY ALL"
    )
    assert parts.fetchall() == [("engine_arrival", 0.6, "eng"), ("gateway", 0.9, "gw")]


def test_what_arrives_again_is_known(store: Store) -> None:
    for _ in range(2):
        gateway(store, GATEWAY)
        engine(store, ENGINE)
    load(store, [GATEWAY, {**GATEWAY, "prompt_tokens": 7}], "gw")
    assert len(requests(store)) == 1
    health = {row["source"]: row for row in ask(store, "ingest_health")}
    assert (health["gw"]["duplicate"], health["gw"]["conflicting"]) == (2, 1)
    assert (health["eng"]["duplicate"], health["eng"]["conflicting"]) == (1, 0)


def test_other_ids_times_and_sides_stay_apart(store: Store) -> None:
    gateway(store, GATEWAY, {**GATEWAY, "request_id": "call-2"})
    engine(
        store,
        {**ENGINE, "request_id": "other"},
        {**ENGINE, "ts": "2026-03-02T12:06:00Z"},  # six minutes: another call of that name
        {**ENGINE, "request_id": "call-2", "replica_role": "decode"},
    )
    load(store, [{**ENGINE, "request_id": "call-2"}], "no side")
    assert sum("joined" in (row["flags"] or []) for row in requests(store)) == 0
    assert len(requests(store)) == 6


def test_each_attempt_takes_the_row_nearest_in_time(store: Store) -> None:
    at = [utc(NOON) + timedelta(seconds=seconds) for seconds in (0, 30, 60)]
    gateway(store, *({**GATEWAY, "attempt": n, "ts": f"{t}Z"} for n, t in enumerate(at, 1)))
    late = [t + timedelta(seconds=1) for t in at]
    engine(store, *(
        {**ENGINE, "attempt": n, "ts": f"{t}Z", "cached_tokens": n * 16, "cached_device": n * 16,
         "cached_host": 0}
        for n, t in enumerate(late, 1)
    ))  # fmt: skip
    assert {row["attempt"]: row["cached_tokens"] for row in requests(store)} == {
        1: 16,
        2: 32,
        3: 48,
    }


def test_a_trace_joins_where_it_has_one_call_on_each_side(store: Store) -> None:
    traced = {**GATEWAY, "trace_id": "t1"}
    gateway(store, traced, {**GATEWAY, "request_id": "a", "trace_id": "t2"},
            {**GATEWAY, "request_id": "b", "trace_id": "t2"})  # fmt: skip
    engine(store, {**ENGINE, "request_id": "x", "trace_id": "t1"},
           {**ENGINE, "request_id": "y", "trace_id": "t2"})  # fmt: skip
    joined = [row["request_id"] for row in requests(store) if "joined" in (row["flags"] or [])]
    assert joined == ["call-1"]


def test_the_id_of_the_answer_joins_too(store: Store) -> None:
    gateway(store, {**GATEWAY, "response_id": "chatcmpl-abc"})
    engine(store, {**ENGINE, "request_id": "abc"})
    assert by_id(store)["call-1"]["cached_tokens"] == 640


def test_the_gateways_cached_count_stands_where_the_engine_has_none(store: Store) -> None:
    gateway(store, {**GATEWAY, "cached_tokens": 320})
    silent = {name: value for name, value in ENGINE.items() if not name.startswith("cached")}
    engine(store, silent)
    (row,) = requests(store)
    assert (row["cached_tokens"], row["cached_device"], row["replica"]) == (320, None, "r-1")


def test_the_engines_block_tells_what_the_gateways_count_could_be_at_best(store: Store) -> None:
    # Of 100 tokens whole blocks of 64 can serve 64: all there was to hit.
    gateway(store, {**GATEWAY, "prompt_tokens": 100, "cached_tokens": 64})
    [(alone,)] = store.cursor().execute("SELECT outcome FROM requests").fetchall()
    engine(store, {"request_id": "call-1", "ts": NOON, "prompt_tokens": 100, "block_size": 64})
    [(joined,)] = store.cursor().execute("SELECT outcome FROM requests").fetchall()
    assert (alone, joined) == ("partial", "hit")
    store.fold()
    sums = "SELECT sum(hit_requests), sum(partial_requests) FROM hour_rollup"
    assert store.cursor().execute(sums).fetchall() == [(1, 0)]


@pytest.mark.parametrize(("hashed", "content"), [({}, [7, 8]), ({"block_hashes": [3]}, None)])
def test_content_hashes_come_from_the_side_the_chain_is_of(
    store: Store, hashed: Row, content: list[int] | None
) -> None:
    gateway(store, {**GATEWAY, "block_hashes": [1, 2], "content_hashes": [7, 8]})
    engine(store, {**ENGINE, **hashed})
    (row,) = requests(store)
    assert row["block_hashes"] == hashed.get("block_hashes", [1, 2])
    assert row["content_hashes"] == content


def test_the_share_that_found_no_partner_is_told(store: Store) -> None:
    gateway(store, GATEWAY, *({**GATEWAY, "request_id": f"lonely-{n}"} for n in range(3)))
    engine(store, ENGINE)
    rows = {row["source"]: row for row in ask(store, "joins")}
    assert rows["gw"] == {"source": "gw", "side": "gateway", "rows": 4, "joined": 1,
                          "unmatched": 3, "unmatched_ratio": 0.75}  # fmt: skip
    assert (rows["eng"]["rows"], rows["eng"]["unmatched_ratio"]) == (1, 0.0)


def test_counters_wait_for_the_other_side(tmp_path: Path) -> None:
    settings = StoreSettings(memory_limit="256MB", join_wait_seconds=3600)
    store = Store.open(tmp_path / "store", settings)
    now = store.cursor().execute("SELECT now()::VARCHAR").fetchall()[0][0]
    engine(store, {**ENGINE, "request_id": "warm-up", "ts": now})
    for name, side, row in (("gw", "gateway", GATEWAY), ("eng", "engine", ENGINE)):
        load(store, [{**row, "ts": now}], name, origin="http", defaults={"side": side})
    store.fold_settled(0)
    # Nothing of the pair was counted before it was one: a counter cannot change its outcome.
    store.fold()
    rows = store.cursor().execute(
        "SELECT sum(unknown_requests), sum(partial_requests), sum(prompt_tokens) FROM live_counters"
    ).fetchall()  # fmt: skip
    assert rows == [(0, 2, 2000)]
    store.close()


@needs_captures
@pytest.mark.parametrize("spans_first", [False, True])
def test_a_real_engines_spans_join_the_clients_log(store: Store, spans_first: bool) -> None:
    folder = CAPTURES / "vllm-0.32.0" / "otel"
    log = (folder / "requests.jsonl").read_bytes()
    spans = (folder / "otlp-traces.jsonl").read_bytes()
    sent = [json.loads(line) for line in log.splitlines()]
    loads = [("client", log, {"side": "gateway"}), ("vllm", spans, {"side": "engine"})]
    for source, data, defaults in reversed(loads) if spans_first else loads:
        load(store, data, source, format="auto", defaults=dict(defaults))
    joined: list[Answer] = [row for row in requests(store) if "joined" in (row["flags"] or [])]
    assert len(joined) == len(sent)
    figures = hit_ratio(store)
    # The client's own sums: each prompt once, cached tokens from the replies.
    assert figures["prompt_tokens"] == sum(row["usage"]["prompt_tokens"] for row in sent)
    details = [row["usage"]["prompt_tokens_details"]["cached_tokens"] for row in sent]
    assert figures["cached_tokens"] == sum(details)
    assert all(row["queue_seconds"] is not None for row in joined)


def test_two_rows_of_one_call_in_one_batch_are_both_accepted(store: Store) -> None:
    rows = [{**GATEWAY, "side": "gateway"}, {**ENGINE, "side": "engine"}]
    summary = load(store, rows, "both")
    assert (summary.accepted, summary.rejected, len(requests(store))) == (2, 0, 1)
    (health,) = ask(store, "ingest_health")
    assert health["accepted"] == 2
