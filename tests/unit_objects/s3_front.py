"""A front before an S3 server on loopback that breaks answers as networks and stores do.

Everything is passed on as it is, but for what a test asks: each fault is taken once for each
time it was given, by the object's name.
"""

import http.client
import threading
from collections import defaultdict
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

DROP = "the connection ends before any answer"
CUT = "the connection ends in the middle of the body"
SHORT = "the answer is complete in itself and holds half of the object"
DENIED = "403"
SLOW_DOWN = "503"


class Front:
    """`faults[key]` are the next faults of an object; `listed` is called before each listing
    page is passed on, with its number from 1."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self.faults: dict[str, list[str]] = defaultdict(list)
        self.listed: Callable[[int], None] = lambda number: None
        self.gets: list[str] = []
        self.pages = 0
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                front.answer(self, upstream)

            do_HEAD = do_GET  # noqa: N815 - the name http.server looks for

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: pytest shows what failed."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def answer(self, handler: BaseHTTPRequestHandler, upstream: tuple[str, int]) -> None:
        parts = urlsplit(handler.path)
        _, _, key = unquote(parts.path).lstrip("/").partition("/")
        if "list-type" in parse_qs(parts.query):
            self.pages += 1
            self.listed(self.pages)
        elif handler.command == "GET":
            self.gets.append(key)
        fault = self.faults[key].pop(0) if self.faults.get(key) else None
        if fault in (DENIED, SLOW_DOWN):
            self._refuse(handler, fault)
            return
        if fault == DROP:
            handler.close_connection = True
            return
        connection = http.client.HTTPConnection(*upstream, timeout=30)
        headers = {k: v for k, v in handler.headers.items() if k.lower() != "connection"}
        connection.request(handler.command, handler.path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        self._pass_on(handler, answer, body, fault)

    def _refuse(self, handler: BaseHTTPRequestHandler, status: str) -> None:
        code = {"403": "AccessDenied", "503": "SlowDown"}[status]
        body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
        handler.send_response(int(status))
        handler.send_header("Content-Type", "application/xml")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    def _pass_on(
        self,
        handler: BaseHTTPRequestHandler,
        answer: http.client.HTTPResponse,
        body: bytes,
        fault: str | None,
    ) -> None:
        sent = body[: len(body) // 2] if fault in (CUT, SHORT) else body
        stated = len(sent) if fault == SHORT else len(body)
        handler.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                handler.send_header(name, value)
        if handler.command == "HEAD":
            stated = int(answer.getheader("Content-Length") or 0)
        handler.send_header("Content-Length", str(stated))
        handler.end_headers()
        handler.wfile.write(sent)
        if fault == CUT:
            handler.close_connection = True
