"""`prefixscope report`: files, the same of a store and of an exporter, and honest refusals."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from dashboard.report import FORMATS, Week, build, render
from prefixscope import client
from prefixscope.cli import main
from prefixscope.client import Exporter, OpenStore
from tests.log_path import SMALL, Store, load
from tests.unit_dashboard import loopback

Run = Callable[..., tuple[int, str]]

ROWS = [
    {"request_id": f"r{n}", "ts": f"2026-11-{18 + 7 * (n % 2)}T10:{n % 60:02}:00Z", "tenant": "t",
     "prompt_tokens": 1000, "cached_tokens": 100 * (n % 7), "ttft_seconds": n / 100,
     "ttft_point": "gateway"}
    for n in range(40)
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("report") / "store"
    store = Store.open(made, SMALL)
    load(store, ROWS)
    store.close()
    return made


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setattr(client, "DEFAULT_URL", "http://127.0.0.1:9")

    def call(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["prefixscope", "report", *map(str, arguments)])
        status = 0
        try:
            main()
        except SystemExit as stopped:
            status = stopped.code if isinstance(stopped.code, int) else 1
        return status, capfd.readouterr().err

    return call


def test_writes_the_latest_week_with_data_and_leaves_nothing_beside_it(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "a.html"
    status, said = run("--store", folder, "--zone", "Europe/Berlin", "--out", out)
    assert status == 0, said
    assert "2026-W48 (Europe/Berlin) written to" in said
    assert out.read_bytes().startswith(b"<!DOCTYPE html>")
    assert list(tmp_path.iterdir()) == [out]


def test_json_of_a_week_that_was_asked_for(run: Run, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    status, said = run("--store", folder, "--week", "2026-W47", "--out", out)
    assert status == 0, said
    assert json.loads(out.read_bytes())["week"]["name"] == "2026-W47"


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("--out", "r.pdf"), ".html, .md, .json"),
        (("--out", "r.html", "--week", "W48"), "2026-W48"),
        (("--out", "r.html", "--zone", "Berlin"), "Europe/Berlin"),
    ],
)
def test_wrong_usage_names_the_right_one(
    run: Run, folder: Path, arguments: tuple[str, ...], advice: str
) -> None:
    status, said = run("--store", folder, *arguments)
    assert status == 2
    assert advice in " ".join(said.replace("│", " ").split())


def test_a_folder_that_is_not_there_is_an_error_to_read(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    status, said = run("--store", folder, "--week", "2026-W48", "--out", tmp_path / "no" / "r.md")
    assert status == 1
    assert "there is no folder" in said


@pytest.fixture
def exporter(folder: Path) -> Iterator[tuple[Store, str]]:
    """The questions of a store over HTTP, as an exporter answers them."""
    store = Store.open(folder, SMALL)
    known = loopback.Exporter(store.cursor())
    server = ThreadingHTTPServer(("127.0.0.1", 0), loopback.handler(known))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield store, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        store.close()


def test_made_twice_of_a_store_and_of_its_exporter_it_is_the_same_bytes(
    exporter: tuple[Store, str],
) -> None:
    store, url = exporter
    week = Week.parse("2026-W48", "Europe/Berlin")
    own, asked = build(OpenStore(store), week), build(Exporter(url), week)
    assert [render(own, form) for form in FORMATS] == [render(asked, form) for form in FORMATS]
