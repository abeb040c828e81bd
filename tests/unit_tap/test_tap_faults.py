"""The tap when something breaks: its sink, the disk, the client, the load."""

import asyncio
import http.client
import json
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from prefixscope.tap import Tap
from tests.running import ENVIRONMENT, ROOT, free_port
from tests.unit_tap.scripted import (
    CHAT,
    Script,
    ask,
    chunk,
    rows_in,
    serving,
    tap_settings_for,
    tapped,
    until,
    usage_chunk,
)

MESSAGES = [{"role": "user", "content": "hello"}]
STREAM: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "stream": True}
ASKED = {**STREAM, "stream_options": {"include_usage": True}}


def _leave_early(port: int, request: object) -> None:
    """Read the beginning of a stream and close the connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", CHAT, json.dumps(request), {"Content-Type": "application/json"})
    connection.getresponse().read(300)
    connection.close()


@pytest.mark.parametrize("asking", [False, True])
@pytest.mark.parametrize("proxied", [False, True], ids=["middleware", "proxy"])
def test_t42_a_client_that_leaves_is_noticed_upstream_and_recorded(
    tmp_path: Path, proxied: bool, asking: bool
) -> None:
    script = Script(lambda _: [chunk({"role": "assistant"}), chunk({"content": "a"})])
    with tapped(script, tmp_path, proxied, include_usage=asking) as (port, _):
        _leave_early(port, {**STREAM, "case": "endless", "pause": 0.01})
        assert script.left.wait(60), "the engine goes on for nobody"
    (row,) = rows_in(tmp_path)
    assert row["status"] == "cancelled"
    assert row["ttft_seconds"] > 0
    assert not {"prompt_tokens", "cached_tokens", "output_tokens"} & set(row)


def test_a_client_that_closes_at_the_last_event_has_had_it_all(tmp_path: Path) -> None:
    script = Script()
    with tapped(script, tmp_path) as (port, _):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", CHAT, json.dumps({**ASKED, "linger": 60}))
        for line in connection.getresponse():
            if line.startswith(b"data: [DONE]"):
                break
        connection.close()
        until(lambda: bool(rows_in(tmp_path)))
    assert script.left.is_set()
    (row,) = rows_in(tmp_path)
    assert (row["status"], row["cached_tokens"]) == ("ok", 768)


def test_a_client_that_leaves_before_its_request_is_whole(tmp_path: Path) -> None:
    with tapped(Script(), tmp_path, proxied=True) as (port, _):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"
            )
            time.sleep(0.2)
        ask(port, STREAM)
    assert [row["status"] for row in rows_in(tmp_path)] == ["cancelled", "ok"]


def test_no_engine_behind_the_proxy(tmp_path: Path) -> None:
    from prefixscope.tap_proxy import Upstream

    tap = Tap(Upstream(f"http://127.0.0.1:{free_port()}"), tap_settings_for(tmp_path))
    with serving(tap, as_proxy=True) as port:
        reply = ask(port, STREAM)
    assert reply.status == 502
    assert b"no answer from the engine: ConnectError" in reply.body
    (row,) = rows_in(tmp_path)
    assert (row["status"], row["http_status"]) == ("error", 502)


# ---------------------------------------------------------------- the sink


def test_a_sink_that_is_down_costs_requests_nothing_and_rows_wait(tmp_path: Path) -> None:
    """The folder of the file is a file; later it is made right."""
    in_the_way = tmp_path / "logs"
    in_the_way.write_text("not a folder")
    key = tmp_path / "key"
    settings = {"file": str(in_the_way / "tap.ndjson"), "key_file": str(key)}
    with serving(Script()) as port:
        expected = ask(port, STREAM)
    with tapped(Script(), tmp_path, **settings) as (port, _):
        for _ in range(20):
            assert ask(port, STREAM).body == expected.body
        in_the_way.unlink()
        ask(port, ASKED)
    assert len(rows_in(in_the_way)) == 21


def test_rows_that_find_no_room_are_counted_in_the_next_row(tmp_path: Path) -> None:
    in_the_way = tmp_path / "logs"
    in_the_way.write_text("not a folder")
    settings = {"file": str(in_the_way / "tap.ndjson"), "key_file": str(tmp_path / "key")}
    with tapped(Script(), tmp_path, **settings, queue_rows=5) as (port, tap):
        for _ in range(12):
            ask(port, STREAM)
            time.sleep(0.02)
        until(lambda: tap.recorder.dropped_rows == 7)
        in_the_way.unlink()
        until(lambda: len(rows_in(in_the_way)) == 5)
        ask(port, STREAM)
    rows = rows_in(in_the_way)
    assert len(rows) == 6
    assert rows[-1]["tap"] == {"rows_dropped": 7, "hashes_dropped": 0}
    assert "tap" not in rows[0]


FULL_DISK = """
import io, json, logging, resource, signal, sys, pathlib, time
from tests.unit_tap.scripted import Script, ask, tapped
folder = pathlib.Path(sys.argv[1])
logged = io.StringIO()
logging.getLogger("prefixscope.tap").addHandler(logging.StreamHandler(logged))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
request = {"model": "tiny", "messages": [], "stream": True}
with tapped(Script(), folder) as (port, tap):
    plain = [ask(port, request).body for _ in range(3)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    full = [ask(port, request).body for _ in range(30)]
    deadline = time.monotonic() + 60  # the rows are written beside the requests
    while "cannot write" not in logged.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    full.append(ask(port, request).body)
print(len(set(plain + full)), tap.recorder.dropped_rows)
print(logged.getvalue(), file=sys.stderr)
"""


def test_a_full_disk_costs_requests_nothing_and_leaves_whole_lines(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk; it is lifted in the end."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)],
        cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
    assert done.stdout == "1 0\n"
    assert len(rows_in(tmp_path)) == 34  # every line is whole and none is there twice
    assert len({(row["ts"], row["e2e_seconds"]) for row in rows_in(tmp_path)}) == 34
    assert "cannot write" in done.stderr
    assert "requests are not affected" in done.stderr


@pytest.mark.parametrize("proxied", [False, True], ids=["middleware", "proxy"])
def test_a_mistake_of_the_tap_itself_reaches_no_client(
    tmp_path: Path, proxied: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*arguments: object) -> None:
        raise KeyError("CANARY in the text of an error")

    with serving(Script()) as port:
        expected = ask(port, STREAM).body
    for name in ("prefixscope.tap.watching.StreamWatch.feed", "prefixscope.tap.recorder.row_of"):
        with monkeypatch.context() as patch:
            patch.setattr(name, broken)
            with tapped(Script(), tmp_path, proxied) as (port, tap):
                assert ask(port, STREAM).body == expected
                recorder = tap.recorder
            assert recorder.faults >= 1
    assert "KeyError" in caplog.text
    assert "CANARY" not in caplog.text


NO_LIFESPAN = """
import asyncio, sys, pathlib
from prefixscope.tap import Tap
from tests.unit_tap.scripted import respond, tap_settings_for
async def app(scope, receive, send):
    assert scope["type"] == "http"
    await respond(send, 200, b"{}")
async def receive():
    return {"type": "http.request", "body": b"{}", "more_body": False}
async def send(message):
    pass
tap = Tap(app, tap_settings_for(pathlib.Path(sys.argv[1])))
scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
async def main():
    for _ in range(50):
        await tap(scope, receive, send)
asyncio.run(main())
"""


def test_rows_are_written_where_the_application_has_no_lifespan(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", NO_LIFESPAN, str(tmp_path)],
        cwd=ROOT, env=ENVIRONMENT, timeout=180, check=True,
    )  # fmt: skip
    assert len(rows_in(tmp_path)) == 50


# ---------------------------------------------------------------- load


async def _one_stream(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST %b HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        % (CHAT.encode(), len(request)) + request
    )  # fmt: skip
    reply = await reader.read()
    writer.close()
    return reply.split(b"\r\n\r\n", 1)[1]


async def _streams(port: int, request: bytes, count: int) -> list[bytes]:
    return await asyncio.gather(*(_one_stream(port, request) for _ in range(count)))


def test_two_hundred_streams_at_once_are_identical_and_memory_is_flat(tmp_path: Path) -> None:
    """Every stream is 200 kB. Kept whole, 200 of them would be 40 MB."""
    events = [chunk({"content": "x" * 5000}) for _ in range(40)]
    script = Script(lambda _: [*events, chunk({}, "stop"), usage_chunk(), b"data: [DONE]\n\n"])
    request = json.dumps({**ASKED, "pause": 0.001}).encode()
    with tapped(script, tmp_path) as (port, _):
        asyncio.run(_streams(port, request, 20))
        tracemalloc.start()
        try:
            watched = _Peak()
            replies = asyncio.run(_streams(port, request, 200))
            assert len(set(replies)) == 1
            replies.clear()
            peak = watched.end()
        finally:
            tracemalloc.stop()
    assert peak < 4_000_000
    rows = rows_in(tmp_path)
    assert len(rows) == 220
    assert {row["cached_tokens"] for row in rows} == {768}


class _Peak:
    """The most memory that lines of the tap held at any look."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._peak = 0
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        only = tracemalloc.Filter(True, "*/prefixscope/tap/*")
        while not self._stop.wait(0.3):
            held = tracemalloc.take_snapshot().filter_traces([only]).statistics("filename")
            self._peak = max(self._peak, sum(part.size for part in held))

    def end(self) -> int:
        self._stop.set()
        self._thread.join()
        return self._peak
