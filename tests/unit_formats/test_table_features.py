"""What a format's table can say, on a format made up here: no real one uses all of it."""

import io
import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import BinaryIO

from exporter.sources.formats.mapping import (
    LogFormat,
    Row,
    case,
    flag,
    hashes,
    seconds,
    status,
    text,
    time,
    tokens,
    unless,
)
from exporter.sources.formats.reshape import as_lines, one_object
from exporter.sources.lines import LineReader
from exporter.store.append import Stream, append
from exporter.store.store import Store
from tests.log_path import by_id, rejects, requests, utc


def both(line: str) -> Iterable[Row]:
    """A row, and one more for each of its children."""
    row = one_object(line)
    children = row.pop("children", [])
    assert isinstance(children, list)
    yield row
    yield from children


MADE_UP = LogFormat(
    name="made_up",
    title="made up",
    versions="none",
    basis="inclusive",
    signature=(("made_up",),),
    fields=(
        time("ts", "at"),
        time("ended", "ended"),
        text("request_id", "id"),
        text("skip", cases=(case("warmup", "phase", "warm", "it's warm"),)),
        text("note", cases=(case("retried", "tries", "2", "3"),)),
        text("guessed", cases=(case("yes", "source", "estimate"),)),
        text("adapter", cases=(unless("other", "lora", "", "none"),)),
        text("model", "model", without="maker"),
        tokens("attempt", "retries + 1"),
        flag("stream", cases=(case("true", "mode", "sse"), case("false", "mode", "plain"))),
        text("ineligible_reason", cases=(case("response_cache", "hit", "true", "Hit"),)),
        status("code", cases=(case("cancelled", "gone", "true"),)),
        tokens("prompt_tokens", '"gen.prompt"', "usage.in + usage.more"),
        tokens("cached_tokens", 'usage."gen.cached"'),
        seconds("e2e_seconds", "clock.end - clock.begin"),
    ),
    constants=(("block_size", "16"), ("ttft_point", "client")),
    reshape=both,
)


def take(store: Store, log_format: LogFormat, rows: Iterable[object]) -> None:
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    stream = Stream("made", log_format, fingerprint="f")
    for lines in LineReader(io.BytesIO(data)):
        append(store, lines, stream)


BASE = {"at": "2026-03-02T12:00:00Z", "gen.prompt": 100, "usage": {"gen.cached": 32}}


def test_paths_cases_and_constants_are_read(store: Store) -> None:
    take(store, MADE_UP, [
        {**BASE, "id": "plain", "code": "500"},
        {**BASE, "id": "gone", "gone": True, "code": "500", "tries": 2},
        {**BASE, "id": "hit", "hit": "Hit", "clock": {"begin": 10.5, "end": 12.0}},
        {"id": "sum", "at": BASE["at"], "usage": {"in": 40, "more": 2}},
    ])  # fmt: skip
    stored = by_id(store)
    plain = stored["plain"]
    assert (plain["prompt_tokens"], plain["cached_tokens"], plain["status"]) == (100, 32, "error")
    assert (plain["block_size"], plain["flags"]) == (16, None)
    assert (stored["gone"]["status"], stored["gone"]["flags"]) == ("cancelled", ["retried"])
    assert stored["hit"]["ineligible_reason"] == "response_cache"
    assert stored["hit"]["e2e_seconds"] == 1.5
    assert (stored["sum"]["prompt_tokens"], stored["sum"]["cached_tokens"]) == (42, None)


def test_words_literals_and_fronts_are_read(store: Store) -> None:
    take(store, MADE_UP, [
        {**BASE, "id": "a", "lora": "mine", "maker": "openai", "model": "openai/Qwen/Qwen3",
         "mode": "sse"},
        {**BASE, "id": "b", "lora": "none", "maker": "azure", "model": "openai/gpt",
         "mode": "plain"},
        {**BASE, "id": "c", "lora": "", "model": "gpt", "retries": 1, "mode": "else"},
    ])  # fmt: skip
    stored = by_id(store)
    names = ("adapter", "model", "stream", "attempt")
    assert [tuple(stored[i][name] for name in names) for i in "abc"] == [
        ("other", "Qwen/Qwen3", True, 1),
        (None, "openai/gpt", False, 1),
        (None, "gpt", None, 2),
    ]


def test_what_a_log_guessed_or_replayed_is_no_count(store: Store) -> None:
    take(store, MADE_UP, [
        {**BASE, "id": "guess", "source": "estimate"}, {**BASE, "id": "replay", "hit": "Hit"},
        {**BASE, "id": "count"},
    ])  # fmt: skip
    stored = by_id(store)
    counts = {i: (row["prompt_tokens"], row["cached_tokens"]) for i, row in stored.items()}
    assert counts == {"guess": (None, None), "replay": (None, None), "count": (100, 32)}
    assert stored["guess"]["flags"] == ["usage_guessed"]
    assert stored["replay"]["flags"] == ["response_cache_hit"]


def test_an_exclusive_format_is_disproved_by_its_total(store: Store) -> None:
    exclusive = replace(
        MADE_UP,
        basis="exclusive",
        fields=(*MADE_UP.fields, tokens("total_tokens", "total"), tokens("output_tokens", "out")),
    )
    take(store, exclusive, [
        {**BASE, "id": "beside", "total": 142, "out": 10},
        {**BASE, "id": "inside", "total": 110, "out": 10},
        {**BASE, "id": "untold"},
        {**BASE, "id": "nothing", "usage": {}, "total": 110, "out": 10},
    ])  # fmt: skip
    read = {i: (row["prompt_tokens"], row["cached_tokens"], row["prompt_basis"])
            for i, row in by_id(store).items()}  # fmt: skip
    assert read == {
        "beside": (132, 32, "exclusive"),
        "inside": (100, 32, "inclusive"),
        "untold": (132, 32, "exclusive"),
        "nothing": (100, None, "unknown"),
    }


def test_rows_that_are_none_of_ours_are_set_aside_by_reason(store: Store) -> None:
    take(store, MADE_UP, [{**BASE, "id": "a", "phase": "it's warm"}, {**BASE, "id": "b"}])
    assert set(by_id(store)) == {"b"}
    assert rejects(store) == [(1, "warmup")]


def test_the_start_follows_from_the_end(store: Store) -> None:
    row = {**BASE, "id": "a", "ended": "2026-03-02T12:00:05.310Z", "clock": {"begin": 1, "end": 6}}
    del row["at"]
    take(store, MADE_UP, [row])
    assert by_id(store)["a"]["ts"] == utc("2026-03-02 12:00:00.310")
    assert by_id(store)["a"]["flags"] is None


def test_a_line_may_hold_several_rows_and_a_broken_one_is_rejected(store: Store) -> None:
    family = {**BASE, "id": "parent", "children": [{**BASE, "id": "x"}, {**BASE, "id": "y"}]}
    take(store, MADE_UP, [family, [1], {**BASE, "id": "last"}])
    assert set(by_id(store)) == {"parent", "x", "y", "last"}
    positions = sorted(row["position"] for row in requests(store))
    assert positions[:3] == [0, 1, 2]
    assert rejects(store) == [(2, "not_an_object")]


TRACE = LogFormat(
    name="made_up_trace",
    title="made up",
    versions="none",
    basis="inclusive",
    signature=(("hash_ids",),),
    fields=(time("ts", "t"), tokens("prompt_tokens", "n"), hashes("block_hashes", "hash_ids")),
    constants=(("hash_scope", "trace"), ("block_size", "64")),
    relative_time="milliseconds",
)


def test_relative_times_begin_when_the_input_was_taken_in(store: Store) -> None:
    rows = [{"t": 0, "n": 70, "hash_ids": [1, 2]}, {"t": 1500, "n": 9, "hash_ids": [3]}]
    take(store, TRACE, rows)
    take(store, TRACE, rows)  # once more, later: the same rows
    first, second = sorted(requests(store), key=lambda row: row["position"])
    assert second["ts"] - first["ts"] == timedelta(milliseconds=1500)
    assert first["flags"] == ["relative_time"]
    assert (first["block_hashes"], first["hash_scope"], first["block_size"]) == (
        [1, 2],
        "trace",
        64,
    )


def test_a_document_becomes_lines() -> None:
    def unpack(stream: BinaryIO) -> Iterable[Row]:
        return [{"n": value} for value in json.load(stream)["values"]]

    stream = as_lines(unpack(io.BytesIO(b'{"values": [1,\n 2]}')))
    assert stream.read() == b'{"n": 1}\n{"n": 2}\n'
