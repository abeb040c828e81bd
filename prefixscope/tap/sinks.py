"""Where rows go: a file that is rotated, or an exporter's intake. Never on a request's path.

A sink that is down costs no request anything: rows wait in a bounded queue, further ones are
dropped and counted, and the next row that is written says how many.
"""

import fcntl
import gzip
import http.client
import logging
import os
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

tap_log = logging.getLogger("prefixscope.tap")

_BATCH_ROWS = 500
_BATCH_BYTES = 1_000_000
_WAITING_BYTES = 64_000_000
_POST_SECONDS = 10.0
_LONGEST_PAUSE_SECONDS = 30.0
_COMPLAINT_SECONDS = 60.0


class SinkDown(Exception):
    """Nothing can be written now. Says why, and how many lines in front were written before;
    the others are to be tried again."""

    def __init__(self, reason: str, written_lines: int = 0) -> None:
        super().__init__(reason)
        self.written_lines = written_lines


class Sink(Protocol):
    """`write` takes lines and returns how many of them nobody will ever take."""

    def write(self, lines: Sequence[bytes]) -> int: ...

    def close(self) -> None: ...


class FileSink:
    """Appends lines to a file, whole or not at all; a full file is renamed and a new one begun.

    Several processes may write to one file: a lock keeps their lines and their renaming apart.
    """

    def __init__(self, path: Path, most_bytes: int, files_kept: int) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._files_kept = files_kept
        self._descriptor: int | None = None
        self._renamed = 0

    def write(self, lines: Sequence[bytes]) -> int:
        written = 0
        try:
            while written < len(lines):
                written += self._append(lines[written:])
        except OSError as error:
            reason = f"{self._path}: {error.strerror or type(error).__name__}"
            raise SinkDown(reason, written) from error
        finally:
            self.close()  # which gives the lock back
        return 0

    def _opened(self) -> int:
        """The file by this name, locked; opened anew where it was renamed meanwhile."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o640)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            try:
                if os.path.samestat(os.fstat(self._descriptor), os.stat(self._path)):  # noqa: PTH116
                    return self._descriptor
            except FileNotFoundError:
                pass  # renamed by another process between the two calls
            self.close()

    def _append(self, lines: Sequence[bytes]) -> int:
        """Write as many lines as fit the file, at least one; their number."""
        descriptor = self._descriptor if self._descriptor is not None else self._opened()
        size = os.fstat(descriptor).st_size
        if size and size + len(lines[0]) > self._most_bytes:
            self._rename()
            descriptor = self._opened()
            size = os.fstat(descriptor).st_size
        count, total = 1, size + len(lines[0])
        while count < len(lines) and total + len(lines[count]) <= self._most_bytes:
            total += len(lines[count])
            count += 1
        self._write_whole(descriptor, b"".join(lines[:count]), size)
        return count

    @staticmethod
    def _write_whole(descriptor: int, text: bytes, size: int) -> None:
        """Half a line would be read as a broken one: a write that stops short is taken back."""
        try:
            written = 0
            while written < len(text):
                written += os.write(descriptor, text[written:])
        except OSError:
            os.ftruncate(descriptor, size)
            raise

    def _rename(self) -> None:
        self._renamed += 1
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        full = f"{self._path.name}.{stamp}-{os.getpid()}-{self._renamed:06d}"
        self._path.rename(self._path.with_name(full))
        self.close()
        older = sorted(self._path.parent.glob(f"{self._path.name}.*T*Z-*-*"))
        for path in older[: -self._files_kept]:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class _RefuseRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as a GET without rows, with our token, and be answered 200."""

    def redirect_request(self, *_arguments: object) -> None:
        """None: the redirect is the answer."""


class PostSink:
    """Sends lines to an exporter's /v1/requests. Rows carry ids, so that twice is once."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        # Without the proxies of the environment: an exporter is a neighbour.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), _RefuseRedirects
        )

    def write(self, lines: Sequence[bytes]) -> int:
        body = gzip.compress(b"".join(lines), 1)
        request = urllib.request.Request(self._url, body, self._headers)  # noqa: S310 - checked
        try:
            with self._opener.open(request, timeout=_POST_SECONDS) as reply:
                reply.read()
        except urllib.error.HTTPError as error:
            with error:
                return self._refused(error.code, lines)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise SinkDown(f"{self._url}: {reason}") from error
        return 0

    def _refused(self, status: int, lines: Sequence[bytes]) -> int:
        """Too many, or broken there: again later. Too large: in halves. Wrong: never again."""
        if status in (408, 425, 429) or status >= 500:
            raise SinkDown(f"{self._url} answers {status}")
        if 300 <= status < 400:
            raise SinkDown(
                f"{self._url} redirects ({status}): set PREFIXSCOPE_TAP_POST to the final address"
            )
        if status in (401, 403):
            raise SinkDown(f"{self._url} answers {status}: set PREFIXSCOPE_TAP_POST_TOKEN")
        if status == 413 and len(lines) > 1:
            return self._halves(lines)
        tap_log.warning("%s refuses %d rows with status %d", self._url, len(lines), status)
        return len(lines)

    def _halves(self, lines: Sequence[bytes]) -> int:
        half = len(lines) // 2
        refused = self.write(lines[:half])
        try:
            return refused + self.write(lines[half:])
        except SinkDown as error:
            raise SinkDown(str(error), half + error.written_lines) from error

    def close(self) -> None:
        """Nothing is kept open."""


class SinkWorker:
    """One thread that writes lines to one sink. `put` never waits and never raises."""

    def __init__(self, sink: Sink, most_rows: int) -> None:
        self._sink = sink
        self._most_rows = most_rows
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._writing = 0
        self._change = threading.Condition()
        self._closing_at: float | None = None
        self._complained_at = -_COMPLAINT_SECONDS
        self.dropped_rows = 0
        self._thread = threading.Thread(target=self._run, name="prefixscope-tap", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> bool:
        """Hand over a line; False where there is no room for it."""
        with self._change:
            room = len(self._lines) + self._writing < self._most_rows
            if not room or self._bytes + len(line) > _WAITING_BYTES:
                self.dropped_rows += 1
                return False
            self._lines.append(line)
            self._bytes += len(line)
            self._change.notify()
            return True

    def close(self, seconds: float) -> None:
        """Write what waits, but for no longer than `seconds`; the rest counts as dropped."""
        with self._change:
            self._closing_at = time.monotonic() + seconds
            self._change.notify()
        self._thread.join(seconds + 1)
        with self._change:
            lost = len(self._lines) + self._writing
            self.dropped_rows += lost
        if lost:
            tap_log.warning("%d rows could not be written before the end", lost)

    def _run(self) -> None:
        pause = 1.0
        while batch := self._take():
            try:
                refused = self._sink.write(batch)
            except SinkDown as error:
                self._complain(str(error))
                if not self._give_back(batch[error.written_lines :], pause):
                    break
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
                continue
            pause = 1.0
            with self._change:
                self._writing = 0
                self.dropped_rows += refused
        self._sink.close()

    def _take(self) -> list[bytes]:
        """The next lines; none where everything is written and the end has come."""
        with self._change:
            while not self._lines and self._closing_at is None:
                self._change.wait()
            batch: list[bytes] = []
            size = 0
            while self._lines and len(batch) < _BATCH_ROWS and size < _BATCH_BYTES:
                batch.append(self._lines.popleft())
                size += len(batch[-1])
            self._bytes -= size
            self._writing = len(batch)
            return batch

    def _give_back(self, lines: list[bytes], pause: float) -> bool:
        """Put lines back in front and wait; False where there is no time to try again."""
        with self._change:
            self._lines.extendleft(reversed(lines))
            self._bytes += sum(map(len, lines))
            self._writing = 0
            self._change.wait_for(lambda: self._closing_at is not None, pause)
            closing_at = self._closing_at
        if closing_at is None:
            return True
        time.sleep(0.1)
        return time.monotonic() < closing_at

    def _complain(self, reason: str) -> None:
        """At most once a minute; with numbers, without a line of content."""
        now = time.monotonic()
        if now - self._complained_at >= _COMPLAINT_SECONDS:
            self._complained_at = now
            tap_log.warning(
                "cannot write: %s; %d rows wait, %d were dropped; requests are not affected",
                reason, len(self._lines) + self._writing, self.dropped_rows,
            )  # fmt: skip
