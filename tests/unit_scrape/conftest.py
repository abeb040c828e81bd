"""Real servers on loopback for scraping tests: well-behaved ones and hostile ones."""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

Pages = Mapping[str, tuple[str | None, str]]
Talk = Callable[[socket.socket], None]


@pytest.fixture
def serve() -> Iterator[Callable[[Pages], str]]:
    """Serves path -> (content type or None, body); other paths are 404. Gives the address.

    The mapping is read at each request, so that a test can change a page.
    """
    servers: list[ThreadingHTTPServer] = []

    def start(pages: Pages) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content_type, body = pages.get(self.path, (None, ""))
                self.send_response(200 if self.path in pages else 404)
                if content_type is not None:
                    self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def hostile() -> Iterator[Callable[[Talk], str]]:
    """A server that does to each connection whatever the test wants. Gives the address."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(talk: Talk) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:  # the test is over
                    return
                worker = threading.Thread(target=converse, args=(connection,), daemon=True)
                threads.append(worker)
                worker.start()

        def converse(connection: socket.socket) -> None:
            with connection:
                try:
                    talk(connection)
                except OSError:  # the scraper hung up, as it should
                    return

        acceptor = threading.Thread(target=accept, daemon=True)
        threads.append(acceptor)
        acceptor.start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join(timeout=5)
