"""One path in: a file, an HTTP batch and a followed log make the same rows of the same input."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from exporter.sources.tail import LogSettings, Tailer
from exporter.store.store import Store
from tests.log_path import CAPTURES, Answer, load, ndjson, needs_captures, requests

CASES = sorted(Path(__file__).parents[1].joinpath("unit_formats", "cases").glob("*.yaml"))
LOGS = [
    CAPTURES / capture / "requests.jsonl"
    for capture in (
        "vllm-0.32.0/main",
        "vllm-0.32.0/defaults",
        "vllm-0.32.0-x2-sglang-router-0.3.2/cache-aware",
        "llama.cpp-b11434/mixed",
    )
]
Way = Callable[[Store, bytes, Path], None]


def as_file(store: Store, data: bytes, folder: Path) -> None:
    load(store, data, "as_file", format="auto")


def over_http(store: Store, data: bytes, folder: Path) -> None:
    load(store, data, "over_http", format="auto", origin="http")


def followed(store: Store, data: bytes, folder: Path) -> None:
    """Written in two halves, the first of them torn inside a line."""
    log = folder / "followed.jsonl"
    follower = Tailer(store, LogSettings(source="followed", path=str(log)))
    log.write_bytes(data[: len(data) // 2])
    follower.poll_once()
    with log.open("ab") as stream:
        stream.write(data[len(data) // 2 :])
    follower.poll_once()
    assert follower.errors == {}
    follower.stop()


WAYS: list[Way] = [as_file, over_http, followed]


def comparable(row: Answer) -> Answer:
    """Without what may differ: arrival, stream, and the id HTTP cannot make up for a row."""
    row = {k: v for k, v in row.items() if k not in ("arrived", "source", "batch", "position")}
    flags = [flag for flag in row["flags"] or [] if flag != "no_id"]
    if "no_time" in flags:
        row["ts"] = None
    made_up = row["request_id"] is None or row["request_id"].startswith("line:")
    return row | {"flags": flags, "request_id": None if made_up else row["request_id"]}


def compare(store: Store, data: bytes, folder: Path) -> int:
    rows = []
    for way in WAYS:
        way(store, data, folder)
        found = requests(store, way.__name__)
        rows.append(sorted((comparable(row) for row in found), key=repr))
    file, http, followed_log = rows
    assert file == http
    assert file == followed_log
    refused: dict[str, list[object]] = {}
    for source, *what in store.cursor().execute(
        "SELECT source, line_number, reason, excerpt FROM rejects ORDER BY ALL"
    ).fetchall():  # fmt: skip
        refused.setdefault(source, []).append(what)
    assert len(refused) in (0, 3)
    assert all(what == refused["as_file"] for what in refused.values())
    return len(file)


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_examples_make_the_same_rows(store: Store, tmp_path: Path, file: Path) -> None:
    case = yaml.safe_load(file.read_text(encoding="utf-8"))
    rows = [entry["row"] for entry in case["rows"]]
    without_ids = [{k: v for k, v in row.items() if k not in ("id", "request_id")} for row in rows]
    assert compare(store, ndjson([*rows, *without_ids, "broken"]), tmp_path) >= len(rows)


@needs_captures
@pytest.mark.parametrize("log", LOGS, ids=lambda log: f"{log.parts[-3]}-{log.parts[-2]}")
def test_captures_make_the_same_rows(store: Store, tmp_path: Path, log: Path) -> None:
    data = log.read_bytes()
    assert compare(store, data, tmp_path) == data.count(b"\n")


def test_without_an_id_a_file_knows_its_rows_again_and_http_says_it_cannot(store: Store) -> None:
    data = ndjson([{"ts": 1772452800 + n, "prompt_tokens": 10} for n in range(3)])
    assert load(store, data, "file").accepted == 3
    assert load(store, data, "file").duplicate == 3
    first = load(store, data, "http", origin="http")
    again = load(store, data, "http", origin="http")
    assert (first.accepted, again.accepted, again.duplicate) == (3, 3, 0)
    assert first.flags == {"no_id": 3}
