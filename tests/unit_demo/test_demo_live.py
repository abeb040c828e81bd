"""The demo going on, against a stand-in for the exporter that only remembers what it got."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from exporter.errors import PrefixscopeError
from prefixscope.demo import LiveDemo, live
from prefixscope.demo.traffic import Traffic
from tests.running import eventually

HISTORY_END = 7_200.0


class Exporter(HTTPServer):
    """Answers `statuses` in turn, then 200; keeps the rows of the requests it accepted."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses: list[int] = []
        self.rows: list[dict[str, Any]] = []
        self.asked: list[tuple[str, dict[str, list[str]], str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Exporter

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        address = urlsplit(self.path)
        self.server.asked.append(
            (address.path, parse_qs(address.query), self.headers["Authorization"])
        )
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        if status == 200:
            self.server.rows += [json.loads(line) for line in body.splitlines()]
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    server = Exporter()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


class Clock:
    def __init__(self) -> None:
        self.now = HISTORY_END

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def demo(exporter: Exporter, clock: Clock) -> Iterator[LiveDemo]:
    traffic = Traffic(start=0, end=HISTORY_END, requests_per_second=0.1, seed=7)
    traffic.advance(HISTORY_END)
    demo = LiveDemo(traffic, exporter.url, token="secret", clock=clock)
    yield demo
    demo.close()


def prompt_tokens(address: str) -> int:
    answer = requests.get(address, timeout=60)
    assert answer.status_code == 200
    families = text_string_to_metric_families(answer.text)
    return round(next(f.samples[0].value for f in families if f.name == "vllm:prompt_tokens"))


def test_pages_rise_by_the_rows_that_are_posted(
    demo: LiveDemo, exporter: Exporter, clock: Clock
) -> None:
    before = {replica: prompt_tokens(address) for replica, address in demo.targets.items()}
    assert list(before) == [f"replica-{number}" for number in range(4)]
    posted = 0
    for _ in range(10):
        clock.now += 60
        posted += demo.post_rows()
    after = {replica: prompt_tokens(address) for replica, address in demo.targets.items()}
    assert posted == len(exporter.rows) > 50
    for replica, tokens in before.items():
        own = [row for row in exporter.rows if row.get("replica") == replica]
        assert after[replica] - tokens == sum(row["prompt_tokens"] for row in own) > 0


def test_rows_name_their_source_and_carry_the_token(
    demo: LiveDemo, exporter: Exporter, clock: Clock
) -> None:
    clock.now += 1_200
    demo.post_rows()
    sources = {query["source"][0] for _, query, _ in exporter.asked}
    assert sources == {"demo-gateway", "demo-legacy-gateway"}
    assert {(path, token) for path, _, token in exporter.asked} == {
        ("/v1/requests", "Bearer secret")
    }


def test_a_scrape_between_two_posts_loses_no_row(
    demo: LiveDemo, exporter: Exporter, clock: Clock
) -> None:
    address = demo.targets["replica-0"]
    before = prompt_tokens(address)
    clock.now += 600
    after = prompt_tokens(address)
    demo.post_rows()
    own = [row for row in exporter.rows if row.get("replica") == "replica-0"]
    assert after - before == sum(row["prompt_tokens"] for row in own) > 0


@pytest.mark.parametrize("status", [429, 503])
def test_rows_are_kept_while_the_exporter_is_full_or_away(
    demo: LiveDemo, exporter: Exporter, clock: Clock, status: int
) -> None:
    exporter.statuses = [status, status]
    clock.now += 600
    assert demo.post_rows() == 0
    assert exporter.rows == []
    assert demo.post_rows() == len(exporter.rows) > 0
    keys = [(row["request_id"], row["attempt"]) for row in exporter.rows]
    assert len(set(keys)) == len(keys)
    assert demo.post_rows() == 0


def test_rows_are_kept_while_nobody_listens(clock: Clock) -> None:
    traffic = Traffic(start=0, end=HISTORY_END, requests_per_second=0.1, seed=7)
    traffic.advance(HISTORY_END)
    with HTTPServer(("127.0.0.1", 0), _Handler) as closed:
        url = f"http://127.0.0.1:{closed.server_port}"
    demo = LiveDemo(traffic, url, clock=clock)
    clock.now += 600
    assert demo.post_rows() == 0
    demo.close()


def test_a_refusal_is_told(demo: LiveDemo, exporter: Exporter, clock: Clock) -> None:
    exporter.statuses = [401]
    clock.now += 600
    with pytest.raises(PrefixscopeError, match="status 401"):
        demo.post_rows()


def test_unknown_pages_are_not_found(demo: LiveDemo) -> None:
    address = demo.targets["replica-0"]
    for wrong in (address.replace("replica-0", "replica-9"), address.removesuffix("/metrics")):
        answer = requests.get(wrong, timeout=60)
        assert answer.status_code == 404
        assert "/replica-0/metrics" in answer.json()["pages"]


def test_run_posts_until_it_is_stopped_and_closes_the_pages(
    exporter: Exporter, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "POST_SECONDS", 0.01)
    traffic = Traffic(start=0, end=HISTORY_END, requests_per_second=0.1, seed=7)
    traffic.advance(HISTORY_END)
    demo = LiveDemo(traffic, exporter.url, clock=clock)
    clock.now += 600
    stop = Event()
    thread = Thread(target=demo.run, args=(stop,))
    thread.start()
    eventually("posted row", lambda: exporter.rows)
    stop.set()
    thread.join()
    assert exporter.rows
    with pytest.raises(requests.ConnectionError):
        requests.get(demo.targets["replica-0"], timeout=60)
