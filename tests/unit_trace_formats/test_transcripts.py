"""Transcripts of coding agents: every response once, whatever repeats it."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

from exporter.sources.intake import Intake
from exporter.sources.names import SourceNames
from exporter.store.store import Store
from tests.log_path import SMALL, Answer, Row, by_id, hit_ratio, load, ndjson, requests


def answer(
    message: str, output: int, session: str = "s-1", at: str = "12:00:00", **more: object
) -> dict[str, object]:
    """A line of a Claude Code transcript: a block of a response and the usage so far."""
    usage = {
        "input_tokens": 2, "cache_read_input_tokens": 15_030,
        "cache_creation_input_tokens": 8_655, "output_tokens": output,
    }  # fmt: skip
    return {
        "type": "assistant", "uuid": f"{message}-{output}", "parentUuid": None,
        "sessionId": session, "isSidechain": False, "timestamp": f"2026-03-02T{at}Z", **more,
        "message": {"id": message, "model": "claude-x", "role": "assistant", "usage": usage,
                    "content": [{"type": "text", "text": "Zebra-Quartz answer"}]},
    }  # fmt: skip


def asked(session: str = "s-1") -> dict[str, object]:
    return {"type": "user", "uuid": "u", "sessionId": session, "timestamp": "2026-03-02T12:00:00Z",
            "message": {"role": "user", "content": "Zebra-Quartz prompt"}}  # fmt: skip


def into(store: Store, source: str, files: Sequence[Sequence[Row]]) -> Answer:
    """Loads files as one source, as `prefixscope ingest` does with all files it is given."""
    for rows in files:
        load(store, list(rows), source, format="auto", defaults={"route": source})
    return hit_ratio(store, route=source)


def test_t66_lines_of_one_message_are_one_request(shared_store: Store) -> None:
    rows = [asked(), answer("m1", 9), answer("m1", 9), answer("m1", 159)]
    figures = into(shared_store, "t66", [rows])
    assert (figures["requests"], figures["prompt_tokens"]) == (1, 23_687)
    assert (figures["cached_tokens"], figures["output_tokens"]) == (15_030, 159)
    assert round(figures["token_hit_ratio"], 3) == 0.635
    (row,) = requests(shared_store, "t66")
    assert (row["session"], row["source_format"]) == ("s-1", "claude_code")
    assert row["prompt_basis"] == "exclusive"


def test_t66_t67_a_resumed_session_copies_lines_and_counts_once(shared_store: Store) -> None:
    old = [
        asked(),
        answer("c1", 9),
        answer("c1", 50, at="12:00:03"),
        answer("c2", 70, at="12:01:00"),
    ]
    copied = [{**row, "sessionId": "s-2"} for row in old]
    resumed = [*copied, asked("s-2"), answer("c3", 80, "s-2", at="18:00:00")]
    for order in ([old, resumed], [resumed, old], [old, resumed, old, resumed]):
        source = f"resumed {len(order)} {order[0] is old}"
        figures = into(shared_store, source, order)
        assert (figures["requests"], figures["prompt_tokens"]) == (3, 3 * 23_687)
        assert figures["output_tokens"] == 50 + 70 + 80
        assert by_id(shared_store, source)["c3"]["session"] == "s-2"


def test_t66_a_later_line_in_a_later_batch_corrects_the_row(shared_store: Store) -> None:
    figures = into(shared_store, "grows", [[answer("g1", 9)], [answer("g1", 159, at="12:00:09")]])
    assert (figures["requests"], figures["output_tokens"]) == (1, 159)


def test_a_sub_agent_is_a_conversation_of_its_own(shared_store: Store) -> None:
    agent = answer("a1", 5, isSidechain=True, agentId="x7")
    older = answer("a2", 5, isSidechain=True)
    into(shared_store, "agents", [[answer("m9", 5), agent, older]])
    stored = by_id(shared_store, "agents")
    assert {name: (row["session"], row["template"]) for name, row in stored.items()} == {
        "m9": ("s-1", None), "a1": ("s-1/x7", "subagent"), "a2": ("s-1", "subagent"),
    }  # fmt: skip


def test_messages_the_client_wrote_and_lines_without_usage_are_no_requests(
    shared_store: Store,
) -> None:
    error = answer("e1", 0, isApiErrorMessage=True)
    rows: list[Row] = [asked(), error, {"type": "summary", "summary": "Zebra"}, answer("m10", 5)]
    rows.append({"type": "file-history-snapshot", "messageId": "m11", "snapshot": {}})
    summary = load(shared_store, rows, "none", format="claude_code")
    assert summary.accepted == 1
    assert summary.reasons == {"written_by_the_client": 1}
    assert summary.flags == {"states_no_usage": 3}


# ---------------------------------------------------------------------------- Codex


class Rollout:
    """Writes a Codex transcript and keeps count of what happened in it."""

    def __init__(self, name: str, at: int, **meta: object) -> None:
        self.total = [0, 0, 0]
        self.lines = [
            self._line(at, "session_meta", {"id": name, "model_provider": "openai", **meta})
        ]
        self.model(at, "gpt-x")

    @staticmethod
    def _line(second: float, kind: str, payload: Row) -> dict[str, object]:
        minutes, rest = divmod(second, 60)
        stamp = f"2026-03-02T12:{int(minutes):02}:{rest:06.3f}Z"
        return {"timestamp": stamp, "type": kind, "payload": payload}

    def model(self, at: float, name: str) -> None:
        self.lines.append(self._line(at, "turn_context", {"model": name, "cwd": "/home/zebra"}))

    def say(self, at: float) -> None:
        text = {"type": "message", "role": "user", "content": [{"text": "Zebra-Quartz prompt"}]}
        self.lines.append(self._line(at, "response_item", text))

    def usage(self, at: float, prompt: int, cached: int, output: int, *, last: bool = True) -> None:
        """A response: `last` states it by itself, else only the total rises."""
        self.total = [t + n for t, n in zip(self.total, (prompt, cached, output), strict=True)]
        info = {"total_token_usage": self._counts(*self.total)}
        if last:
            info["last_token_usage"] = self._counts(prompt, cached, output)
        self.lines.append(self._line(at, "event_msg", {"type": "token_count", "info": info}))

    def again(self, at: float) -> None:
        """The display is refreshed: the newest usage once more."""
        newest = [line for line in self.lines if "token_count" in json.dumps(line)][-1]
        self.lines.append({**newest, "timestamp": self._line(at, "", {})["timestamp"]})

    def replay(self, other: "Rollout", at: float) -> None:
        """A fork begins with the parent's lines, written anew at its own start."""
        self.lines += [
            {**line, "timestamp": self._line(at, "", {})["timestamp"]} for line in other.lines
        ]
        self.total = list(other.total)

    @staticmethod
    def _counts(prompt: int, cached: int, output: int) -> dict[str, int]:
        return {
            "input_tokens": prompt, "cached_input_tokens": cached, "output_tokens": output,
            "reasoning_output_tokens": 0, "total_tokens": prompt + output,
        }  # fmt: skip


def codex_parent() -> Rollout:
    rollout = Rollout("parent", 0)
    rollout.say(0.5)
    rollout.lines.append(rollout._line(1, "event_msg", {"type": "token_count", "info": None}))
    rollout.usage(5, 1000, 640, 50)
    rollout.again(6)
    rollout.again(7)
    rollout.usage(30, 2000, 1536, 60)
    return rollout


def test_codex_repeated_totals_and_null_usage_are_no_requests(shared_store: Store) -> None:
    figures = into(shared_store, "codex", [codex_parent().lines])
    assert (figures["requests"], figures["prompt_tokens"]) == (2, 3000)
    assert (figures["cached_tokens"], figures["output_tokens"]) == (640 + 1536, 110)
    assert figures["token_hit_ratio"] == 2176 / 3000
    rows = by_id(shared_store, "codex")
    assert {row["session"] for row in rows.values()} == {"parent"}
    assert sorted(row["turn"] for row in rows.values()) == [1, 2]


def test_t67_a_fork_does_not_count_its_parents_history_again(shared_store: Store) -> None:
    parent = codex_parent()
    forks = []
    for name, at in (("fork-1", 60), ("fork-2", 120)):
        fork = Rollout(name, at, forked_from_id="parent")
        fork.replay(parent, at + 0.3)
        fork.model(at + 1, "gpt-y")
        fork.usage(at + 9, 4000, 3584, 70)
        forks.append(fork)
    summary = load(shared_store, forks[0].lines, "fork alone", format="auto")
    assert summary.reasons == {"replayed_by_a_fork": 2}
    figures = into(shared_store, "forks", [parent.lines, *(fork.lines for fork in forks)])
    assert (figures["requests"], figures["prompt_tokens"]) == (4, 3000 + 2 * 4000)
    assert figures["cached_tokens"] == 2176 + 2 * 3584
    rows = requests(shared_store, "forks")
    assert sorted((row["session"], row["model"]) for row in rows) == [
        ("fork-1", "gpt-y"), ("fork-2", "gpt-y"), ("parent", "gpt-x"), ("parent", "gpt-x"),
    ]  # fmt: skip
    again = into(shared_store, "forks", [parent.lines, forks[1].lines])
    assert again == figures, "files read twice change nothing"


def test_codex_sub_agents_are_sessions_of_their_own(shared_store: Store) -> None:
    child = Rollout("child", 60, thread_source="subagent", parent_thread_id="parent")
    child.usage(70, 500, 0, 5)
    into(shared_store, "codex agents", [child.lines])
    (row,) = requests(shared_store, "codex agents")
    assert (row["session"], row["template"], row["cached_tokens"]) == ("child", "subagent", 0)


def test_codex_totals_alone_tell_what_they_rose_by(shared_store: Store) -> None:
    rollout = Rollout("old", 0)
    rollout.usage(5, 1000, 640, 50, last=False)
    rollout.usage(9, 1500, 1024, 40, last=False)
    into(shared_store, "codex old", [rollout.lines])
    rows = sorted(requests(shared_store, "codex old"), key=lambda row: row["turn"])
    assert [(row["prompt_tokens"], row["cached_tokens"], row["output_tokens"]) for row in rows] == [
        (1000, 640, 50), (1500, 1024, 40),
    ]  # fmt: skip


def test_two_transcripts_in_one_input_are_two_sessions(shared_store: Store) -> None:
    other = Rollout("other", 100)
    other.usage(110, 700, 0, 5)
    into(shared_store, "both", [[*codex_parent().lines, *other.lines]])
    rows = requests(shared_store, "both")
    assert sorted(row["session"] for row in rows) == ["other", "parent", "parent"]
    assert sum(row["prompt_tokens"] for row in rows) == 3700


def test_nothing_anybody_said_reaches_the_disk(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", SMALL)
    store.cursor().execute("PRAGMA force_compression='uncompressed'")
    claude = [asked("find-me"), answer("m1", 9, "find-me")]
    broken = [json.dumps(row)[:-9] for row in claude]
    load(store, [*claude, *broken], "claude", format="auto")
    codex = codex_parent().lines
    load(store, [*codex, *(json.dumps(row)[:-9] for row in codex)], "codex", format="auto")
    store.cursor().execute("CHECKPOINT")
    store.close()
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"find-me" in written, "looking for text in the bytes works"
    for secret in (b"Zebra", b"Quartz", b"/home/zebra"):
        assert secret not in written


def test_rules_can_name_by_what_a_transcript_knows(shared_store: Store) -> None:
    rules: dict[str, object] = {
        "named claude": {"tenant": [{"field": "gitBranch"}]},
        "named codex": {"tenant": [{"field": "cwd", "pattern": "([^/]+)$"}]},
    }
    names = {source: SourceNames.model_validate(given) for source, given in rules.items()}
    rollout = Rollout("named", 0, cwd="/home/zebra/shop")
    rollout.usage(9, 10, 0, 1)
    inputs = {"named claude": [answer("n1", 5, gitBranch="main")], "named codex": rollout.lines}
    for source, rows in inputs.items():
        Intake(shared_store, names=names).ingest(io.BytesIO(ndjson(rows)), source=source)
    assert [row["tenant"] for row in requests(shared_store, "named claude")] == ["main"]
    assert [row["tenant"] for row in requests(shared_store, "named codex")] == ["shop"]
