"""What a client receives is the same with and without the tap, as middleware and as proxy."""

import gzip
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit_tap.scripted import (
    CHAT,
    USAGE,
    Reply,
    Script,
    ask,
    chat_stream,
    chunk,
    rows_in,
    serving,
    tapped,
    usage_chunk,
)

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

Pieces = Callable[[dict[str, Any]], list[bytes]]

STREAM: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "hello"}],
    "stream": True,
}
REQUESTS = {
    "streamed": STREAM,
    "usage asked": {**STREAM, "stream_options": {"include_usage": True}},
    "usage declined": {**STREAM, "stream_options": {"include_usage": False}},
    "options null": {**STREAM, "stream_options": None},
    "not streamed": {**STREAM, "stream": False},
    "large answer": {**STREAM, "stream": False, "repeat": 30_000},
    "two choices": {**STREAM, "n": 2},
    "tool calls": {**STREAM, "tools": [{"type": "function", "function": {"name": "f"}}]},
    "cut in bytes": {**STREAM, "cut": 1},
    "cut in sevens": {**STREAM, "cut": 7},
    "one piece": {**STREAM, "cut": 1_000_000},
    "carriage returns": {**STREAM, "case": "crlf", "cut": 3},
    "gzip": {**STREAM, "stream": False, "case": "gzip"},
    "bad request": {**STREAM, "case": "status 400"},
    "engine dead": {**STREAM, "case": "status 503"},
    "raises": {**STREAM, "case": "raises"},
    "breaks": {**STREAM, "case": "breaks"},
    "a megabyte": {**STREAM, "messages": [{"role": "user", "content": "long " * 210_000}]},
    "no json": b"this is { no json",
}


@pytest.fixture(scope="module")
def plain() -> Iterator[int]:
    with serving(Script()) as port:
        yield port


@pytest.fixture(scope="module", params=["middleware", "proxy"])
def proxied(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "proxy")


@pytest.fixture(scope="module", params=["quiet", "asking"])
def with_tap(
    request: pytest.FixtureRequest, proxied: bool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    asking = request.param == "asking"
    folder = tmp_path_factory.mktemp("tap")
    with tapped(Script(), folder, proxied, include_usage=asking) as (port, _):
        yield port


def _alike(reply: Reply) -> tuple[Any, ...]:
    # The order in which a server puts its own headers is not the answer's; nor is the fate of one
    # connection that of another.
    headers = sorted(pair for pair in reply.headers if pair[0].lower() != "connection")
    return reply.status, headers, reply.body, reply.cut_short


def _unpacked(reply: Reply) -> Reply:
    """What a client makes of a compressed answer."""
    if ("content-encoding", "gzip") not in reply.headers:
        return reply
    headers = [pair for pair in reply.headers if pair[0] != "content-encoding"]
    return replace(reply, headers=headers, body=gzip.decompress(reply.body))


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=list(REQUESTS))
def test_bytes_are_identical(plain: int, with_tap: int, request_: object) -> None:
    for headers in ({}, {"Accept-Encoding": "gzip"}):
        assert _alike(ask(with_tap, request_, CHAT, headers)) == _alike(
            ask(plain, request_, CHAT, headers)
        )


def test_a_compressed_stream_is_asked_for_as_it_is_only_where_it_must_be_changed(
    plain: int, proxied: bool, tmp_path: Path
) -> None:
    request, headers = {**STREAM, "case": "gzip"}, {"Accept-Encoding": "gzip"}
    expected = ask(plain, request, CHAT, headers)
    assert ("content-encoding", "gzip") in expected.headers
    with tapped(Script(), tmp_path / "quiet", proxied) as (port, _):
        assert _alike(ask(port, request, CHAT, headers)) == _alike(expected)
    with tapped(Script(), tmp_path / "asking", proxied, include_usage=True) as (port, _):
        assert _alike(ask(port, request, CHAT, headers)) == _alike(_unpacked(expected))
    (asking,) = rows_in(tmp_path / "asking")
    assert asking["cached_tokens"] == 768


@pytest.mark.parametrize("path", ["/v1/models?x=%2F", "/health", "/v1/embeddings"])
def test_other_paths_pass(plain: int, with_tap: int, path: str) -> None:
    assert _alike(ask(with_tap, STREAM, path)) == _alike(ask(plain, STREAM, path))


def _null_usage(request: dict[str, Any]) -> list[bytes]:
    """As the API is specified: where usage is asked for, every event has it, mostly null."""
    asked = (request.get("stream_options") or {}).get("include_usage")
    nothing: dict[str, object] = {"usage": None} if asked else {}
    events = [chunk({"content": '"usage":null,'}, **nothing), chunk({}, "stop", **nothing)]
    return [*events, *([usage_chunk()] if asked else []), b"data: [DONE]\n\n"]


def _timings(request: dict[str, Any]) -> list[bytes]:
    """As llama.cpp: its timings stand in the last event, whichever that is."""
    asked = (request.get("stream_options") or {}).get("include_usage")
    timings = {"timings": {"prompt_ms": 12.50, "prompt_n": 3}}
    if asked:
        return [chunk({"content": "a"}), chunk({}, "stop"), usage_chunk(**timings)]
    return [chunk({"content": "a"}), chunk({}, "stop", **timings)]


@pytest.mark.parametrize("pieces", [_null_usage, _timings])
@pytest.mark.parametrize("cut", [None, 1, 5])
def test_what_other_servers_do_when_asked_is_undone(
    tmp_path: Path, pieces: Pieces, cut: int | None
) -> None:
    request = {**STREAM, **({} if cut is None else {"cut": cut})}
    with serving(Script(pieces)) as port:
        expected = ask(port, request)
    script = Script(pieces)
    with tapped(script, tmp_path, include_usage=True) as (port, _):
        assert ask(port, request).body == expected.body
    assert script.seen[0]["stream_options"] == {"include_usage": True}
    (row,) = rows_in(tmp_path)
    assert row["cached_tokens"] == 768


def test_null_usage_can_be_kept_where_the_server_always_writes_it(tmp_path: Path) -> None:
    def always_null(request: dict[str, Any]) -> list[bytes]:
        return [chunk({"content": "a"}, usage=None), chunk({}, "stop", usage=None), usage_chunk()]

    with tapped(Script(always_null), tmp_path, include_usage=True, null_usage="keep") as (port, _):
        assert ask(port, STREAM).body == b"".join(always_null({})[:2])


def test_options_of_the_client_survive_except_the_one_that_would_show(tmp_path: Path) -> None:
    script = Script()
    options = {"include_usage": False, "continuous_usage_stats": True, "other": 1}
    with tapped(script, tmp_path, include_usage=True) as (port, _):
        ask(port, {**STREAM, "stream_options": options, "text": "\ud800"})
    assert script.seen[0]["stream_options"] == {"other": 1, "include_usage": True}
    assert script.seen[0]["messages"] == STREAM["messages"]
    assert script.seen[0]["text"] == "\ud800"


def test_nothing_is_asked_unless_it_is_wanted(tmp_path: Path) -> None:
    script = Script()
    with tapped(script, tmp_path) as (port, _):
        ask(port, STREAM)
    assert script.seen == [STREAM]


def test_a_client_that_asked_sees_its_usage(tmp_path: Path) -> None:
    script = Script()
    request = REQUESTS["usage asked"]
    with tapped(script, tmp_path, include_usage=True) as (port, _):
        body = ask(port, request).body
    assert body == b"".join(chat_stream({"stream_options": {"include_usage": True}}))
    assert str(USAGE["prompt_tokens"]).encode() in body
