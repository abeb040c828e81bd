"""One path in: a file, an HTTP batch and a followed log make the same rows of the same input."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from exporter.sources.formats import format_named
from exporter.sources.log_settings import LogSettings
from exporter.sources.tail import Tailer
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
Way = Callable[[Store, bytes, Path, str], None]


def as_file(store: Store, data: bytes, folder: Path, format: str) -> None:
    load(store, data, "as_file", format=format)


def over_http(store: Store, data: bytes, folder: Path, format: str) -> None:
    load(store, data, "over_http", format=format, origin="http")


def followed(store: Store, data: bytes, folder: Path, format: str) -> None:
    """Written in two halves, the first of them torn inside a line."""
    log = folder / "followed.jsonl"
    follower = Tailer(store, LogSettings(source="followed", path=str(log), format=format))
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
    if "no_time" in flags or "relative_time" in flags:
        row["ts"] = None
    made_up = row["request_id"] is None or row["request_id"].startswith("line:")
    return row | {"flags": flags, "request_id": None if made_up else row["request_id"]}


def compare(
    store: Store, data: bytes, folder: Path, ways: Sequence[Way] = WAYS, format: str = "auto"
) -> int:
    rows = []
    for way in ways:
        way(store, data, folder, format)
        found = requests(store, way.__name__)
        rows.append(sorted((comparable(row) for row in found), key=repr))
    file = rows[0]
    assert all(other == file for other in rows)
    refused: dict[str, list[object]] = {}
    for source, *what in store.cursor().execute(
        "SELECT source, line_number, reason, excerpt FROM rejects ORDER BY ALL"
    ).fetchall():  # fmt: skip
        refused.setdefault(source, []).append(what)
    assert len(refused) in (0, len(ways))
    assert all(what == refused["as_file"] for what in refused.values())
    return len(file)


def input_of(case: Answer) -> bytes:
    """The input of a case; where that is rows, each of them without its id too, and a bad one."""
    if "input" in case:
        return str(case["input"]).encode()
    rows = [entry.get("row", entry.get("line")) for entry in case["rows"]]
    without_ids = [
        {k: v for k, v in row.items() if k not in ("id", "request_id")}
        for row in rows
        if isinstance(row, dict)
    ]
    return ndjson([*rows, *without_ids, "broken"])


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_examples_make_the_same_rows(store: Store, tmp_path: Path, file: Path) -> None:
    case = yaml.safe_load(file.read_text(encoding="utf-8"))
    entries = [*case.get("rows", ()), *case.get("requests", ())]
    taken = sum("reason" not in entry for entry in entries)
    # What is read as a whole cannot be followed while it grows.
    log_format = format_named(case["format"])
    ways = [as_file, over_http] if log_format.documents else WAYS
    assert compare(store, input_of(case), tmp_path, ways, log_format.name) >= taken


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
