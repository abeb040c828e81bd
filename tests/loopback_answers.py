"""A loopback server that answers what a test says: recorded pages, lists, refusals."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PROMETHEUS_TEXT = "text/plain; version=1.0.0; charset=utf-8"


@dataclass(frozen=True)
class Answer:
    """What comes back. `headers` replaces what the server would send, such as Date."""

    body: bytes | str = b""
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


def page(file: Path | str) -> Answer:
    """A metric page: as recorded, or text of the test's own."""
    return Answer(file.read_bytes() if isinstance(file, Path) else file, 200, PROMETHEUS_TEXT)


@dataclass
class Server:
    """Where it answers, from what, and what it was asked: `GET /metrics`. Answers may change."""

    url: str
    answers: dict[str, Answer]
    asked: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://")


@contextmanager
def answering(answers: Mapping[str, Answer]) -> Iterator[Server]:
    """Serve path -> answer (`POST /path` for posts, a path without its query); else 404."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    known = Server(f"http://127.0.0.1:{server.server_port}", dict(answers))
    server.RequestHandlerClass = _handler(known)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield known
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(known: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(self.path.partition("?")[0])

        def do_POST(self) -> None:
            known.bodies.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            self._answer(f"POST {self.path}")

        def _answer(self, key: str) -> None:
            known.asked.append(f"{self.command} {self.path}")
            answer = known.answers.get(key, Answer(status=404))
            body = answer.body.encode() if isinstance(answer.body, str) else answer.body
            self.send_response_only(answer.status)
            head = {"Content-Type": answer.content_type, "Date": self.date_time_string()}
            for name, value in {**head, **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
