import http.server
import json
import random
import threading
import time
from collections.abc import Iterator
from itertools import cycle, islice, pairwise, takewhile

import pytest

from prefixscope.demo_engine import traffic
from prefixscope.demo_engine.engine import BLOCK_TOKENS, BLOCKS
from prefixscope.demo_engine.model import LONGEST_TOKENS
from prefixscope.demo_engine.traffic import Call, Traffic, calls
from tests.running import eventually


def _some(stream: Iterator[Call], count: int) -> list[Call]:
    return list(islice(stream, count))


def _text(call: Call) -> str:
    return " ".join(message["content"] for message in call.messages)


def _shared(first: str, second: str) -> str:
    """What both begin with."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return "".join(letter for letter, _ in same)


def _chooser() -> random.Random:
    return random.Random(5)


def test_support_desk_shares_its_instruction_within_a_scope() -> None:
    found = _some(traffic.support_desk(_chooser()), 30)
    for call in found[1:]:
        assert len(_shared(_text(found[0]), _text(call)).split()) >= 650
    assert {call.salt for call in found if call.tenant == "cedar"} == {"cedar-only"}
    assert {call.salt for call in found if call.tenant != "cedar"} == {None}


def test_dated_report_shares_less_than_a_block() -> None:
    stream = traffic.dated_report(_chooser())
    first = next(stream)
    time.sleep(0.002)  # the time is told in milliseconds
    second = next(stream)
    # The model writes every byte of the time as one token.
    assert _shared(_text(first), _text(second)).startswith("Now: 20")
    assert len(_shared(_text(first), _text(second))) < BLOCK_TOKENS


def test_every_turn_repeats_the_one_before_it() -> None:
    turns = _some(traffic.conversation(_chooser()), 5)
    assert len({call.session for call in turns}) == 1
    for before, after in pairwise(turns):
        assert after.messages[: len(before.messages)] == before.messages
        assert len(after.messages) == len(before.messages) + 2
    assert [message["role"] for message in turns[1].messages] == [
        "system", "user", "assistant", "user",
    ]  # fmt: skip


def test_prompts_fit_the_model_and_together_not_the_memory() -> None:
    found = _some(calls(3), 400)
    # A word is a token; each message has a few tokens more, and its first word is told in bytes.
    longest = max(len(_text(call).split()) + 40 * len(call.messages) for call in found)
    assert longest + 16 < LONGEST_TOKENS
    distinct = {_text(call) for call in found}
    assert sum(len(text.split()) for text in distinct) > 3 * BLOCKS * BLOCK_TOKENS
    assert {call.template for call in found} == {
        "support-desk", "conversation", "search-answer", "dated-report", "extract-fields",
    }  # fmt: skip


def test_names_go_in_the_headers_the_tap_looks_at() -> None:
    call = Call("chat", "support", "acme", [], session="s-1", salt="mine")
    assert call.headers("id-1") == {
        "x-request-id": "id-1", "x-prefixscope-route": "chat",
        "x-prefixscope-template": "support", "x-prefixscope-template-version": "1",
        "x-prefixscope-tenant": "acme", "x-prefixscope-session": "s-1",
    }  # fmt: skip
    assert call.body()["cache_salt"] == "mine"
    assert "cache_salt" not in Call("chat", "support", "acme", []).body()


class _Engine(http.server.BaseHTTPRequestHandler):
    """Answers every other call, and refuses the rest."""

    ids: list[str]
    turns: Iterator[bool]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert body["stream"] is True
        self.ids.append(self.headers["x-request-id"])
        self.send_response(200 if next(self.turns) else 500)
        self.send_header("Content-Length", "14")
        self.end_headers()
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def engine() -> Iterator[str]:
    _Engine.ids, _Engine.turns = [], cycle([True, False])
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Engine) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_callers_go_on_after_a_refusal_and_stop_when_told(engine: str) -> None:
    going = Traffic(engine, pause_seconds=(0, 0.01))
    going.start()
    eventually("twenty calls", lambda: len(_Engine.ids) >= 20)
    going.stop()
    assert going.answered + going.failed == len(_Engine.ids)
    assert abs(going.answered - going.failed) <= 1
    assert len(set(_Engine.ids)) == len(_Engine.ids)
    asked = len(_Engine.ids)
    time.sleep(0.1)
    assert len(_Engine.ids) == asked
