"""`export`: a trace without text that says of caches what the rows it was made of say."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporter.store.store import Store
from prefixscope.traces.file import read_trace
from tests.log_path import CAPTURES, NOON, SHARED, SMALL, load, ndjson, needs_captures

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out
Row = dict[str, Any]

MOONCAKE = SHARED / "traces" / "mooncake-fast25" / "conversation_trace.jsonl.gz"
VLLM = CAPTURES / "vllm-0.32.0" / "main" / "requests.jsonl"
# What a line may have, as the loaders of such traces know it.
FIELDS = {"timestamp", "input_length", "output_length", "hash_ids"}

needs_traces = pytest.mark.skipif(
    not MOONCAKE.exists(), reason="public traces are not beside the project"
)


def exported(cli: Cli, *arguments: object, out: str = "trace.jsonl") -> list[Row]:
    done = cli("export", *arguments, "--out", out)
    assert done.status == 0, done.err
    assert done.out == ""
    data = Path(out).read_bytes()
    text = (gzip.decompress(data) if out.endswith(".gz") else data).decode()
    return [json.loads(line) for line in text.splitlines()]


def explained(cli: Cli, *arguments: object) -> Row:
    done = cli("attribute", *arguments, "--output", "json")
    assert done.status == 0, done.err
    found: Row = json.loads(done.out)
    return {name: found[name] for name in ("requests", "prompt_tokens", "cached_tokens", "causes")}


def check_convention(rows: list[Row], block_tokens: int) -> None:
    """What loaders of such traces check: fields, order of time, number and numbers of ids."""
    assert all(set(row) <= FIELDS for row in rows)
    assert all(type(row["timestamp"]) is int for row in rows)
    times = [row["timestamp"] for row in rows]
    assert times[0] == 0
    assert times == sorted(times)
    seen = -1
    for row in rows:
        assert len(row["hash_ids"]) == -(-row["input_length"] // block_tokens)
        for number in row["hash_ids"]:
            assert 0 <= number <= seen + 1, "numbered from 0 in order of appearance"
            seen = max(seen, number)


def whole(cli: Cli, tmp_path: Path, rows: list[Row], *arguments: object) -> list[Row]:
    log = tmp_path / "log.jsonl"
    log.write_bytes(ndjson(rows))
    return exported(cli, log, "--force", *arguments)


def request(name: str, second: int, ids: list[int], **more: object) -> Row:
    return {"request_id": name, "ts": f"2026-03-02T12:00:{second:02d}Z", "model": "m",
            "prompt_tokens": len(ids), "output_tokens": 5, "token_ids": ids, **more}  # fmt: skip


@needs_traces
def test_a_public_trace_comes_back_as_it_was(cli: Cli) -> None:
    rows = exported(cli, MOONCAKE, out="trace.jsonl.gz")
    given = [json.loads(line) for line in gzip.decompress(MOONCAKE.read_bytes()).splitlines()]
    check_convention(rows, 512)
    # Its own ids are numbered in order of appearance too; so all figures are the same.
    assert rows == given


@needs_captures
@pytest.mark.parametrize("block_tokens", [16, 32, 512])
def test_a_capture_comes_back_as_its_token_ids_say(cli: Cli, block_tokens: int) -> None:
    """Unlimited, whole blocks: what an earlier prompt of the same salt began with, by raw ids."""
    given = [json.loads(line) for line in VLLM.read_text().splitlines()]
    rows = exported(cli, VLLM, "--block-tokens", block_tokens)
    check_convention(rows, block_tokens)
    given.sort(key=lambda row: row["sent_unix"])
    assert [row["input_length"] for row in rows] == [len(row["prompt_token_ids"]) for row in given]
    first = given[0]["sent_unix"]
    assert [row["timestamp"] for row in rows] == [
        pytest.approx((row["sent_unix"] - first) * 1000, abs=0.51) for row in given
    ]
    seen: set[tuple[object, tuple[int, ...]]] = set()
    hits = 0
    for row in given:
        ids, salt = row["prompt_token_ids"], row["cache_salt"]
        ends = range(block_tokens, len(ids), block_tokens)
        for end in ends:
            if (salt, tuple(ids[:end])) not in seen:
                break
            hits += block_tokens
        seen |= {
            (salt, tuple(ids[:end])) for end in range(block_tokens, len(ids) + 1, block_tokens)
        }
    found = explained(cli, "trace.jsonl", "--rule", "full")
    assert found["cached_tokens"] == hits
    assert found["prompt_tokens"] == sum(len(row["prompt_token_ids"]) for row in given)


@pytest.mark.parametrize("block_tokens", [16, 48])
def test_the_last_block_is_the_same_only_to_the_very_last_token(
    cli: Cli, tmp_path: Path, block_tokens: int
) -> None:
    """70 tokens: of the blocks of 16 the last has 6, which no hash of a whole block names."""
    ids = [token * 37 % 101 for token in range(70)]
    rows = whole(cli, tmp_path, [
        request("a", 0, ids), request("same", 1, ids), request("other-end", 2, [*ids[:69], 5]),
        request("longer", 3, [*ids, 5]), request("salted", 4, ids, cache_salt="s"),
        request("model", 5, ids, model="n"), request("short", 6, ids[:9]),
        request("short again", 7, ids[:9]), request("short salted", 8, ids[:9], cache_salt="s"),
    ], "--block-tokens", block_tokens)  # fmt: skip
    check_convention(rows, block_tokens)
    names = [row["hash_ids"] for row in rows]
    assert names[0] == names[1]
    for other in (2, 3):
        assert names[other][:-1] == names[0][:-1]
        assert names[other][-1] != names[0][-1]
    assert not {*names[0]} & {*names[4]}
    assert not {*names[0]} & {*names[5]}
    assert names[6] == names[7] != names[8]


def test_t95_a_row_has_as_many_ids_as_its_length_has_blocks(cli: Cli, tmp_path: Path) -> None:
    trace = tmp_path / "odd.jsonl"
    trace.write_bytes(ndjson([
        {"timestamp": 0, "input_length": 20, "output_length": 1, "hash_ids": [0, 1]},
        {"timestamp": 0, "input_length": 1200, "output_length": 1, "hash_ids": [0, 1, 2]},
        {"timestamp": 1, "input_length": 1200, "output_length": 1, "hash_ids": [0, 1, 2]},
    ]))  # fmt: skip
    done = cli("export", trace, "--out", "fixed.jsonl")
    assert done.status == 0
    assert "1 hash_count" in done.err
    assert "1 block has no name (1 request has no chain)" in done.err
    rows = [json.loads(line) for line in Path("fixed.jsonl").read_text().splitlines()]
    check_convention(rows, 512)
    assert [row["hash_ids"] for row in rows] == [[0], [1, 2, 3], [1, 2, 3]]
    # The second of the long ones hits its two whole blocks; the odd one nothing.
    assert explained(cli, trace)["cached_tokens"] == 1024


def test_t96_times_are_whole_milliseconds_from_the_first_row(cli: Cli, tmp_path: Path) -> None:
    ids = list(range(32))
    log = tmp_path / "late.jsonl"
    log.write_bytes(ndjson([
        request("b", 1, ids) | {"ts": "2026-03-02T12:00:01.4004Z"},
        request("a", 0, ids) | {"ts": "2026-03-02T12:00:01.0Z"},
        request("c", 1, ids) | {"ts": "2026-03-02T12:00:01.2Z"},
    ]))  # fmt: skip
    assert [row["timestamp"] for row in exported(cli, log)] == [0, 200, 400]
    assert "in 0.4 s (times read as milliseconds)" in read_trace([Path("trace.jsonl")]).words()


def test_t97_a_trace_of_other_blocks_is_fitted_or_refused(cli: Cli, tmp_path: Path) -> None:
    def write(*ids: list[int]) -> Path:
        trace = tmp_path / "trace.jsonl"
        rows = [{"timestamp": n, "input_length": 1025, "output_length": 1, "hash_ids": each}
                for n, each in enumerate(ids)]  # fmt: skip
        trace.write_bytes(ndjson(rows))
        return trace

    assert explained(cli, write([7, 8, 9], [7, 8, 9]))["cached_tokens"] == 1024
    # 17 ids for 1,025 tokens are blocks of 64, and no other power of two.
    assert explained(cli, write([*range(17)], [*range(9), *range(20, 28)]))["cached_tokens"] == 576
    done = cli("attribute", write([7, 8, 9, 10], [7, 8, 9, 10]))
    assert done.status == 1
    assert "2 of 2 rows have another number of hash ids than their length has blocks" in done.err
    done = cli("export", write([7, 8, 9]), "--out", "new.jsonl", "--block-tokens", 64)
    assert done.status == 1
    assert "rows name blocks of 512 tokens" in done.err
    assert "--block-tokens a multiple of 512" in done.err
    assert not Path("new.jsonl").exists()


def test_other_blocks_are_said_because_the_file_cannot_say_it(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(ndjson([request("a", 0, list(range(40)))]))
    done = cli("export", log, "--out", "small.jsonl", "--block-tokens", 16)
    assert "most tools assume 512: tell them 16" in done.err
    assert "3 blocks of 16 tokens" in done.err


def test_labels_stand_apart_as_numbers(cli: Cli, tmp_path: Path) -> None:
    ids = list(range(32))
    log = tmp_path / "log.jsonl"
    log.write_bytes(ndjson([
        request("a", 0, ids, session="Zebra", template="shop", tenant="acme"),
        request("b", 1, ids, template="desk", tenant="acme"),
        request("c", 2, ids, session="Quartz", template="shop"),
    ]))  # fmt: skip
    done = cli("export", log, "--out", "trace.jsonl", "--labels", "labels.jsonl")
    assert done.status == 0, done.err
    assert [json.loads(line) for line in Path("labels.jsonl").read_text().splitlines()] == [
        {"session": 0, "model": 0, "template": 0, "tenant": 0},
        {"model": 0, "template": 1, "tenant": 0},
        {"session": 1, "model": 0, "template": 0},
    ]
    written = Path("trace.jsonl").read_text() + Path("labels.jsonl").read_text()
    assert not any(name in written for name in ("Zebra", "shop", "acme"))


def test_nothing_is_overwritten_and_nothing_half_written(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(ndjson([request("a", 0, list(range(32)))]))
    Path("there.jsonl").write_text("mine")
    done = cli("export", log, "--out", "there.jsonl")
    assert (done.status, Path("there.jsonl").read_text()) == (1, "mine")
    assert "there.jsonl is there already" in done.err
    assert "--force" in done.err
    assert cli("export", log, "--out", "there.jsonl", "--force").status == 0
    assert json.loads(Path("there.jsonl").read_text())["input_length"] == 32
    done = cli("export", log, "--out", "no-such-folder/trace.jsonl")
    assert done.status == 1
    assert "no-such-folder/trace.jsonl: cannot be written" in done.err


def test_a_store_is_exported_through_a_window_to_standard_output(cli: Cli, tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", SMALL)
    ids = list(range(32))
    rows = [request(name, second, ids) for name, second in (("a", 0), ("b", 20), ("c", 40))]
    rows += [request("hit", 30, ids, ineligible_reason="response_cache"),
             request("silent", 50, ids) | {"output_tokens": None}]  # fmt: skip
    load(store, rows, "log")
    store.close()
    done = cli("export", "--store", tmp_path / "store", "--since", "2026-03-02T12:00:10Z")
    assert done.status == 0, done.err
    assert [json.loads(line) for line in done.out.splitlines()] == [
        {"timestamp": 0, "input_length": 32, "output_length": 5, "hash_ids": [0]},
        {"timestamp": 20_000, "input_length": 32, "output_length": 5, "hash_ids": [0]},
        {"timestamp": 30_000, "input_length": 32, "hash_ids": [0]},
    ]
    assert "1 request tells no generated tokens: output_length is left out" in done.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--store", "here", "log.jsonl"), "not both"),
        (("--format", "nothing", "log.jsonl"), "unknown --format"),
        (("--since", "gestern", "log.jsonl"), "gestern"),
        (("--tokenizer", "/x/tokenizer.json"), "cannot be read"),
        (("--chat-template", "m=/x.jinja", "log.jsonl"), "--chat-template for m"),
    ],
)
def test_wrong_usage_says_what_is_wrong(cli: Cli, arguments: tuple[str, ...], says: str) -> None:
    done = cli("export", *arguments)
    assert done.status in (1, 2)
    assert says in done.err


def test_texts_that_begin_alike_have_blocks_that_begin_alike(cli: Cli, tmp_path: Path) -> None:
    """Known by their text only, and reported with different tokens for the same bytes."""
    shared = "the policy of the assistant " * 40
    rows = whole(cli, tmp_path, [
        {"request_id": name, "ts": NOON, "model": "m", "prompt_tokens": tokens, "output_tokens": 1,
         "prompt_text": shared + end}
        for name, tokens, end in (("a", 300, "x" * 80), ("b", 330, "y" * 80), ("c", 300, "x" * 80))
    ], "--block-tokens", 64)  # fmt: skip
    check_convention(rows, 64)
    first, second, again = (row["hash_ids"] for row in rows)
    # 1,120 of 1,200 bytes are shared: some four of five blocks.
    assert first[:4] == second[:4]
    assert first[-1] != second[-1]
    assert first == again
