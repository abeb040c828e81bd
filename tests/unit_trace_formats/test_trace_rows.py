"""Rows of traces and of the router's log that only mean something together."""

import json

import pytest

from exporter.errors import PrefixscopeError
from exporter.sources.formats.documents import unfit_blocks
from exporter.store.store import Store
from tests.log_path import Row, ask, hit_ratio, load, rejects, requests


def session(name: str, tokens: int, ids: list[int], **time: float) -> dict[str, object]:
    return {"session_id": name, "input_length": tokens, "output_length": 5, "hash_ids": ids, **time}


def test_turns_of_a_session_add_up(shared_store: Store) -> None:
    rows = [
        session("a", 1024, [1, 2], timestamp=1000),
        session("b", 512, [1], timestamp=1200),
        session("a", 300, [3], delay=2500),
        session("b", 512, [7], delay=100),
        session("a", 512, [4], delay=500),
    ]
    load(shared_store, rows, "turns", format="auto", defaults={"route": "turns"})
    stored = sorted(requests(shared_store, "turns"), key=lambda row: row["position"])
    assert [(row["session"], row["turn"], row["prompt_tokens"]) for row in stored] == [
        ("a", 1, 1024), ("b", 1, 512), ("a", 2, 1324), ("b", 2, 1024), ("a", 3, 1836),
    ]  # fmt: skip
    assert [row["block_hashes"] for row in stored] == [
        [1, 2], [1], [1, 2, 3], [1, 7], [1, 2, 3, 4],
    ]  # fmt: skip
    first = stored[0]["ts"]
    assert [(row["ts"] - first).total_seconds() for row in stored] == [0, 0.2, 2.5, 0.3, 3.0]
    # 1024 + 512 + 1324 + 1024 + 1836: what a server would have been asked for.
    assert hit_ratio(shared_store, route="turns")["prompt_tokens"] == 5720


def test_rows_that_repeat_the_whole_prompt_are_not_added_up(shared_store: Store) -> None:
    rows = [session("a", 1500, [1, 2, 3]), session("a", 2000, [1, 2, 3, 4])]
    load(shared_store, rows, "whole", format="auto")
    stored = sorted(requests(shared_store, "whole"), key=lambda row: row["position"])
    assert [(row["prompt_tokens"], row["block_hashes"]) for row in stored] == [
        (1500, [1, 2, 3]), (2000, [1, 2, 3, 4]),
    ]  # fmt: skip
    assert stored[0]["flags"] == ["no_time"], "neither a time nor a delay"


def test_a_bad_line_of_a_trace_costs_itself_and_keeps_the_numbers_of_others(
    shared_store: Store,
) -> None:
    good = json.dumps(session("a", 512, [1], timestamp=0))
    lines: list[Row | str | bytes] = [good, good[:-9], "[]", b"\xff" + good.encode(), "", good]
    lines.append('{"session_id": "' + "x" * (2 << 20) + '"}')
    summary = load(shared_store, lines, "bad", format="mooncake_sessions")
    assert rejects(shared_store, "bad") == [
        (2, "invalid_json"), (3, "not_an_object"), (4, "invalid_utf8"), (7, "too_long"),
    ]  # fmt: skip
    assert summary.accepted == 2


def test_chats_are_sessions_by_their_first_chat(shared_store: Store) -> None:
    parents = {1: -1, 2: 1, 3: 2, 9: -1, 12: 5, 13: 12}
    rows = [
        {"chat_id": chat, "parent_chat_id": parent, "timestamp": chat, "input_length": 32,
         "output_length": 1, "type": "text", "turn": 1, "hash_ids": [1, 2]}
        for chat, parent in parents.items()
    ]  # fmt: skip
    load(shared_store, rows, "chats", format="auto")
    stored = sorted(requests(shared_store, "chats"), key=lambda row: row["position"])
    # Chat 5 was before the trace, so what is known of its line begins with its name.
    assert [row["session"] for row in stored] == ["1", "1", "1", "9", "5", "5"]


def test_chat_numbers_of_two_traces_are_different_requests(shared_store: Store) -> None:
    for tokens in (32, 33):
        row = {"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "input_length": tokens,
               "output_length": 1, "type": "text", "turn": 1, "hash_ids": [tokens]}  # fmt: skip
        load(shared_store, [row], "two traces", format="auto")
    assert [row["prompt_tokens"] for row in requests(shared_store, "two traces")] == [32, 33]


def test_deeply_nested_sub_agents_are_read(shared_store: Store) -> None:
    inner: dict[str, object] = {"t": 0.5, "type": "n", "model": "m", "in": 64, "out": 1,
                                "hash_ids": [1]}  # fmt: skip
    for depth in range(200):
        inner = {"t": 1.0, "type": "subagent", "agent_id": f"a{depth}", "requests": [inner]}
    trace = {"id": "deep", "block_size": 64, "hash_id_scope": "local", "requests": [inner]}
    load(shared_store, json.dumps(trace).encode(), "deep", format="auto")
    (row,) = requests(shared_store, "deep")
    assert (row["session"], row["prompt_tokens"]) == ("deep/a0", 64)


@pytest.mark.parametrize("run", ['"x"', "[1]", "[1, 2, 3]", "[1.5, 2]", "[true, 2]", "[0, 1e9]"])
def test_runs_that_are_none_are_set_aside(shared_store: Store, run: str) -> None:
    row = f'{{"trace_id": "t", "t": 0, "type": "n", "in": 64, "out": 1, "hash_runs": [{run}]}}'
    summary = load(shared_store, [row], f"run {run}", format="auto")
    assert summary.reasons == {"unreadable_blocks": 1}


def test_t40_attempts_of_the_router_are_one_request(shared_store: Store) -> None:
    def routed(replica: int, attempt: int) -> str:
        where = f"http://10.0.0.{replica}:8000"
        how = f" at 1772442904.{attempt}, process time = 0.001" if attempt == 1 else (
            f" (attempt {attempt}/3)")  # fmt: skip
        return f"[2026-03-02 18:15:04,121] INFO: Routing request q to {where}{how} (request.py:6)"

    lines = [routed(1, 1), routed(2, 2), routed(3, 3), routed(1, 1)]
    summary = load(shared_store, list(lines), "router", format="auto", defaults={"route": "r"})
    assert (summary.format, summary.accepted, summary.duplicate) == ("production_stack", 3, 1)
    stored = sorted(requests(shared_store, "router"), key=lambda row: row["attempt"])
    assert [(row["attempt"], row["replica"]) for row in stored] == [
        (1, "http://10.0.0.1:8000"), (2, "http://10.0.0.2:8000"), (3, "http://10.0.0.3:8000"),
    ]  # fmt: skip
    figures = hit_ratio(shared_store, route="r")
    assert (figures["prompt_tokens"], figures["token_hit_ratio"]) == (0, None)
    (health,) = [row for row in ask(shared_store, "ingest_health") if row["source"] == "router"]
    assert health["coverage_ratio"] is None


def test_columns_are_found_by_name_and_missing_cells_are_unknown(shared_store: Store) -> None:
    head = b"TIMESTAMP,GeneratedTokens,ContextTokens,NumImages\n"
    load(shared_store, head + b"2024-05-10 00:00:00.1,7,100,3\n\n2024-05-10 00:00:01\n", "columns",
         format="auto")  # fmt: skip
    stored = sorted(requests(shared_store, "columns"), key=lambda row: row["position"])
    assert [(row["prompt_tokens"], row["output_tokens"]) for row in stored] == [
        (100, 7), (None, None),
    ]  # fmt: skip


def test_a_cell_beyond_reason_is_an_error_that_names_its_line(shared_store: Store) -> None:
    data = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00,1,1\n" + b"9" * 200_000
    with pytest.raises(PrefixscopeError, match=r"^input: line 3 of the CSV: field larger"):
        load(shared_store, data, "cell", format="auto")


def test_t95_ids_that_do_not_fit_the_length_are_flagged(shared_store: Store) -> None:
    rows = [
        {"timestamp": 0, "input_length": 20, "output_length": 1, "hash_ids": [0, 1]},
        {"timestamp": 0, "input_length": 1200, "output_length": 1, "hash_ids": [0, 1, 2]},
        {"timestamp": 0, "input_length": 1200, "output_length": 1, "hash_ids": [0]},
        {"timestamp": 0, "input_length": 1200, "output_length": 1, "hash_ids": []},
    ]
    summary = load(shared_store, rows, "t95", format="auto", defaults={"route": "t95"})
    assert summary.flags == {"relative_time": 4, "hash_count": 2}
    stored = sorted(requests(shared_store, "t95"), key=lambda row: row["position"])
    assert ["hash_count" in row["flags"] for row in stored] == [True, False, True, False]
    (health,) = [row for row in ask(shared_store, "ingest_health") if row["source"] == "t95"]
    assert health["flags"]["hash_count"] == 2


@pytest.mark.parametrize(
    ("tokens", "blocks", "size", "turns", "unfit"),
    [(128, 2, 64, 1, False), (130, 2, 64, 1, False), (130, 3, 64, 1, False),
     (130, 4, 64, 1, True), (130, 1, 64, 1, True), (130, 4, 64, 2, False),
     (130, 9, None, 1, False), (None, 9, 64, 1, False), (63, 0, 64, 1, False),
     (130, 9, 0, 1, False)],
)  # fmt: skip
def test_whole_and_partial_blocks_both_fit(
    tokens: int | None, blocks: int, size: int | None, turns: int, unfit: bool
) -> None:
    assert unfit_blocks([0] * blocks, tokens, size, turns) is unfit
