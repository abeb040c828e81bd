"""Events through `serve`: from a publisher to the questions, and no prompt on the disk."""

import json
import logging
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from exporter.sources.events import keeper, worker
from prefixscope.serve import running
from prefixscope.settings import Settings
from tests.running import answer, free_port
from tests.unit_events.batches import (
    CANARY_SALT,
    CANARY_TOKEN,
    CLEARED,
    batch,
    removed,
    stored,
)
from tests.unit_events.publishing import (
    PATIENCE_SECONDS,
    Publisher,
    ipc,
    wait_until,
)

CANARY_PROMPT = "tell nobody of the canary prompt"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here is about how long what was heard waits to be written, or an engine that is
    scraped to be listened to."""
    monkeypatch.setattr(keeper, "DRAIN_SECONDS", 0.2)
    monkeypatch.setattr(worker, "REFRESH_SECONDS", 0.2)


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Publisher]:
    made = Publisher(ipc(tmp_path, "e"), ipc(tmp_path, "r"), topic=b"kv-events")
    yield made
    made.close()


def settings(folder: Path, **entry: object) -> Settings:
    usual = {
        "endpoint": ipc(folder, "e"), "replay_endpoint": ipc(folder, "r"), "replica": "live",
        "model": "llama",
    }  # fmt: skip
    return Settings.model_validate({
        "server": {"listen": "127.0.0.1:0"}, "store": {"directory": folder / "s"},
        "events": [{**usual, **entry}],
    })  # fmt: skip


def row(url: str, question: str) -> dict[str, Any]:
    rows = answer(url, question)
    return rows[0] if rows else {}


def canary(hash_: int) -> dict[str, object]:
    return stored(hash_, hash_ + 1, first_token=CANARY_TOKEN, salt=CANARY_SALT)


def test_from_a_publisher_to_the_questions(tmp_path: Path, publisher: Publisher) -> None:
    now = time.time()
    publisher.publish(batch(now, stored(1, 2, 3)))  # before the exporter starts
    with running(settings(tmp_path)) as exporter:
        wait_until(lambda: row(exporter.url, "block_streams").get("batches") == 1, "the past")
        publisher.publish(batch(now, removed(2)))
        publisher.publish(batch(now, CLEARED, stored(7)), lost=True)
        publisher.publish(batch(now, stored(8, parent=7)))
        wait_until(lambda: row(exporter.url, "block_streams")["batches"] == 4, "all batches")
        stream, reset = (row(exporter.url, name) for name in ("block_streams", "block_resets"))
        evictions = row(exporter.url, "evictions")
        page = httpx.get(f"{exporter.url}/metrics", timeout=PATIENCE_SECONDS).text
        state = row(exporter.url, "store_state")
    assert (stream["source"], stream["replica"], stream["model"]) == ("events", "live", "llama")
    assert (stream["connected"], stream["uncertain"], stream["missed_batches"]) == (True, None, 0)
    assert (reset["reason"], reset["blocks"]) == ("clear", 2)
    told = [evictions[f"{name}_blocks"] for name in ("stored", "evicted", "reset")]
    assert told == [5, 1, 2]
    assert 'prefixscope_event_stream_up{source="events",replica="live"} 1' in page
    assert state["events_last_ts"] is not None


def counted(url: str) -> dict[str, object]:
    """What was told until now, from the questions alone."""
    evictions, stream = row(url, "evictions"), row(url, "block_streams")
    resets = [(reset["reason"], reset["blocks"]) for reset in answer(url, "block_resets")]
    names = ("stored", "evicted", "demoted", "promoted", "reset")
    return {
        "blocks": [evictions[f"{name}_blocks"] for name in names], "resets": resets,
        "batches": stream["batches"], "first_heard": stream["first_heard"],
    }  # fmt: skip


def test_restarts_of_the_exporter_count_nothing_again(tmp_path: Path, publisher: Publisher) -> None:
    """Every start replays all of the past. Then only what is new is counted: what was published
    while the exporter was away, and what comes live."""
    now = time.time()
    for events in ([stored(1, 2, 3)], [removed(2)], [CLEARED, stored(7, 8)], [removed(7)]):
        publisher.publish(batch(now, *events))
    told: list[dict[str, object]] = []
    for batches in (4, 7, 10):
        with running(settings(tmp_path)) as exporter:
            if told:
                publisher.publish(batch(time.time(), stored(20 + batches)))
            heard = lambda: row(exporter.url, "block_streams").get("batches") == batches  # noqa: E731, B023
            wait_until(heard, "all batches")
            told.append(counted(exporter.url))
        publisher.publish(batch(time.time(), stored(40 + batches), removed(8)))  # nobody listens
        publisher.publish(batch(time.time(), stored(8)))
    first, second, third = told
    assert (first["blocks"], first["resets"]) == ([5, 2, 0, 0, 2], [("clear", 2)])
    assert second["blocks"] == [5 + 3, 2 + 1, 0, 0, 2]
    assert third["blocks"] == [5 + 6, 2 + 2, 0, 0, 2]
    assert second["resets"] == third["resets"] == first["resets"]
    assert second["first_heard"] == third["first_heard"] == first["first_heard"]


def test_a_publisher_named_by_its_topic_is_counted_once(tmp_path: Path) -> None:
    """Three blocks are past and three come live: the address never has a name of its own."""
    made = Publisher(ipc(tmp_path, "e"), ipc(tmp_path, "r"), topic=b"kv@pod-1@llama")
    try:
        made.publish(batch(time.time(), stored(1, 2, 3)))
        with running(settings(tmp_path, replica=None, model=None)) as exporter:
            wait_until(lambda: row(exporter.url, "block_streams").get("batches") == 1, "the past")
            made.publish(batch(time.time(), stored(4, 5, 6)))
            wait_until(lambda: row(exporter.url, "block_streams")["batches"] == 2, "the present")
            streams = answer(exporter.url, "block_streams")
            evictions = row(exporter.url, "evictions")
    finally:
        made.close()
    assert [(stream["replica"], stream["model"]) for stream in streams] == [("pod-1", "llama")]
    assert evictions["stored_blocks"] == 6


def test_nothing_secret_is_written(
    tmp_path: Path, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    """Tokens, salts and texts go through live, replayed, broken and unreadable messages."""
    caplog.set_level(logging.DEBUG)
    folder = tmp_path / "x"
    folder.mkdir()
    told = settings(folder, endpoint=ipc(tmp_path, "e"), replay_endpoint=ipc(tmp_path, "r"))
    text = CANARY_PROMPT.encode()
    now = time.time()
    publisher.publish(batch(now, canary(1)))
    with running(told) as exporter:
        wait_until(lambda: row(exporter.url, "block_streams").get("batches") == 1, "the past")
        publisher.publish(batch(now, canary(3)), lost=True)
        publisher.publish(batch(now, canary(5), removed(1, 2)))
        publisher.publish(b"\xc1" + text)  # no msgpack
        publisher.publish(batch(now, {"type": "BlockStored", "block_hashes": CANARY_PROMPT}))
        publisher.send(b"kv-events", b"\x01", text)
        publisher.send(b"kv-events", text)
        publisher.publish(batch(now, canary(7)))
        # Two that cannot be read, and two that are of another shape.
        told_of = lambda: row(exporter.url, "block_streams")  # noqa: E731
        wait_until(lambda: told_of()["unreadable_batches"] == 4, "the faults")
        wait_until(lambda: told_of()["batches"] == 6, "all batches")
        body = {
            "id": "r-1", "ts": "2026-11-30T12:00:00Z", "prompt": CANARY_PROMPT,
            "prompt_tokens": 48, "cached_tokens": 16,
        }  # fmt: skip
        httpx.post(f"{exporter.url}/v1/requests", json=body, timeout=PATIENCE_SECONDS)
        pages = "".join(
            httpx.get(exporter.url + path, timeout=PATIENCE_SECONDS).text
            for path in ("/metrics", "/now", "/api/v1/query/block_streams",
                         "/api/v1/query/resident_prefixes")
        )  # fmt: skip
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert any(file.name == "prefixscope.duckdb" for file in files)
    haystacks = [*((str(file), file.read_bytes()) for file in files),
                 ("the log", caplog.text.encode()), ("the pages", pages.encode())]  # fmt: skip
    for where, data in haystacks:
        assert [name for name, secret in secrets() if secret in data] == [], where


def secrets() -> list[tuple[str, bytes]]:
    """Every way a token could be written; two in a row, since one number may occur by chance."""
    first, second = CANARY_TOKEN, CANARY_TOKEN + 1
    return [
        ("salt", CANARY_SALT.encode()), ("prompt", CANARY_PROMPT.encode()),
        ("text", f"{first}, {second}".encode()), ("json", json.dumps([first, second]).encode()),
        ("msgpack", b"\xce" + struct.pack(">I", first) + b"\xce" + struct.pack(">I", second)),
        ("int32", struct.pack("<2I", first, second)), ("int64", struct.pack("<2Q", first, second)),
    ]  # fmt: skip


def test_the_secrets_would_be_found() -> None:
    """The search above is worth something: it finds them where they are."""
    payload = batch(1.0, canary(1))
    assert [name for name, secret in secrets() if secret in payload] == ["salt", "msgpack"]


def test_an_open_address_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = settings(tmp_path, endpoint="tcp://192.0.2.7:5557", replay_endpoint=None)
    with running(told):
        wait_until(lambda: "can be reached from other machines" in caplog.text, "the warning")
    (record,) = [r for r in caplog.records if "can be reached" in r.getMessage()]
    assert record.levelno == logging.WARNING
    assert "tcp://192.0.2.7:5557" in record.getMessage()


def test_every_scraped_engine_is_heard_under_its_name(tmp_path: Path) -> None:
    """`{host}` follows the scraped targets: no address is written twice."""
    port = free_port(2)
    made = Publisher(f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{port + 1}")
    told = Settings.model_validate({
        "server": {"listen": "127.0.0.1:0"}, "store": {"directory": tmp_path / "s"},
        "scrape": {"targets": {"static": [{"url": "http://127.0.0.1:9/metrics", "replica": "w"}]}},
        "events": [{"endpoint": f"tcp://{{host}}:{port}",
                    "replay_endpoint": f"tcp://{{host}}:{port + 1}", "source": "fleet"}],
    })  # fmt: skip
    try:
        made.publish(batch(time.time(), stored(1, 2)))
        with running(told) as exporter:
            wait_until(lambda: row(exporter.url, "block_streams").get("batches") == 1, "the past")
            stream = row(exporter.url, "block_streams")
    finally:
        made.close()
    assert (stream["source"], stream["replica"]) == ("fleet", "w")
