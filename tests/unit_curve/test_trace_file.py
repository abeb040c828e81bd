"""Traces of hash ids as they come: what is read, and what is refused with a remedy."""

import gzip
import json
import os
from pathlib import Path

import pytest

from exporter.errors import PrefixscopeError
from prefixscope.traces.file import is_trace, read_trace


def written(folder: Path, *rows: object) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def row(timestamp: float, length: int, ids: list[int], **more: object) -> dict[str, object]:
    return {"timestamp": timestamp, "input_length": length, "hash_ids": ids} | more


def refusal(path: Path, block_tokens: int | None = None) -> str:
    with pytest.raises(PrefixscopeError) as refused:
        read_trace([path], block_tokens)
    return str(refused.value)


def test_t95_ids_that_do_not_fit_the_length_are_refused_by_row(tmp_path: Path) -> None:
    path = written(tmp_path, row(0, 1200, [0, 1, 2]), row(0, 20, [0, 1]))
    said = refusal(path, 512)
    assert f"{path}, row 2: 20 tokens are 1 block of 512 tokens, and it has 2 ids" in said
    assert "--block-tokens" in said


def test_t96_the_unit_of_time_is_stated_with_the_span(tmp_path: Path) -> None:
    path = written(tmp_path, *(row(moment, 512, [1]) for moment in (0, 200, 400)))
    assert "3 requests in 0.4 s (times read as milliseconds)" in read_trace([path]).words()
    path = written(tmp_path, *(row(moment, 512, [1]) for moment in (0.0, 0.2, 0.4)))
    assert "0.4 s (times read as seconds)" in read_trace([path], seconds_each=1.0).words()


def test_t97_another_block_size_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, row(0, 1025, [7, 8, 9]), row(1, 1025, [7, 8, 9]))
    assert "the rows fit blocks of 512 tokens: give --block-tokens 512" in refusal(path, 64)
    assert read_trace([path]).prompts.block_tokens == 512


def test_the_block_is_found_where_it_is_not_the_usual_one(tmp_path: Path) -> None:
    path = written(tmp_path, row(0, 100, list(range(7))), row(1, 33, [0, 1, 9]))
    assert read_trace([path]).prompts.block_tokens == 16


def test_rows_out_of_order_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, row(5, 512, [1]), row(9, 512, [2]), row(7, 512, [3]), row(8, 512, [4]))
    said = refusal(path)
    assert (
        f"{path}, row 3: its timestamp is before that of the row above, as in 1 of 4 rows" in said
    )
    assert "sort" in said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("not json", "line 2"),
        ('{"timestamp": 1, "input_length": 5}', "missing required field `hash_ids`"),
        ('{"timestamp": 1, "input_length": "5", "hash_ids": [1]}', "$.input_length"),
        ('{"timestamp": 1, "input_length": 0, "hash_ids": []}', "input_length must be at least 1"),
        ('{"timestamp": 1, "input_length": 5, "hash_ids": [-1]}', "from 0 to 2^64 - 1"),
        ('{"timestamp": -1, "input_length": 5, "hash_ids": [1]}', "times must be 0 or more"),
        ('{"input_length": 5, "hash_ids": [1]}', "timestamp is missing"),
        ('{"input_length": 5, "hash_ids": [1], "session_id": "s", "delay": 9}', "a turn needs"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps(row(0, 5, [1])) + "\n" + line + "\n")
    message = refusal(path)
    assert f"{path}, line 2: " in message
    assert said in message


@pytest.mark.parametrize(
    "line",
    [
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        '{"id": "r1", "model": "m", "prompt_tokens": 5}',
        '{"timestamp": 1, "session_id": "s", "input": "hello"}',
        "[",
    ],
)
def test_another_log_is_told_apart_from_a_damaged_trace(tmp_path: Path, line: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f"{line}\n")
    assert refusal(path) == (
        f"{path}, line 1: not a trace of hash ids; where the log has token ids, prompts or hashes "
        f"(docs/chains.md), `prefixscope export {path} --out trace.jsonl` makes one"
    )
    path.write_text('{"timestamp": "x", "input_length": 5, "hash_ids": [1]}\n')
    assert "$.timestamp" in refusal(path), "a trace whose first line is wrong"


def test_times_of_another_unit_are_doubted(tmp_path: Path) -> None:
    path = written(tmp_path, row(0, 512, [1]), row(1e18, 512, [1]))
    assert "is the unit of its times another one (--unit)?" in refusal(path)


def test_an_answer_that_is_a_mistake_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, row(0, 512, [1], output_length=10**13))
    assert f"{path}, line 1: " in refusal(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none.jsonl")
    assert "Is a directory" in refusal(tmp_path)
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    assert "there are no requests in it" in refusal(empty)
    damaged = tmp_path / "damaged.jsonl.gz"
    damaged.write_bytes(gzip.compress(json.dumps(row(0, 5, [1])).encode() * 100)[:-20])
    assert "damaged" in refusal(damaged)


def test_a_trace_is_told_by_its_first_line_and_a_pipe_is_not_touched(tmp_path: Path) -> None:
    path = written(tmp_path, row(0, 5, [1]))
    assert is_trace(path)
    path.write_text('{"id": "r1", "prompt": "hello"}\n')
    assert not is_trace(path)
    assert is_trace(tmp_path / "none.jsonl"), "whoever reads it says that it is not there"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # opening it would wait for a writer
    assert is_trace(pipe)


def test_parts_of_one_trace_share_their_ids(tmp_path: Path) -> None:
    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl.gz"
    first.write_text(json.dumps(row(0, 600, [7, 2**64 - 1])) + "\n")
    second.write_bytes(gzip.compress(json.dumps(row(1000, 512, [7], output_length=3)).encode()))
    prompts = read_trace([first, second]).prompts
    assert prompts.blocks.tolist() == [0, 1, 0]
    assert (prompts.arrived.tolist(), prompts.output_tokens.tolist()) == ([0.0, 1.0], [0, 3])
