"""Objects are read as their rows would be from one file: once, whatever they are packed in."""

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import zstandard

from exporter.sources.objects.intake import ObjectReader
from exporter.sources.objects.lines import place_of
from exporter.store.store import Store
from tests.log_path import SMALL, ask, load, rejects, requests
from tests.unit_objects.conftest import PAGE_OBJECTS, Bucket
from tests.unit_objects.object_rows import facts, packed, prompts, row, without_id
from tests.unit_objects.s3_front import Front

Make = Callable[..., ObjectReader]

LITELLM = {
    "id": "chatcmpl-1", "trace_id": "t", "call_type": "acompletion", "cache_hit": None,
    "status": "success", "custom_llm_provider": "openai", "model_parameters": {},
    "startTime": 1772452800.0, "endTime": 1772452802.0, "completionStartTime": 1772452800.5,
    "stream": True, "model": "gpt-x", "model_group": "chat", "prompt_tokens": 2000,
    "completion_tokens": 7, "hidden_params": {"usage_object": None},
    "metadata": {"usage_object": {"prompt_tokens_details": {"cached_tokens": 1536}}},
}  # fmt: skip
LANGFUSE = {
    "id": "obs-1", "trace_id": "t", "type": "GENERATION", "start_time": "2026-03-02T12:00:00Z",
    "end_time": "2026-03-02T12:00:01Z", "provided_model_name": "claude", "prompt_name": "support",
    "usage_details": {"input": 100, "input_cached_tokens": 900, "output": 5, "total": 1005},
}  # fmt: skip
HELICONE = {
    "request_created_at": "2026-03-02T12:00:00Z", "request_id": "h-1", "delay_ms": 900,
    "request_model": "m", "prompt_tokens": 10, "prompt_cache_read_tokens": 30,
    "completion_tokens": 2, "response_status": 200,
}  # fmt: skip
PORTKEY = {
    "id": "p-1", "created_at": "2026-03-02T12:00:00Z", "ai_model": "m", "ai_org": "openai",
    "req_units": 1, "response_time": 500, "response_status_code": 200,
    "response": {"usage": {"prompt_tokens": 64, "completion_tokens": 3,
                           "prompt_tokens_details": {"cached_tokens": 48}}},
}  # fmt: skip


def test_one_object_a_request_equals_one_file(
    store: Store, bucket: Bucket, reader: Make, tmp_path: Path
) -> None:
    count = 3 * PAGE_OBJECTS + 2
    for number in range(count):  # without a newline, as LiteLLM writes them
        bucket.put(f"2026-03-02/{number}.json", json.dumps(row(number)).encode())
    summary = reader().run()
    assert (summary.accepted, summary.duplicate, summary.rejected) == (count, 0, 0)
    assert summary.decided_because == f"{count} objects read, 0 known before"
    of_file = Store.open(tmp_path / "other", SMALL)
    load(of_file, [row(number) for number in range(count)], "bucket")
    assert facts(store) == facts(of_file)
    assert len({entry["position"] for entry in requests(store)}) == count
    of_file.close()


def test_second_pass_fetches_only_what_is_new(
    front: Front, store: Store, bucket: Bucket, reader: Make
) -> None:
    for number in range(10):
        bucket.put(f"a/{number}.json", packed(row(number)))
    again = reader()
    again.run()
    assert sorted(front.gets) == sorted(f"a/{number}.json" for number in range(10))
    front.gets.clear()
    bucket.put("a/10.json", packed(row(10)))
    assert again.run().accepted == 1
    assert front.gets == ["a/10.json"]
    assert reader().run().accepted == 0  # known to the store, not to the reader
    assert front.gets == ["a/10.json"]
    assert prompts(store) == [100 + number for number in range(11)]


def test_packed_and_laid_out_objects(store: Store, bucket: Bucket, reader: Make) -> None:
    bucket.put("a.jsonl.gz", gzip.compress(packed(row(1), row(2))))
    bucket.put("b.jsonl.zst", zstandard.compress(packed(row(3), row(4))))
    bucket.put("c.json", json.dumps([row(5), row(6)], indent=1).encode())
    bucket.put("d.json", json.dumps(row(7), indent=1).encode())
    bucket.put("e.jsonl", b"\xef\xbb\xbf" + packed(row(8)).replace(b"\n", b"\r\n"))
    bucket.put("empty", b"")
    bucket.put("folder/", b"")
    assert reader().run().accepted == 8
    assert prompts(store) == [101, 102, 103, 104, 105, 106, 107, 108]


def test_exports_of_gateways_lie_side_by_side(store: Store, bucket: Bucket, reader: Make) -> None:
    for key, value in (
        ("litellm/2026-03-02/1.json", LITELLM), ("langfuse/observations/1.json", LANGFUSE),
        ("helicone/1.jsonl", HELICONE), ("portkey/1.jsonl", PORTKEY),
    ):  # fmt: skip
        bucket.put(key, json.dumps(value).encode())
    summary = reader().run()
    assert summary.format == "helicone, langfuse, litellm, portkey"
    counts = {
        entry["source_format"]: (entry["prompt_tokens"], entry["cached_tokens"])
        for entry in requests(store)
    }
    assert counts == {
        "litellm": (2000, 1536),
        "langfuse": (1000, 900),
        "helicone": (40, 30),
        "portkey": (64, 48),
    }


def test_rows_of_another_kind_in_one_folder_are_told_by_their_first_key(
    store: Store, bucket: Bucket, reader: Make
) -> None:
    bucket.put("x/1.json", packed(row(1)))
    bucket.put("x/2.json", json.dumps(HELICONE).encode())
    reader().run()
    assert {entry["source_format"] for entry in requests(store)} == {"ndjson", "helicone"}


def test_rows_without_id_are_known_by_object_and_place(
    store: Store, bucket: Bucket, reader: Make
) -> None:
    bucket.put("a", packed(without_id(1), without_id(1), without_id(2)))
    bucket.put("b", packed(without_id(1)))
    assert reader().run().accepted == 4  # equal lines in other places are other rows
    # The same objects by another prefix, whose bookmark is empty, and one of them longer.
    bucket.put("a", packed(without_id(1), without_id(1), without_id(2), without_id(3)))
    summary = reader("a").run()
    assert (summary.accepted, summary.duplicate) == (1, 3)
    assert prompts(store) == [101, 101, 101, 102, 103]


def test_replaced_object_brings_only_its_new_rows(
    store: Store, bucket: Bucket, reader: Make
) -> None:
    bucket.put("a", packed(row(1), row(2)))
    again = reader()
    again.run()
    bucket.put("a", packed(row(2), row(3)))
    summary = again.run()
    assert (summary.accepted, summary.duplicate) == (1, 1)
    assert again.run().decided_because == "0 objects read, 1 known before"
    assert prompts(store) == [101, 102, 103]


@pytest.mark.parametrize("key", ["a b/ü[1]*#%41.json", "x//y.json", "q?v=1&w.json", "{a,b}+c"])
def test_names_are_taken_as_they_are(store: Store, bucket: Bucket, reader: Make, key: str) -> None:
    bucket.put(key, packed(row(1)))
    again = reader()
    assert again.run().accepted == 1, again.problems
    bucket.put(key, packed(row(1), row(2)))
    assert again.run().accepted == 1


def test_prefix_may_end_inside_a_name(store: Store, bucket: Bucket, reader: Make) -> None:
    for number, key in enumerate(("logs/2026-02-28/a", "logs/2026-03-01/a", "logs/2026-03-02/a")):
        bucket.put(key, packed(row(number)))
    reader("logs/2026-03").run()
    assert prompts(store) == [101, 102]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_large_objects_are_read_in_pieces(
    store: Store, bucket: Bucket, reader: Make, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    # Every seventh row without id; far more bytes than the memory that objects may take.
    rows = [without_id(n) if n % 7 == 0 else row(n, note="x" * 900) for n in range(4000)]
    data = packed(*rows)
    assert len(data) > 3 << 20
    bucket.put("large", pack(data))
    bucket.put("small", packed(row(5000)))
    summary = reader(memory_bytes=1 << 20).run()
    assert (summary.accepted, summary.rejected) == (4001, 0)
    assert prompts(store) == [100 + n for n in range(4000)] + [5100]
    lines = [entry["position"] - place_of(f"s3://{bucket.name}/large", store.key)
             for entry in requests(store) if entry["request_id"] == "r3999"]  # fmt: skip
    assert lines == [data.index(b'"r3999"') - len(b'{"ts": "2026-03-02T12:00:00Z", "request_id": ')]
    assert reader(memory_bytes=1 << 20).run().accepted == 0


def test_bad_lines_name_their_line_in_their_object(
    store: Store, bucket: Bucket, reader: Make
) -> None:
    long = json.dumps(row(9, note="y" * (1 << 20))).encode()
    bucket.put("a", packed(row(1)) + b"no json\n" + packed(row(2)))
    bucket.put("b", packed(row(3), row(4)) + b"\n" + b"\xff\xfe{\n" + long + b"\n")
    summary = reader().run()
    assert summary.accepted == 4
    assert sorted(rejects(store)) == [
        (2, "invalid_json"), (4, "invalid_utf8"), (5, "too_long"),
    ]  # fmt: skip


def test_late_objects_are_found_within_the_overlap_only(
    store: Store, bucket: Bucket, reader: Make
) -> None:
    noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
    bucket.put("m", packed(row(1)), noon)
    again = reader(overlap_seconds=3600)
    again.run()
    bucket.put("a", packed(row(2)), noon - timedelta(minutes=59))
    bucket.put("z", packed(row(3)), noon - timedelta(minutes=61))
    assert again.run().accepted == 1
    assert prompts(store) == [101, 102]
    # What is remembered one by one does not grow with the past.
    bucket.put("n", packed(row(4)), noon + timedelta(hours=5))
    again.run()
    assert store.cursor().execute("SELECT count(*) FROM objects_read").fetchone() == (1,)
    assert again.run().accepted == 0


def test_an_object_from_the_future_does_not_make_others_old(
    store: Store, bucket: Bucket, reader: Make
) -> None:
    bucket.put("a", packed(row(1)), datetime.now(UTC) + timedelta(days=400))
    again = reader(overlap_seconds=3600)
    again.run()
    bucket.put("b", packed(row(2)))
    assert again.run().accepted == 1


def test_source_is_the_given_name_and_nothing_of_a_path_is_kept(
    store: Store, bucket: Bucket, reader: Make
) -> None:
    bucket.put("customer-acme/1.json", packed(row(1)))
    bucket.put("customer-acme/2.json.gz", gzip.compress(packed(row(2)))[:-9])
    reader().run()
    (health,) = ask(store, "ingest_health")
    assert health["source"] == "bucket"
    store.cursor().execute("CHECKPOINT")
    kept = b"".join(path.read_bytes() for path in store.directory.rglob("*") if path.is_file())
    assert b"customer-acme" not in kept
    assert bucket.name.encode() not in kept
    for (table,) in store.cursor().execute("SELECT table_name FROM duckdb_tables()").fetchall():
        assert "acme" not in str(store.cursor().execute(f"FROM {table}").fetchall())
