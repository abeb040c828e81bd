"""The demo going on: new rows posted to the exporter, metric pages it can scrape, and events.

The traffic continues where its history ended, with the same sessions, caches and counters. It
comes at the pace of the history (several rows a minute), so that the load line has no step.
"""

import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread

import requests

from exporter.errors import PrefixscopeError
from prefixscope.demo.fleet import Call
from prefixscope.demo.pages import CONTENT_TYPE, metric_page
from prefixscope.demo.publishing import Endpoints, EventPublisher
from prefixscope.demo.rows import log_line
from prefixscope.demo.traffic import Traffic

POST_SECONDS = 2.0
REQUEST_TIMEOUT_SECONDS = 10.0
TRY_AGAIN_STATUS = (429, 502, 503, 504)

_log = logging.getLogger(__name__)


class LiveTraffic:
    """The running traffic behind a lock, and the rows nobody has fetched yet.

    `clock` returns Unix seconds; tests bring their own.
    """

    def __init__(self, traffic: Traffic, clock: Callable[[], float] = time.time) -> None:
        self._traffic = traffic
        self._clock = clock
        self._lock = Lock()
        self._ended: list[Call] = []

    def replica_names(self) -> list[str]:
        """Name the replicas whose pages can be asked for."""
        return [replica.name for replica in self._traffic.replicas]

    def page(self, replica_name: str) -> str | None:
        """Render a replica's metric page as of now; None for an unknown name."""
        with self._lock:
            self._ended += self._traffic.advance(self._clock())
            for replica in self._traffic.replicas:
                if replica.name == replica_name:
                    return metric_page(replica)
        return None

    def take_rows(self) -> dict[str, list[str]]:
        """Hand out, by source, the log lines of all calls that ended since the last time."""
        with self._lock:
            ended = self._ended + self._traffic.advance(self._clock())
            self._ended = []
        rows: dict[str, list[str]] = defaultdict(list)
        for call in ended:
            rows[call.template.source].append(log_line(call, self._traffic.names))
        return dict(rows)

    def event_batches(self, replica_name: str, first: int) -> list[tuple[int, bytes]]:
        """The batches of KV-cache events that are kept of a replica, from that number on."""
        with self._lock:
            self._ended += self._traffic.advance(self._clock())
            for replica in self._traffic.replicas:
                if replica.name == replica_name:
                    replica.events.flush()
                    return [batch for batch in replica.events.batches if batch[0] >= first]
        return []


class LiveDemo:
    """Serves one metric page a replica on loopback and posts new rows to the exporter at `url`.

    The pages answer from construction on, so that the exporter can be told of `targets` before
    it starts. `token` is the exporter's, where it wants one.
    """

    def __init__(
        self,
        traffic: Traffic,
        url: str,
        *,
        token: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._live = LiveTraffic(traffic, clock)
        self._address = url.rstrip("/") + "/v1/requests"
        self._headers = {"Content-Type": "application/x-ndjson"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._unsent: dict[str, list[str]] = defaultdict(list)
        self._events = EventPublisher(self._live.replica_names(), self._live.event_batches)
        self._server = _page_server(self._live)
        self._thread = Thread(target=self._server.serve_forever, name="demo-pages", daemon=True)
        self._thread.start()

    @property
    def targets(self) -> dict[str, str]:
        """Replica name -> address of its metric page."""
        port = self._server.server_port
        return {
            name: f"http://127.0.0.1:{port}/{name}/metrics" for name in self._live.replica_names()
        }

    @property
    def event_endpoints(self) -> dict[str, Endpoints]:
        """Replica name -> where its KV-cache events are published."""
        return self._events.endpoints

    def run(self, stop: Event) -> None:
        """Post rows every two seconds until `stop` is set, then close the pages too."""
        try:
            while not stop.wait(POST_SECONDS):
                self.post_rows()
        finally:
            self.close()

    def post_rows(self) -> int:
        """Post what has ended so far; returns the rows the exporter took.

        While it does not answer or is full, rows are kept for the next time. Any other refusal
        raises PrefixscopeError with what it said.
        """
        for source, lines in self._live.take_rows().items():
            self._unsent[source] += lines
        posted = 0
        for source, lines in self._unsent.items():
            if lines and self._post(source, lines):
                posted += len(lines)
                self._unsent[source] = []
        return posted

    def close(self) -> None:
        """Stop serving pages and publishing events."""
        self._events.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _post(self, source: str, lines: list[str]) -> bool:
        try:
            answer = requests.post(
                self._address,
                params={"source": source, "format": "ndjson"},
                data="".join(lines).encode(),
                headers=self._headers,
                timeout=REQUEST_TIMEOUT_SECONDS,
            )
        except (requests.ConnectionError, requests.Timeout) as error:
            _log.warning("%d demo rows wait: %s does not answer (%s)",
                         len(lines), self._address, type(error).__name__)  # fmt: skip
            return False
        if answer.status_code in TRY_AGAIN_STATUS:
            return False
        if answer.status_code != 200:
            raise PrefixscopeError(
                f"{self._address} refused the demo's rows with status {answer.status_code}: "
                f"{answer.text[:200]}"
            )
        return True


def _page_server(live: LiveTraffic) -> ThreadingHTTPServer:
    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            replica_name, _, page_name = self.path.strip("/").partition("/")
            page = live.page(replica_name) if page_name == "metrics" else None
            if page is None:
                names = [f"/{name}/metrics" for name in live.replica_names()]
                self._answer(404, "application/json", json.dumps({"pages": names}))
            else:
                self._answer(200, CONTENT_TYPE, page)

        def _answer(self, status: int, content_type: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            _log.debug(format, *args)

    return ThreadingHTTPServer(("127.0.0.1", 0), Pages)
