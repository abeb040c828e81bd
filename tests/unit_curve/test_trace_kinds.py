"""Public traces that are not plain Mooncake: what their rows come to, and what is refused."""

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.errors import PrefixscopeError
from prefixscope.traces.columns import Columns, added_up
from prefixscope.traces.file import TraceFile, read_trace
from replay.recorded import Labels
from replay.routers import Ring
from replay.traffic import flat
from tests.log_path import SHARED

TRACES = SHARED / "traces"
needs_traces = pytest.mark.skipif(
    not TRACES.is_dir(), reason="the public traces are not beside the project"
)

Rows = list[dict[str, Any]]


def written(folder: Path, *rows: object, name: str = "trace.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def refusal(*paths: Path, block_tokens: int | None = None, labels: Path | None = None) -> str:
    with pytest.raises(PrefixscopeError) as refused:
        read_trace(list(paths), block_tokens, labels=labels)
    return str(refused.value)


def chains_of(trace: TraceFile) -> list[list[int]]:
    starts = trace.prompts.starts.tolist()
    blocks = trace.prompts.blocks.tolist()
    return [blocks[begin:end] for begin, end in pairwise(starts)]


def sessions_of(trace: TraceFile) -> list[int]:
    """Numbers from 0 in the order in which sessions appear."""
    sessions = trace.recorded.sessions
    assert sessions is not None
    known: dict[int, int] = {}
    return [known.setdefault(session, len(known)) for session in sessions.tolist()]


def turn(session: str, length: int, ids: list[int], **more: object) -> dict[str, object]:
    return {"session_id": session, "input_length": length, "hash_ids": ids, **more}


def test_turns_are_added_up_and_stand_in_order_of_time(tmp_path: Path) -> None:
    """Blocks of 512. A's second turn adds 600 tokens to 1,000. Of the whole 1,600 the first block
    ends under id 1; the second, at 1,024, under id 3, which has tokens 1,000 to 1,511; the third,
    at 1,536, under id 4, and so does the rest of 64 tokens, a block of its own."""
    path = written(
        tmp_path,
        turn("A", 1000, [1, 2], timestamp=0, output_length=9),
        turn("A", 600, [3, 4], delay=3000),
        turn("B", 512, [7], timestamp=1000),
    )
    trace = read_trace([path])
    assert trace.prompts.arrived.tolist() == [0.0, 1.0, 3.0]
    assert trace.prompts.prompt_tokens.tolist() == [1000, 512, 1600]
    assert trace.prompts.output_tokens.tolist() == [9, 0, 0]
    first, other, second = chains_of(trace)
    assert (len(first), len(other), len(second)) == (2, 1, 4)
    assert second[0] == first[0]
    assert len({*first, *other, *second}) == 6
    assert sessions_of(trace) == [0, 1, 0]
    assert "added up and sorted by time" in trace.words()
    assert "1 turn starts by a delay after the start of the turn before" in trace.words()


def test_sessions_spread_over_replicas(tmp_path: Path) -> None:
    rows = [turn(f"s{n}", 5, [n], timestamp=n) for n in range(64)]
    sessions = read_trace([written(tmp_path, *rows)]).recorded.sessions
    assert sessions is not None
    ring = Ring.of(4)
    assert set(ring.owners[ring.first(sessions)].tolist()) == {0, 1, 2, 3}


def test_a_turn_that_repeats_the_first_block_states_the_whole_prompt(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        turn("A", 1024, [1, 2], timestamp=0),
        turn("A", 1536, [1, 2, 3], timestamp=10),
        turn("A", 512, [4], timestamp=20),
    )
    trace = read_trace([path])
    assert trace.prompts.prompt_tokens.tolist() == [1024, 1536, 2048]
    assert chains_of(trace) == [[0, 1], [0, 1, 2], [0, 1, 2, 3]]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(-1, 2), st.integers(1, 14)), min_size=1, max_size=12),
)
def test_whole_prompts_are_those_of_their_tokens(size: int, turns: list[tuple[int, int]]) -> None:
    """Prompts written out token by token: blocks are the same exactly if all tokens to their end
    are, and the prompts have as many blocks as their tokens fill."""
    ids, fresh = [], iter(range(10_000))
    for _, length in turns:
        ids.append([next(fresh) for _ in range(-(-length // size))])
    so_far: dict[int, list[object]] = {}
    prompts: list[list[object]] = []
    for (session, length), own in zip(turns, ids, strict=True):
        tokens: list[object] = [(own[place // size], place % size) for place in range(length)]
        whole = [*so_far.get(session, []), *tokens] if session >= 0 else tokens
        so_far[session] = whole
        prompts.append(whole)
    totals, names, lengths = added_up(
        np.array([session for session, _ in turns]), np.array([length for _, length in turns]),
        flat(ids), np.array([len(own) for own in ids]), size,
    )  # fmt: skip
    assert totals.tolist() == [len(tokens) for tokens in prompts]
    assert lengths.tolist() == [-(-len(tokens) // size) for tokens in prompts]
    expected = [
        tuple(tokens[: end + size]) for tokens in prompts for end in range(0, len(tokens), size)
    ]
    pairs = set(zip(names.tolist(), expected, strict=True))
    assert len(pairs) == len(set(names.tolist())) == len(set(expected))


def test_chats_of_bailian_are_in_seconds_and_continue_each_other(tmp_path: Path) -> None:
    def chat(number: int, parent: int, seconds: float, length: int, ids: list[int]) -> object:
        return {
            "chat_id": number, "parent_chat_id": parent, "timestamp": seconds, "turn": 1,
            "type": "text", "input_length": length, "output_length": 2, "hash_ids": ids,
        }  # fmt: skip

    path = written(
        tmp_path,
        chat(5, -1, 0.5, 20, [1, 2]),
        chat(6, -1, 1.5, 16, [9]),
        chat(7, 5, 2.0, 40, [1, 3, 4]),
        chat(8, 7, 61.5, 17, [1, 5]),
        chat(9, 77, 70.5, 16, [1]),
    )
    trace = read_trace([path])
    assert trace.prompts.arrived.tolist() == [0.0, 1.0, 1.5, 61.0, 70.0]
    assert trace.prompts.block_tokens == 16
    assert sessions_of(trace) == [0, 1, 0, 0, 2]
    assert "times read as seconds" in trace.words()
    assert read_trace([path], seconds_each=1e-3).prompts.arrived[-1] == pytest.approx(0.07)


def document(name: str, *requests: object, scope: str = "local") -> dict[str, object]:
    return {"id": name, "block_size": 64, "hash_id_scope": scope, "requests": list(requests)}


def asked(t: float, tokens: int, ids: list[int]) -> dict[str, object]:
    return {"t": t, "type": "n", "model": "m", "in": tokens, "out": 3, "hash_ids": ids}


def test_documents_have_sub_agents_and_ids_of_their_own(tmp_path: Path) -> None:
    """The sub-agent begins at 10 s, its request 2 s later. Only whole blocks have an id. The second
    trace begins where the first ends, and its id 1 is another block; written over several lines."""
    agent = {"t": 10, "type": "subagent", "agent_id": "a1", "requests": [asked(2, 70, [1])]}
    first = written(
        tmp_path, document("x", asked(0, 200, [1, 2, 3]), agent, asked(11, 130, [1, 2]))
    )
    second = tmp_path / "y.json.gz"
    pretty = json.dumps(document("y", asked(5, 64, [1])), indent=1)
    second.write_bytes(gzip.compress(pretty.encode()))
    trace = read_trace([first, second])
    assert trace.prompts.arrived.tolist() == [0.0, 11.0, 12.0, 17.0]
    assert trace.prompts.prompt_tokens.tolist() == [200, 130, 70, 64]
    assert chains_of(trace) == [[0, 1, 2], [0, 1], [0], [3]]
    assert sessions_of(trace) == [0, 0, 1, 2]
    recorded = trace.recorded
    assert recorded.scope is not None
    assert (recorded.scope.codes.tolist(), recorded.scope.names) == ([0, 0, 0, 1], ["x", "y"])
    assert "its 2 traces run one behind the other" in trace.words()


def runs_row(trace: str, t: float, tokens: int, *runs: list[int]) -> dict[str, object]:
    return {"trace_id": trace, "t": t, "type": "n", "in": tokens, "out": 1, "hash_runs": list(runs)}


def test_runs_of_ids_are_of_their_trace(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        runs_row("x", 0, 200, [1, 3]),
        runs_row("x", 9, 330, [1, 2], [8, 3]),
        runs_row("y", 0, 140, [1, 1], [3, 1]),
    )
    trace = read_trace([path])
    assert chains_of(trace) == [[0, 1, 2], [0, 1, 3, 4, 5], [6, 7]]
    assert trace.prompts.arrived.tolist() == [0.0, 9.0, 9.0]


_RUN = st.tuples(st.integers(0, 30), st.integers(1, 6))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.lists(_RUN, max_size=4)), min_size=1, max_size=8),
    st.sampled_from([0, 10**6]),
)
def test_runs_are_the_ids_they_stand_for(
    rows: list[tuple[int, list[tuple[int, int]]]], far: int
) -> None:
    """Ids are told apart as written out, near each other or far apart."""
    columns, written_out = Columns(), []
    for scope, runs in rows:
        placed = [(first + far * (first % 2), count) for first, count in runs]
        columns.scopes.add(len(columns), scope)
        columns.add_runs(0.0, 1, 0, placed)
        written_out += [
            (scope, number) for first, count in placed for number in range(first, first + count)
        ]
    if not written_out:
        return
    blocks = columns.blocks().tolist()
    assert len(set(zip(blocks, written_out, strict=True))) == len(set(written_out))
    assert set(blocks) == set(range(len(set(written_out))))


def call(moment: int, length: int, session: int, *runs: list[int]) -> dict[str, object]:
    return {"ts_us": moment, "agent": "swe", "session": session, "input_bytes": length,
            "output_bytes": 1, "block_bytes": 256, "hash_runs": list(runs)}  # fmt: skip


def test_blocks_of_bytes_are_called_bytes(tmp_path: Path) -> None:
    path = written(tmp_path, call(10**15, 300, 4, [0, 2]), call(10**15 + 5 * 10**5, 0, 4))
    trace = read_trace([path])
    assert trace.of_bytes
    assert trace.prompts.arrived.tolist() == [0.0, 0.5]
    assert trace.prompts.prompt_tokens.tolist() == [300, 0]
    assert "300 prompt bytes, 2 blocks of 256 bytes" in trace.words()
    assert trace.recorded.template is not None
    assert trace.recorded.template.names == ["swe"]


def labelled(folder: Path, *rows: object) -> Path:
    return written(folder, *rows, name="labels.jsonl")


def test_labels_beside_a_trace(tmp_path: Path) -> None:
    rows = [{"timestamp": n, "input_length": 5, "hash_ids": [n]} for n in range(3)]
    path = written(tmp_path, *rows)
    labels = labelled(tmp_path, {"session": 3, "replica": 0}, {"tenant": 7}, {"session": 3})
    trace = read_trace([path], labels=labels)
    assert sessions_of(trace) == [0, 1, 0], "a request without is a session of its own"
    recorded = trace.recorded
    assert (recorded.template, recorded.scope) == (None, None)
    assert recorded.tenant is not None
    assert recorded.tenant.codes.tolist() == [-1, 0, -1]
    assert recorded.tenant.names == ["7"]
    assert isinstance(recorded.replica, Labels)
    said = refusal(path, labels=labelled(tmp_path, {"session": 3}))
    assert "1 line of labels beside a trace of 3 requests" in said
    said = refusal(path, labels=labelled(tmp_path, {}, {"tenant": "bob"}, {}))
    assert "labels.jsonl, line 2: " in said
    assert "labels are numbers" in said


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([turn("A", 5, [1], delay=3)], "line 1: a turn needs a timestamp, or a delay"),
        ([turn("A", 5, [1], timestamp=3), turn("A", 5, [2], timestamp=1)], "line 2: its timestamp"),
        (
            [turn("A", 600, [1, 2], timestamp=3), turn("B", 20, [1, 2], timestamp=4)],
            "row 2: 20 tokens are 1 block of 512 tokens",
        ),
        ([runs_row("x", 0, 64, [0, 2])], "row 1: 64 tokens are 1 block of 64 tokens"),
        ([runs_row("x", 0, 64, [0, 10**12])], "line 1: hash_runs must be pairs"),
        ([runs_row("x", 0, 64, [-1, 1])], "line 1: hash_runs must be pairs"),
        ([runs_row("x", 5, 64, [0, 1]), runs_row("x", 1, 64, [0, 1])], "row 2: its timestamp"),
        (
            [runs_row(name, 0, 64, [0, 1]) for name in ("x", "y", "x")],
            "line 3: rows of x are not together",
        ),
        ([document("x", asked(0, 64, [1]), scope="planet")], "hash_id_scope is local or global"),
        ([document("x", {"t": "soon"})], "line 1: Expected `float`"),
        (
            [call(0, 5, 1, [0, 1]), call(1, 5, 1, [0, 1]) | {"block_bytes": 9}],
            "line 2: blocks of 9 among blocks of 256",
        ),
    ],
)
def test_rows_that_cannot_be_right_are_refused(tmp_path: Path, rows: Rows, said: str) -> None:
    assert said in refusal(written(tmp_path, *rows))


def test_files_of_two_kinds_are_no_trace(tmp_path: Path) -> None:
    plain = written(tmp_path, {"timestamp": 0, "input_length": 5, "hash_ids": [1]})
    runs = written(tmp_path, runs_row("x", 0, 64, [0, 1]), name="runs.jsonl")
    assert "another kind than the files before it" in refusal(plain, runs)


def test_another_unit_of_a_stated_block_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, runs_row("x", 0, 200, [0, 3]))
    assert "give --block-tokens 64" in refusal(path, block_tokens=16)


@needs_traces
def test_documents_and_their_flattened_rows_are_the_same_requests() -> None:
    """26 traces come in both forms, written by different people."""
    folder = TRACES / "claude-code-agentic"
    trace = read_trace(sorted(folder.glob("raw_sample/*.json.gz")))
    names = trace.recorded.scope.names if trace.recorded.scope else []
    with gzip.open(folder / "requests_rle.jsonl.gz") as lines:
        # Only the lines of these traces are decoded, by where the name stands in each.
        rows = [json.loads(line) for line in lines if line[13:23].decode() in names]
    lengths = [sum(count for _, count in row["hash_runs"]) for row in rows]
    assert trace.prompts.prompt_tokens.tolist() == [row["in"] for row in rows]
    assert np.diff(trace.prompts.starts).tolist() == lengths
