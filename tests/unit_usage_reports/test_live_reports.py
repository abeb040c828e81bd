"""A report straight from the provider, with a loopback server in the provider's place."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from exporter.sources.fetch import FetchLimits
from exporter.sources.usage_reports.anthropic import ANTHROPIC
from exporter.sources.usage_reports.fetch import PAUSES_SECONDS, fetch_report, key_from
from exporter.sources.usage_reports.openai import OPENAI
from exporter.sources.usage_reports.report import Gathered
from exporter.sources.usage_reports.table import Grain, ReportProblem, ReportTable

SAVED = Path(__file__).parent / "saved"
SECRET = "sk-admin-cAnArY-0123456789"  # what must show nowhere
KEYS = {"OPENAI_ADMIN_KEY": SECRET, "ANTHROPIC_ADMIN_KEY": SECRET}
SINCE = datetime(2026, 11, 3, 15, 30, tzinfo=UTC)
UNTIL = datetime(2026, 11, 6, 7, 1, tzinfo=UTC)
Reply = tuple[int, Mapping[str, str], bytes]


@dataclass
class Provider:
    """Answers page by page; keeps what it was asked and with which headers."""

    reply: Callable[[Mapping[str, list[str]], int], Reply]
    asked: list[dict[str, list[str]]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""


@contextmanager
def serving(provider: Provider) -> Iterator[Provider]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            provider.asked.append(query)
            provider.headers.append({name.lower(): value for name, value in self.headers.items()})
            status, headers, body = provider.reply(query, len(provider.asked))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.url = f"http://127.0.0.1:{server.server_port}/usage"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def pages(name: str) -> Callable[[Mapping[str, list[str]], int], Reply]:
    """The saved pages, found by their token as the provider does."""
    text = (SAVED / name).read_text()
    known: list[Any] = (
        [json.loads(line) for line in text.splitlines()] if "nd" in name else json.loads(text)
    )
    by_token = {None: known[0], known[0]["next_page"]: known[1]}

    def reply(query: Mapping[str, list[str]], _number: int) -> Reply:
        return 200, {}, json.dumps(by_token[query.get("page", [None])[0]]).encode()

    return reply


def fetched(
    table: ReportTable, provider: Provider, *, waited: list[float] | None = None,
    grain: Grain = "1d", until: datetime | None = None,
) -> Gathered:  # fmt: skip
    return fetch_report(
        replace(table, url=provider.url), SINCE, until, grain=grain, environment=KEYS,
        pause=(waited if waited is not None else []).append, limits=FetchLimits(5, 10, 1 << 20),
    )  # fmt: skip


def test_openai_is_read_page_by_page() -> None:
    with serving(Provider(pages("openai-pages.json"))) as provider:
        found = fetched(OPENAI, provider)
    assert sum(row.prompt_tokens for row in found.report(SINCE).rows) == 237_444
    assert [query.get("page") for query in provider.asked] == [None, ["page_AAAAAGkJ7YA="]]
    first = provider.asked[0]
    assert first["start_time"] == [str(int(datetime(2026, 11, 3, tzinfo=UTC).timestamp()))]
    assert (first["bucket_width"], first["limit"]) == (["1d"], ["31"])
    assert first["group_by"] == ["model", "project_id"]
    assert "end_time" not in first
    assert provider.headers[1]["authorization"] == f"Bearer {SECRET}"


def test_anthropic_is_read_page_by_page() -> None:
    with serving(Provider(pages("anthropic-pages.ndjson"))) as provider:
        found = fetched(ANTHROPIC, provider, grain="1h", until=UNTIL)
    assert sum(row.cached_tokens or 0 for row in found.report(SINCE).rows) == 259_200
    first = provider.asked[0]
    assert first["starting_at"] == ["2026-11-03T15:00:00Z"]
    assert first["ending_at"] == ["2026-11-06T08:00:00Z"], "the end of the bucket it is in"
    assert (first["bucket_width"], first["limit"]) == (["1h"], ["168"])
    assert first["group_by[]"] == ["model", "workspace_id"]
    assert provider.headers[0]["x-api-key"] == SECRET
    assert provider.headers[0]["anthropic-version"] == "2023-06-01"
    assert "authorization" not in provider.headers[0]


def after(refusals: list[Reply]) -> Callable[[Mapping[str, list[str]], int], Reply]:
    whole = pages("openai-pages.json")

    def reply(query: Mapping[str, list[str]], number: int) -> Reply:
        return refusals[number - 1] if number <= len(refusals) else whole(query, number)

    return reply


def test_busy_servers_are_asked_again_when_they_say() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=50), usegmt=True)
    refusals: list[Reply] = [
        (429, {"Retry-After": "7"}, b""), (529, {}, b""), (503, {"Retry-After": soon}, b""),
    ]  # fmt: skip
    waited: list[float] = []
    with serving(Provider(after(refusals))) as provider:
        found = fetched(OPENAI, provider, waited=waited)
    assert found.pages == 2
    assert waited[:2] == [7.0, PAUSES_SECONDS[1]]
    assert PAUSES_SECONDS[2] < waited[2] <= 50
    assert len(provider.asked) == 5


def test_a_server_that_stays_busy_is_left_alone() -> None:
    waited: list[float] = []
    with (
        serving(Provider(lambda _q, _n: (429, {"Retry-After": "1e9"}, b""))) as provider,
        pytest.raises(ReportProblem, match=r"page 1: HTTP 429: still asked to wait after 5 new"),
    ):
        fetched(OPENAI, provider, waited=waited)
    assert waited == list(PAUSES_SECONDS)


REFUSED = json.dumps({"error": {"message": f"Incorrect API key provided: {SECRET}"}}).encode()


@pytest.mark.parametrize("table", [OPENAI, ANTHROPIC], ids=lambda table: table.provider)
@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_said_with_the_remedy_and_at_once(table: ReportTable, status: int) -> None:
    with (
        serving(Provider(lambda _q, _n: (status, {}, REFUSED))) as provider,
        pytest.raises(ReportProblem) as raised,
    ):
        fetched(table, provider)
    said = str(raised.value)
    assert f"HTTP {status}: the key in {table.key_variable} is refused; it must be" in said
    assert "Admin keys" in said
    assert SECRET not in said
    assert len(provider.asked) == 1


@pytest.mark.parametrize(("reply", "said"), [
    ((400, {}, REFUSED), "answered HTTP 400"),
    ((302, {"Location": f"http://127.0.0.1:9/{SECRET}"}, b""), "answered HTTP 302"),
    ((200, {}, f'"{SECRET}'.encode()), "page 1: the answer is no JSON"),
    ((200, {}, json.dumps({"data": SECRET}).encode()), "data: must be a list, not text"),
    ((200, {}, b"x" * (1 << 20) + b"x"), "page 1: is larger than 1,048,576 bytes"),
    ((200, {"Content-Length": "5000"}, b"{}"), "the answer is not HTTP, or was cut short"),
])  # fmt: skip
def test_whatever_comes_back_the_key_is_in_no_error(reply: Reply, said: str) -> None:
    with (
        serving(Provider(lambda _q, _n: reply)) as provider,
        pytest.raises(ReportProblem) as raised,
    ):
        fetched(OPENAI, provider)
    assert said in str(raised.value)
    text = f"{raised.value!r} {raised.value.__cause__!r}"
    assert SECRET not in text
    assert raised.value.__cause__ is None


def test_pages_that_go_round_end() -> None:
    body = json.dumps({"object": "page", "data": [], "has_more": True, "next_page": "again"})
    with (
        serving(Provider(lambda _q, _n: (200, {}, body.encode()))) as provider,
        pytest.raises(ReportProblem, match="next_page leads back to an earlier page"),
    ):
        fetched(OPENAI, provider)
    assert len(provider.asked) == 2


@contextmanager
def endless(answer: bytes, drip: bytes) -> Iterator[str]:
    """A server whose answer never ends."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while not done.is_set():
                try:
                    one, _ = listener.accept()
                except OSError:
                    return
                with one:
                    try:
                        one.sendall(answer)
                        while not done.wait(0.01):
                            one.sendall(drip)
                    except OSError:
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/usage"
        finally:
            done.set()
            # Wakes a server that waits for somebody.
            with socket.socket() as knock:
                knock.connect_ex(listener.getsockname())
            thread.join()


@pytest.mark.parametrize(("drip", "said"), [
    (b"1000\r\n" + b" " * 4096 + b"\r\n", "is larger than 100,000 bytes"),
    (b"1\r\n \r\n", "no complete answer within 0.3 s"),
])  # fmt: skip
def test_an_endless_answer_is_given_up(drip: bytes, said: str) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    limits = FetchLimits(5, 0.3 if len(drip) < 10 else 30, 100_000)
    waited: list[float] = []
    with endless(head, drip) as url, pytest.raises(ReportProblem, match=said):
        fetch_report(
            replace(OPENAI, url=url), SINCE, environment=KEYS, limits=limits, pause=waited.append
        )


def test_nobody_there_is_said_after_all_tries() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/usage"
    waited: list[float] = []
    with pytest.raises(ReportProblem, match="connection refused"):
        fetch_report(replace(OPENAI, url=url), SINCE, environment=KEYS, pause=waited.append)
    assert waited == list(PAUSES_SECONDS)


@pytest.mark.parametrize("given", [{}, {"OPENAI_ADMIN_KEY": " \n"}])
def test_a_missing_key_names_the_variable_and_the_other_way(given: dict[str, str]) -> None:
    with pytest.raises(ReportProblem, match=r"set OPENAI_ADMIN_KEY to an admin key.*as a file"):
        key_from(given, OPENAI)


@pytest.mark.parametrize("key", [f"{SECRET}\r\nX: y", f"{SECRET} b", f"{SECRET}é"])
def test_a_key_that_no_header_can_carry_is_refused_unseen(key: str) -> None:
    with pytest.raises(
        ReportProblem, match="OPENAI_ADMIN_KEY: has characters that no key has"
    ) as e:
        key_from({"OPENAI_ADMIN_KEY": key}, OPENAI)
    assert SECRET not in str(e.value)


def test_keys_go_to_the_providers_alone_and_encrypted() -> None:
    assert urlsplit(OPENAI.url)[:2] == ("https", "api.openai.com")
    assert urlsplit(ANTHROPIC.url)[:2] == ("https", "api.anthropic.com")
