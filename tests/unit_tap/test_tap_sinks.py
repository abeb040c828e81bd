import gzip
import json
import logging
import multiprocessing
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from exporter.sources import patterns
from prefixscope.tap.sinks import FileSink, PostSink, SinkDown, SinkWorker
from tests.running import free_port
from tests.unit_tap.scripted import Script, ask, tapped, until


def _lines(count: int, first: int = 0) -> list[bytes]:
    return [b'{"n":%d}\n' % number for number in range(first, first + count)]


def _read(folder: Path) -> list[int]:
    return [
        json.loads(line)["n"]
        for path in folder.glob("tap.ndjson*")
        for line in path.read_bytes().splitlines()
    ]


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_rotation_loses_no_row_and_keeps_files_small(tmp_path: Path, batch: int) -> None:
    sink = FileSink(tmp_path / "tap.ndjson", 100, 1000)
    for start in range(0, 1000, batch):
        sink.write(_lines(min(batch, 1000 - start), start))
    assert sorted(_read(tmp_path)) == list(range(1000))
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) > 90
    assert max(sizes) <= 100


def test_a_line_longer_than_a_file_has_one_to_itself(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "tap.ndjson", 10, 100)
    sink.write([b'{"n":1}\n', b'{"n":2,"long":"..........."}\n', b'{"n":3}\n'])
    assert sorted(_read(tmp_path)) == [1, 2, 3]
    assert len(list(tmp_path.iterdir())) == 3


def test_only_so_many_full_files_are_kept_and_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "tap.ndjson.notes").write_text("not ours")
    sink = FileSink(tmp_path / "tap.ndjson", 10, 3)
    sink.write(_lines(20))
    assert sorted(_read_kept(tmp_path)) == [16, 17, 18, 19]
    assert (tmp_path / "tap.ndjson.notes").exists()


def _read_kept(folder: Path) -> list[int]:
    (folder / "tap.ndjson.notes").rename(folder / "notes")
    found = _read(folder)
    (folder / "notes").rename(folder / "tap.ndjson.notes")
    return found


def test_full_files_are_found_by_whoever_follows_the_file(tmp_path: Path) -> None:
    FileSink(tmp_path / "tap.ndjson", 10, 9).write(_lines(3))
    followed, _ = patterns.matching(tmp_path / "tap.ndjson[._-]*")
    assert len(list(followed)) == 2


def test_a_file_moved_away_by_others_is_begun_anew(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "tap.ndjson", 1000, 9)
    sink.write(_lines(1))
    (tmp_path / "tap.ndjson").rename(tmp_path / "tap.ndjson.1")
    sink.write(_lines(1, 1))
    assert (tmp_path / "tap.ndjson").read_bytes() == b'{"n":1}\n'


def _write_many(folder: str, first: int) -> None:
    sink = FileSink(Path(folder) / "tap.ndjson", 300, 10_000)
    for number in range(first, first + 200):
        sink.write(_lines(1, number))


def test_several_processes_share_a_file_and_its_rotation(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [
        spawn.Process(target=_write_many, args=(str(tmp_path), first)) for first in (0, 200, 400)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(180)
        assert process.exitcode == 0
    assert sorted(_read(tmp_path)) == list(range(600))


# ---------------------------------------------------------------- over HTTP


class _Intake:
    """A small real HTTP server that answers with the statuses it is told, then with 200."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.location = "/"
        self.most_rows = 10_000
        self.rows: list[int] = []
        self.tokens: set[str | None] = set()
        intake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
                rows = [json.loads(line)["n"] for line in body.splitlines()]
                intake.tokens.add(self.headers["Authorization"])
                status = intake.statuses.pop(0) if intake.statuses else 200
                status = 413 if len(rows) > intake.most_rows else status
                if status == 200:
                    intake.rows += rows
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.send_header("Location", intake.location)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/requests?source=tap"


@pytest.fixture
def intake() -> Iterator[_Intake]:
    found = _Intake()
    thread = threading.Thread(target=found.server.serve_forever, args=(0.05,))
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


def test_rows_are_posted_with_the_token(intake: _Intake) -> None:
    assert PostSink(intake.url, "tok").write(_lines(3)) == 0
    assert intake.rows == [0, 1, 2]
    assert intake.tokens == {"Bearer tok"}


@pytest.mark.parametrize("status", [429, 500, 503, 401])
def test_a_busy_or_broken_intake_is_asked_again(intake: _Intake, status: int) -> None:
    intake.statuses = [status]
    with pytest.raises(SinkDown, match=str(status)):
        PostSink(intake.url, "").write(_lines(3))
    assert intake.rows == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_takes_no_rows_and_no_token_elsewhere(intake: _Intake, status: int) -> None:
    """As a POST it would arrive there as a GET, without rows, and be answered 200."""
    asked: list[str] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Authorization"])
            self.send_response(200)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as elsewhere:
        thread = threading.Thread(target=elsewhere.serve_forever, args=(0.05,))
        thread.start()
        intake.statuses, intake.location = [status], f"http://127.0.0.1:{elsewhere.server_port}/"
        with pytest.raises(SinkDown, match=f"redirects .{status}.: set PREFIXSCOPE_TAP_POST"):
            PostSink(intake.url, "tok").write(_lines(3))
        elsewhere.shutdown()
        thread.join()
    assert asked == []


def test_a_batch_that_is_too_large_is_halved(intake: _Intake) -> None:
    intake.most_rows = 3
    assert PostSink(intake.url, "").write(_lines(10)) == 0
    assert intake.rows == list(range(10))


def test_what_was_taken_of_a_halved_batch_is_not_sent_again(intake: _Intake) -> None:
    intake.most_rows, intake.statuses = 2, [200, 200, 503]
    with pytest.raises(SinkDown) as down:
        PostSink(intake.url, "").write(_lines(4))
    assert intake.rows == [0, 1]
    assert down.value.written_lines == 2


def test_what_the_intake_will_never_take_is_counted(
    intake: _Intake, caplog: pytest.LogCaptureFixture
) -> None:
    intake.statuses = [400]
    assert PostSink(intake.url, "secret-token").write(_lines(3)) == 3
    assert "refuses 3 rows with status 400" in caplog.text
    assert "secret-token" not in caplog.text


def test_nobody_listens_there() -> None:
    with pytest.raises(SinkDown, match="refused"):
        PostSink(f"http://127.0.0.1:{free_port()}/v1/requests", "").write(_lines(1))


def test_the_worker_tries_again_in_order_and_loses_nothing(intake: _Intake) -> None:
    intake.statuses = [503]
    worker = SinkWorker(PostSink(intake.url, ""), 1000)
    for line in _lines(700):
        assert worker.put(line)
    until(lambda: len(intake.rows) >= 700)
    worker.close(60)
    assert intake.rows == list(range(700))
    assert worker.dropped_rows == 0


def test_closing_waits_no_longer_than_told_and_says_what_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "logs").write_text("in the way")
    worker = SinkWorker(FileSink(tmp_path / "logs" / "tap.ndjson", 1000, 1), 10)
    taken = [worker.put(line) for line in _lines(12)]
    assert taken == [True] * 10 + [False] * 2
    worker.close(0.3)
    assert worker.dropped_rows == 12
    assert "10 rows could not be written before the end" in caplog.text


def test_a_tap_can_post_and_needs_no_file(
    intake: _Intake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with tapped(_Numbered(), tmp_path, file="", post=intake.url) as (port, _):
        for number in range(3):
            ask(port, {"model": "m", "messages": [], "n": number + 2})
    assert intake.rows == [2, 3, 4]
    assert list(tmp_path.iterdir()) == []


class _Numbered(Script):
    """Rows carry the number of choices, which the intake above reads."""
