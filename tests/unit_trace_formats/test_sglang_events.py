"""SGLang's request log and metrics file: what counts, what is set aside, what is never kept."""

import json
from pathlib import Path

import pytest

from exporter.sources.formats.detect import detect
from exporter.store.store import Store
from tests.log_path import SMALL, Answer, Row, ask, by_id, hit_ratio, load, rejects, requests

RECEIVED = 1772442904.125
SECRETS = ("Zebra-Quartz", "918273645", "salt-9f3kQ")


def event(rid: str, prompt: int, cached: int, **meta: object) -> dict[str, object]:
    """A request that ended, at log level 3: the prompt stands in it as text and as ids."""
    told = {
        "id": rid, "prompt_tokens": prompt, "cached_tokens": cached, "completion_tokens": 7,
        "request_received_ts": RECEIVED, "e2e_latency": 2.0, **meta,
    }  # fmt: skip
    asked = {
        "rid": rid, "text": "Zebra-Quartz vault", "input_ids": [918273645], "stream": True,
        "cache_salt": "salt-9f3kQ",
    }  # fmt: skip
    return {
        "timestamp": "2026-03-02T18:15:09.431207", "event": "request.finished", "rid": rid,
        "obj": asked, "out": {"text": "Zebra-Quartz answer", "meta_info": told},
    }  # fmt: skip


def exported(rid: str, prompt: int, cached: int) -> dict[str, object]:
    """The same request in the metrics file, where the request is JSON in a text."""
    asked = event(rid, prompt, cached)["obj"]
    return {
        "request_parameters": json.dumps(asked), "id": rid, "prompt_tokens": prompt,
        "cached_tokens": cached, "e2e_latency": 2.0, "request_received_ts": RECEIVED,
    }  # fmt: skip


def into(store: Store, route: str, rows: list[dict[str, object] | str]) -> Answer:
    load(store, list(rows), route, format="auto", defaults={"route": route})
    return hit_ratio(store, route=route)


def test_a_request_counts_when_it_ended(shared_store: Store) -> None:
    arrival = {"event": "request.received", "rid": "a", "obj": {"text": "Zebra-Quartz"}}
    rows: list[Row] = [arrival, event("a", 1000, 640), {**arrival, "rid": "b"}, event("b", 1000, 0)]
    summary = load(shared_store, rows, "ended", format="auto", defaults={"route": "ended"})
    assert (summary.accepted, summary.rejected) == (2, 0)
    assert summary.flags["request_received"] == 2, "set aside, and said so"
    figures = hit_ratio(shared_store, route="ended")
    assert (figures["requests"], figures["prompt_tokens"]) == (2, 2000)
    assert figures["token_hit_ratio"] == 640 / 2000


def test_lines_of_a_server_log_are_no_rows_but_a_broken_event_is_told(store: Store) -> None:
    lines = [
        "[2026-03-02 09:15:00 TP0] Prefill batch, #new-seq: 1, #cached-token: 640",
        '[2026-03-02 09:15:01] INFO:     127.0.0.1 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        "[2026-03-02 09:15:02] " + json.dumps(event("a", 10, 5)),
        "[2026-03-02 09:15:03] " + json.dumps(event("b", 10, 5))[:90],
    ]
    summary = load(store, list(lines), format="auto")
    assert summary.format == "sglang"
    assert set(by_id(store)) == {"a"}
    assert rejects(store) == [(4, "invalid_json")]


def test_an_event_quoted_in_a_prompt_is_none() -> None:
    quoted = json.dumps({"id": "c", "created": 1, "usage": {"prompt_tokens": 1},
                         "note": '"event": "request.finished"'}).encode()  # fmt: skip
    assert detect(quoted, "log").log_format.name == "openai"


def test_t65_local_time_without_a_zone_is_not_taken_for_utc(shared_store: Store) -> None:
    into(shared_store, "local", [event("a", 10, 5, request_received_ts=None)])
    (row,) = requests(shared_store, "local")
    assert row["flags"] == ["no_time"]
    assert row["ts"] == row["arrived"]


def test_t03_a_small_excess_is_capped_and_a_retracted_double_is_left_out(
    shared_store: Store,
) -> None:
    figures = into(shared_store, "t03", [event("stub", 126, 128)])
    assert (figures["cached_tokens"], figures["token_hit_ratio"]) == (126, 1.0)
    retracted = event("twice", 59_946, 122_884, num_retractions=1)
    into(shared_store, "t03 twice", [retracted])
    row = by_id(shared_store, "t03 twice")["twice"]
    assert (row["prompt_tokens"], row["cached_tokens"]) == (59_946, None)
    assert row["flags"] == ["cached_impossible", "retracted"]


def test_t04_one_prompt_for_several_answers(shared_store: Store) -> None:
    several, one = event("n4", 1000, 3200), event("n1", 1000, 800)
    several["obj"] = {"rid": "n4", "sampling_params": {"n": 4}}
    figures = into(shared_store, "t04", [several, one])
    assert (figures["prompt_tokens"], figures["cached_tokens"]) == (2000, 1600)
    unsaid = event("n?", 1000, 3200)
    assert into(shared_store, "t04 unsaid", [unsaid])["reported_requests"] == 0


def test_t19_tiers_add_up_to_the_whole(shared_store: Store) -> None:
    details = {"device": 18_916_096, "host": 691_904, "storage": 1_531_520,
               "storage_backend": "MooncakeStore"}  # fmt: skip
    row = event("t19", 54_657_831, 21_139_520, cached_tokens_details=details)
    figures = into(shared_store, "t19", [row])
    points = [
        round(100 * figures[name] / figures["prompt_tokens"], 1)
        for name in ("cached_tokens", "cached_device", "cached_host", "cached_remote")
    ]
    assert points == [38.7, 34.6, 1.3, 2.8]
    assert figures["cached_disk"] in (0, None)
    shares = [
        round(100 * figures[name] / figures["cached_tokens"], 1)
        for name in ("cached_device", "cached_host", "cached_remote")
    ]
    assert shares == [89.5, 3.3, 7.2]


@pytest.mark.parametrize(
    ("backend", "tier"),
    [("HiCacheFile", "disk"), ("file", "disk"), ("MooncakeStore", "remote"),
     ("HiCacheHF3FS", "remote"), ("AibrixKVCacheStorage", "remote")],
)  # fmt: skip
def test_the_store_behind_host_memory_is_disk_or_remote(
    shared_store: Store, backend: str, tier: str
) -> None:
    details = {"device": 32, "host": 16, "storage": 64, "storage_backend": backend}
    into(shared_store, backend, [event(backend, 200, 112, cached_tokens_details=details)])
    row = by_id(shared_store, backend)[backend]
    other = {"disk": "remote", "remote": "disk"}[tier]
    assert (row[f"cached_{tier}"], row[f"cached_{other}"], row["flags"]) == (64, None, None)


def test_salt_and_key_separate_scopes_together(shared_store: Store) -> None:
    rows = []
    for number, scope in enumerate([("s", "k"), ("s", "k"), ("s", None), (None, "s"), ("k", "s")]):
        row = event(f"{number}", 10, 5)
        row["obj"] = {"cache_salt": scope[0], "extra_key": scope[1]}
        rows.append(row)
    into(shared_store, "scopes", list(rows))
    stored = by_id(shared_store, "scopes")
    both, same, salt, key, swapped = (stored[f"{number}"]["scope"] for number in range(5))
    assert both == same
    assert len({both, salt, swapped}) == 3
    assert salt == key, "one of the two is the salt, whatever it is called"


def test_prompts_and_salts_never_reach_the_disk(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", SMALL)
    store.cursor().execute("PRAGMA force_compression='uncompressed'")
    good = [event("find-me", 100, 50), exported("find-me-too", 100, 50)]
    odd = event("odd", 100, 50)
    odd["obj"] = {"cache_salt": ["Zebra-Quartz"], "lora_path": {"x": "Zebra-Quartz"},
                  "routing_key": ["Zebra-Quartz"]}  # fmt: skip
    broken = {**exported("broken", 100, 50), "request_parameters": '{"text": "Zebra-Quartz'}
    rows = [*good, odd, broken]
    cut = [json.dumps(row)[:-20] for row in rows]
    load(store, [*rows, *cut], format="auto")
    assert {"find-me", "find-me-too", "odd", "broken"} == set(by_id(store))
    answers = json.dumps([ask(store, "rejects"), ask(store, "requests", limit=100)])
    store.cursor().execute("CHECKPOINT")
    store.close()
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"find-me-too" in written, "looking for text in the bytes works"
    for secret in SECRETS:
        assert secret.encode() not in written
        assert secret not in answers
