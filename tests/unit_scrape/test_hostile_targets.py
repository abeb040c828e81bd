"""Targets that hang, redirect, answer HTML, or never stop talking: each a clear message."""

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.sources.fetch import FetchFailed, FetchLimits, fetch
from exporter.sources.scrape import Scraper, ScrapeSettings
from exporter.store.samples import load_targets
from exporter.store.store import Store
from tests.running import free_port

Talk = Callable[[socket.socket], None]
Hostile = Callable[[Talk], str]
LIMITS = FetchLimits(connect_timeout_seconds=60, deadline_seconds=60, max_body_bytes=100_000)
# For those who would talk longer than any test waits.
SHORT_LIMITS = replace(LIMITS, deadline_seconds=0.5)
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


def answers(*parts: bytes) -> Talk:
    def talk(connection: socket.socket) -> None:
        connection.recv(65_536)
        for part in parts:
            connection.sendall(part)

    return talk


def hangs(connection: socket.socket) -> None:
    while connection.recv(65_536):
        pass


def drips_head(connection: socket.socket) -> None:
    connection.recv(65_536)
    for number in range(1000):
        connection.sendall(b"HTTP/1.1 200 OK\r\n" if number == 0 else b"X-%d: y\r\n" % number)
        time.sleep(0.05)


def drips_body(connection: socket.socket) -> None:
    connection.recv(65_536)
    connection.sendall(OK + b"\r\n")
    for _ in range(1000):
        connection.sendall(b"x")
        time.sleep(0.05)


def endless(connection: socket.socket) -> None:
    connection.recv(65_536)
    connection.sendall(OK + b"\r\n")
    while True:
        connection.sendall(b"# a comment that never ends\n" * 1000)


def endless_chunks(connection: socket.socket) -> None:
    connection.recv(65_536)
    connection.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")


def endless_line(connection: socket.socket) -> None:
    connection.recv(65_536)
    while True:
        connection.sendall(b"x" * 65_536)


REDIRECT = b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\n\r\n"
GZIPPED = OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b"
SHORT = OK + b"Content-Length: 100\r\n\r\nx 1\n"


@pytest.mark.parametrize(
    "talk",
    [
        pytest.param(hangs, id="hangs"),
        pytest.param(drips_head, id="drips-head"),
        pytest.param(drips_body, id="drips-body"),
    ],
)
def test_a_target_that_takes_too_long_is_a_clear_message(hostile: Hostile, talk: Talk) -> None:
    with pytest.raises(FetchFailed, match=r"within 0\.5 s"):
        fetch(hostile(talk), "text/plain", SHORT_LIMITS)


@pytest.mark.parametrize(
    ("talk", "says"),
    [
        pytest.param(endless, "larger than 100000 bytes", id="endless"),
        pytest.param(endless_chunks, "larger than 100000 bytes", id="endless-chunks"),
        pytest.param(endless_line, "not HTTP as expected", id="endless-line"),
        pytest.param(answers(REDIRECT), "redirects.*169.254.169.254.*not followed", id="redirect"),
        pytest.param(answers(b"HTTP/1.1 500 Oops\r\n\r\n"), "HTTP 500 Oops", id="error"),
        pytest.param(
            answers(b"HTTP/1.1 401 No\r\n\r\n"), "HTTP 401.*without one", id="asks-for-a-key"
        ),
        pytest.param(answers(GZIPPED), "gzip-encoded", id="gzip"),
        pytest.param(answers(SHORT), "cut short: 96 bytes", id="cut-short"),
        pytest.param(answers(b"SSH-2.0-OpenSSH_9.6\r\n"), "not HTTP as expected", id="ssh"),
        pytest.param(answers(), "not HTTP as expected|connection failed", id="closes"),
    ],
)
def test_a_hostile_target_is_a_clear_message(hostile: Hostile, talk: Talk, says: str) -> None:
    with pytest.raises(FetchFailed, match=says):
        fetch(hostile(talk), "text/plain", LIMITS)


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        (b"https://me:s3cret@sso.example/login?token=s3cret#s3cret", "https://sso.example/login"),
        (b"/login?next=s3cret", "/login"),
        (b"http://[s3cret", "an address that is none"),
        (b"//me:s3cret@other/", "://other/"),
        (b"?s3cret", "[?]"),
    ],
)
def test_a_redirect_is_told_without_secrets(hostile: Hostile, location: bytes, shown: str) -> None:
    with pytest.raises(FetchFailed, match=f"to {shown}: redirects are not") as failed:
        fetch(hostile(answers(b"HTTP/1.1 302 Found\r\nLocation: " + location + b"\r\n\r\n")),
              "text/plain", LIMITS)  # fmt: skip
    assert "s3cret" not in str(failed.value)


def test_nobody_there_and_no_such_host() -> None:
    with pytest.raises(FetchFailed, match="connection refused"):
        fetch(f"http://127.0.0.1:{free_port()}/metrics", "text/plain", LIMITS)
    with pytest.raises(FetchFailed, match="is no http or https address"):
        fetch("ftp://127.0.0.1/metrics", "text/plain", LIMITS)


def test_tls_that_is_none(hostile: Hostile) -> None:
    url = hostile(answers(b"HTTP/1.1 400 Bad Request\r\n\r\n")).replace("http:", "https:")
    with pytest.raises(FetchFailed, match="TLS failed"):
        fetch(url, "text/plain", LIMITS)


def test_a_good_answer_in_every_framing(hostile: Hostile) -> None:
    for talk in (
        answers(OK + b"Content-Length: 4\r\n\r\nx 1\n"),
        answers(OK + b"\r\nx 1\n"),
        answers(OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\n", b"x 1\n\r\n0\r\n\r\n"),
    ):
        answer = fetch(hostile(talk), "text/plain", LIMITS)
        assert (answer.body, answer.content_type) == (b"x 1\n", "text/plain")


def test_what_is_asked_for(hostile: Hostile) -> None:
    heard: list[bytes] = []

    def listen(connection: socket.socket) -> None:
        heard.append(connection.recv(65_536))
        connection.sendall(OK + b"Content-Length: 0\r\n\r\n")

    fetch(hostile(listen) + "?a=b", "text/plain;version=0.0.4", LIMITS)
    assert heard[0].startswith(b"GET /metrics?a=b HTTP/1.1\r\n")
    assert b"Accept: text/plain;version=0.0.4\r\n" in heard[0]


def test_one_hostile_target_costs_the_others_nothing(hostile: Hostile, tmp_path: Path) -> None:
    released = threading.Event()

    def html(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>login</html>")
        released.set()

    page = b"llamacpp:requests_processing 3\n"
    good = answers(OK + b"Content-Length: %d\r\n\r\n" % len(page) + page)
    urls = {name: hostile(talk) for name, talk in (("good", good), ("hangs", hangs),
            ("redirects", answers(REDIRECT)), ("html", html), ("endless", endless))}  # fmt: skip
    settings = ScrapeSettings.model_validate(
        {
            "deadline_seconds": 2,
            "max_body_bytes": 100_000,
            "targets": {"static": [{"name": n, "url": url} for n, url in urls.items()]},
        }
    )
    store = Store.open(tmp_path)
    scraper = Scraper(store, settings)
    scraper.scrape_once()
    scraper.stop()
    rows = load_targets(store.cursor())
    assert {name: row.up for name, row in rows.items()} == {
        "good": True, "hangs": False, "redirects": False, "html": False, "endless": False,
    }  # fmt: skip
    for name, says in (("hangs", "within 2 s"), ("redirects", "not followed"),
                       ("html", "HTML"), ("endless", "larger than")):  # fmt: skip
        assert says in (rows[name].error or "")
    assert rows["good"].error is None
    found = store.cursor().execute("SELECT replica, running_requests FROM engine_samples")
    assert found.fetchall() == [("good", 3)]
    assert released.is_set()
    store.close()
