"""A real vLLM with the tap as its middleware: rows, counters and clients agree to the token.

Beside the tap stands a switch that a header turns off, so that one engine can be asked for the
same answer with and without the tap.
"""

import http.client
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

from prefixscope.tap import Tap
from prefixscope.tap_file import one_file
from prefixscope.tap_proxy import Upstream
from replay.hashes import chain_hashes, scope_id
from tests.engine.live import ENGINE, needs_engine, running_vllm
from tests.running import ENVIRONMENT, get
from tests.unit_tap.scripted import rows_in, serving, tap_settings_for, until

pytestmark = needs_engine

SWITCH = '''
"""The tap, and a way past it for comparisons."""
from prefixscope_tap import Tap

class Switched:
    def __init__(self, app):
        self.app, self.tap = app, Tap(app)

    async def __call__(self, scope, receive, send):
        off = (b"x-tap", b"off") in scope.get("headers", ())
        await (self.app if off else self.tap)(scope, receive, send)
'''
# Nobody listens to them here, and their ports may be taken by the time they are opened.
NO_EVENTS = ("--kv-events-config", '{"enable_kv_cache_events":false}')
CANARY = "zanzibar quokka"
CHAT = "/v1/chat/completions"
ABORTED = 4


@dataclass
class Live:
    """The engine, the folder of its tap, and what was asked so far."""

    address: str
    folder: Path
    canary: str = CANARY
    token_ids: list[list[int]] = field(default_factory=list)

    def rows(self) -> list[dict[str, Any]]:
        return rows_in(self.folder)

    def counter(self, name: str) -> int:
        page = get(f"{self.address}/metrics").decode()
        found = re.findall(rf"^vllm:{name}\{{.*\}} (\S+)$", page, re.MULTILINE)
        return int(sum(map(float, found)))

    def ask(
        self, path: str, request: dict[str, Any], headers: dict[str, str] | None = None
    ) -> bytes:
        connection = self.connect()
        try:
            body = json.dumps({"model": "tiny", **request})
            sent = {"Content-Type": "application/json", **(headers or {})}
            connection.request("POST", path, body, sent)
            reply = connection.getresponse()
            text = reply.read()
            assert reply.status == 200, text
            return text
        finally:
            connection.close()

    def connect(self) -> http.client.HTTPConnection:
        url = urlparse(self.address)
        return http.client.HTTPConnection(str(url.hostname), url.port, timeout=60)

    def tokens(self, messages: object) -> list[int]:
        found = json.loads(self.ask("/tokenize", {"messages": messages}))["tokens"]
        self.token_ids.append(found)
        return list(found)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("tap")
    (folder / "mounted").mkdir()
    (folder / "mounted" / "prefixscope_tap.py").write_text(one_file(), encoding="utf-8")
    (folder / "mounted" / "switched.py").write_text(SWITCH, encoding="utf-8")
    settings = {
        "PYTHONPATH": str(folder / "mounted"),
        "PREFIXSCOPE_TAP_FILE": str(folder / "tap.ndjson"),
        "PREFIXSCOPE_TAP_HASHES": "all",
        "PREFIXSCOPE_TAP_INCLUDE_USAGE": "on",
        "PREFIXSCOPE_TAP_REPLICA": "live",
    }
    more = ("--enable-per-request-metrics", *NO_EVENTS)
    with running_vllm(folder, "--middleware", "switched.Switched", *more, **settings) as address:
        yield Live(address, folder)


@pytest.fixture(scope="module")
def workload(live: Live) -> list[dict[str, Any]]:
    """The mixed plan: salted or not, streamed or not, one at a time or four."""
    out = live.folder / "workload.out"
    command = [sys.executable, str(ENGINE / "workload.py"), "--url", live.address,
               "--out", str(out)]  # fmt: skip
    subprocess.run(command, check=True, env=ENVIRONMENT, timeout=300)
    records = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    out.unlink()  # it holds token ids, which are searched for below
    until(lambda: len(live.rows()) == len(records))
    return records


def _usage(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["prompt_tokens"], row["cached_tokens"], row["output_tokens"]


def test_rows_agree_with_every_client(live: Live, workload: list[dict[str, Any]]) -> None:
    by_id = {row["response_id"]: row for row in live.rows()}
    seen = {}
    for record in workload:
        usage = record["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        seen[record["id"]] = usage["prompt_tokens"], cached, usage["completion_tokens"]
    assert {name: _usage(row) for name, row in by_id.items()} == seen
    assert {bool(record["stream"]) for record in workload} == {True, False}
    assert {row["status"] for row in by_id.values()} == {"ok"}
    assert not any("flags" in row for row in by_id.values())


def test_rows_agree_with_the_engine(live: Live, workload: list[dict[str, Any]]) -> None:
    rows = live.rows()
    assert sum(row["prompt_tokens"] for row in rows) == live.counter("prompt_tokens_total")
    assert sum(row["cached_tokens"] for row in rows) == live.counter("prompt_tokens_cached_total")


def test_first_tokens_are_seen_before_the_client_sees_them(
    live: Live, workload: list[dict[str, Any]]
) -> None:
    by_id = {row["response_id"]: row for row in live.rows()}
    for record in workload:
        row = by_id[record["id"]]
        assert row["stream"] == record["stream"]
        assert row["e2e_seconds"] <= record["total_s"]
        assert row["queue_seconds"] >= 0
        if record["stream"]:
            assert row["ttft_seconds"] <= record["ttft_s"]
        else:
            assert "ttft_seconds" not in row


def test_chains_are_of_the_tokens_the_engine_saw(
    live: Live, workload: list[dict[str, Any]]
) -> None:
    key = (live.folder / "hash.key").read_text().strip()
    by_id = {row["response_id"]: row for row in live.rows()}
    salts = {record["cache_salt"] for record in workload}
    assert len(salts) == 4
    for record in workload:
        scope = scope_id(key, record["cache_salt"])
        row = by_id[record["id"]]
        assert row.get("scope") == scope
        tokens = record["prompt_token_ids"]
        assert row["block_hashes"] == chain_hashes(tokens, 16, scope or "", key)
        live.token_ids.append(tokens)


def test_aborted_requests_are_counted_as_the_engine_counts_them(
    live: Live, workload: list[dict[str, Any]]
) -> None:
    before, known = live.counter("prompt_tokens_total"), len(live.rows())
    prompts = [
        [{"role": "user", "content": f"{CANARY} {number} " + "please go on " * 50}]
        for number in range(ABORTED)
    ]
    expected = [len(live.tokens(messages)) for messages in prompts]
    with ThreadPoolExecutor(ABORTED) as pool:
        list(pool.map(lambda messages: _abort(live, messages), prompts))
    until(lambda: len(live.rows()) == known + ABORTED)
    rows = live.rows()[known:]
    assert {row["status"] for row in rows} == {"cancelled"}
    assert sorted(row["prompt_tokens"] for row in rows) == sorted(expected)
    assert not any("cached_tokens" in row or "output_tokens" in row for row in rows)
    assert live.counter("prompt_tokens_total") == before + sum(expected)


def _abort(live: Live, messages: object) -> None:
    """Close the connection in the middle of a long answer."""
    connection = live.connect()
    request = {"model": "tiny", "messages": messages, "stream": True, "max_tokens": 1200,
               "ignore_eos": True}  # fmt: skip
    connection.request("POST", CHAT, json.dumps(request), {"Content-Type": "application/json"})
    connection.getresponse().read(2000)
    connection.close()


MESSAGES = [{"role": "user", "content": f"{CANARY} " + "tell me more " * 60}]
FIXED = {"temperature": 0.0, "max_tokens": 12, "ignore_eos": True}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
SAME = {
    "chat": (CHAT, {**FIXED, "messages": MESSAGES}),
    "chat stream": (CHAT, {**FIXED, "messages": MESSAGES, "stream": True}),
    "usage asked": (CHAT, {**FIXED, "messages": MESSAGES, "stream": True,
                           "stream_options": {"include_usage": True}}),
    "usage on every event": (CHAT, {**FIXED, "messages": MESSAGES, "stream": True,
                             "stream_options": {"include_usage": True,
                                                "continuous_usage_stats": True}}),
    "usage declined": (CHAT, {**FIXED, "messages": MESSAGES, "stream": True,
                              "stream_options": {"include_usage": False}}),
    "two choices": (CHAT, {**FIXED, "messages": MESSAGES, "stream": True, "n": 2, "seed": 1,
                           "temperature": 1.0}),
    "tools": (CHAT, {**FIXED, "messages": MESSAGES, "stream": True, "tools": [TOOL],
                     "tool_choice": "none"}),
    "log probabilities": (CHAT, {**FIXED, "messages": MESSAGES, "stream": True,
                                 "logprobs": True, "top_logprobs": 2}),
    "token ids": (CHAT, {**FIXED, "messages": MESSAGES, "stream": True,
                         "return_token_ids": True}),
    "completion": ("/v1/completions", {**FIXED, "prompt": f"{CANARY} " * 20}),
    "completion stream": ("/v1/completions", {**FIXED, "prompt": f"{CANARY} " * 20,
                                              "stream": True}),
    "completion of ids": ("/v1/completions", {**FIXED, "prompt": list(range(300, 400)),
                                              "stream": True}),
    "messages": ("/v1/messages", {"messages": MESSAGES, "max_tokens": 8, "temperature": 0.0}),
    "messages stream": ("/v1/messages", {"messages": MESSAGES, "max_tokens": 8, "stream": True,
                                         "temperature": 0.0}),
    "responses": ("/v1/responses", {"input": "hello " * 40, "max_output_tokens": 8,
                                    "temperature": 0.0}),
    "responses stream": ("/v1/responses", {"input": "hello " * 40, "max_output_tokens": 8,
                                           "stream": True, "temperature": 0.0}),
}  # fmt: skip
# What differs between two answers to one question: clocks, and ids made anew for each.
_VARIES = re.compile(
    rb'"(?:created(?:_at)?|completed_at)":[\d.]+|"[a-z_]+_ms":[\d.]+|"tokens_per_second":[\d.]+'
    rb"|\b(?:resp|rs|msg|req|chatcmpl|cmpl|fc|call)[_-][-\w]+"
    rb'|"(?:id|item_id)":"[-\w]+"|"mean_itl_ms":null'
    # Sums of floats depend on how threads share them.
    rb'|"logprob":-?[\d.e+-]+'
)


TRIES = 8


def _settled(text: bytes) -> list[bytes]:
    """The events without what varies. Several choices come in any order."""
    events = _VARIES.sub(b"~", text).split(b"\n\n")
    return sorted(events) if any(b'"index":1' in event for event in events) else events


@pytest.mark.parametrize("name", SAME)
def test_the_client_receives_the_same_bytes(
    live: Live, workload: list[dict[str, Any]], name: str
) -> None:
    """An engine that is busy puts two tokens into one event now and then: then ask again. What
    the tap changed would differ every time."""
    path, request = SAME[name]
    ids = {"X-Request-Id": "same"}
    live.ask(path, request, {**ids, "X-Tap": "off"})  # so that both find the cache alike
    for _ in range(TRIES):
        known = len(live.rows())
        past = live.ask(path, request, {**ids, "X-Tap": "off"})
        through = live.ask(path, request, ids)
        until(lambda known=known: len(live.rows()) == known + 1)  # type: ignore[misc]
        if _settled(through) == _settled(past):
            break
    assert _settled(through) == _settled(past)
    row = live.rows()[known]
    assert row["status"] == ("incomplete" if path == "/v1/responses" else "ok")
    assert row["cached_tokens"] > 0
    assert row["prompt_tokens"] > row["cached_tokens"]
    assert row.get("flags") is None


def test_every_api_is_counted_as_the_engine_counts_it(
    live: Live, workload: list[dict[str, Any]]
) -> None:
    for path, request in SAME.values():
        names = ("prompt_tokens_total", "prompt_tokens_cached_total")
        before, known = [live.counter(name) for name in names], len(live.rows())
        live.ask(path, request)
        until(lambda known=known: len(live.rows()) == known + 1)  # type: ignore[misc]
        row = live.rows()[known]
        # The engine computes a prompt once for every choice, usage has it once.
        times = request.get("n", 1)
        counted = [times * row["prompt_tokens"], times * row["cached_tokens"]]
        risen = [live.counter(name) - old for name, old in zip(names, before, strict=True)]
        assert counted == risen, path


def test_a_proxy_in_front_records_the_same(live: Live, tmp_path: Path) -> None:
    """One request through both taps, with one key: the rows differ in times and names only."""
    settings = {"hashes": "all", "include_usage": True, "key_file": str(live.folder / "hash.key")}
    tap = Tap(Upstream(live.address), tap_settings_for(tmp_path, **settings))
    known = len(live.rows())
    with serving(tap, as_proxy=True) as port:
        through = Live(f"http://127.0.0.1:{port}", tmp_path)
        for path, request in SAME.values():
            through.ask(path, {**request, "cache_salt": "acme"})
        until(lambda: len(through.rows()) == len(SAME) and len(live.rows()) == known + len(SAME))
    names = ("response_id", "prompt_tokens", "cached_tokens", "output_tokens", "status", "scope",
             "model", "stream", "n", "block_hashes", "content_hashes", "hash_key_id")  # fmt: skip
    inner, outer = (
        sorted([[row.get(name) for name in names] for row in rows], key=lambda row: str(row[0]))
        for rows in (live.rows()[known:], through.rows())
    )
    assert inner == outer


def test_load_of_many_streams(live: Live, workload: list[dict[str, Any]]) -> None:
    names = ("prompt_tokens_total", "prompt_tokens_cached_total")
    before, known = [live.counter(name) for name in names], len(live.rows())
    lock, texts = threading.Lock(), []

    def stream(number: int) -> None:
        messages = [{"role": "user", "content": f"{CANARY} {number % 5} " + "and then " * 40}]
        request = {**FIXED, "messages": messages, "stream": True, "cache_salt": f"s{number % 3}"}
        text = live.ask(CHAT, request)
        with lock:
            texts.append(text)

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(stream, range(64)))
    until(lambda: len(live.rows()) == known + 64)
    rows = live.rows()[known:]
    assert not any(b'"usage"' in text for text in texts)
    risen = [live.counter(name) - old for name, old in zip(names, before, strict=True)]
    assert [sum(row[name] for row in rows) for name in ("prompt_tokens", "cached_tokens")] == risen


def test_no_prompt_is_in_any_file(live: Live, workload: list[dict[str, Any]]) -> None:
    files = [path for path in live.folder.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"tap.ndjson", "vllm.log", "hash.key"}
    assert live.token_ids
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace")
        assert CANARY not in text
        assert "Question: " not in text
        for tokens in live.token_ids:
            assert ", ".join(map(str, tokens[:8])) not in text
            assert ",".join(map(str, tokens[:8])) not in text
