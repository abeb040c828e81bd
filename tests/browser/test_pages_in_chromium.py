"""Every page in a real browser: with both kinds of data, with engine data only, with none.

Run with `make test-browser`. Starts the real exporter and dashboard on loopback; the engine
pages and the log are captures of a real vLLM.
"""

import http.server
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import Browser

from tests.browser import chromium
from tests.running import ENVIRONMENT, PROGRAM, ROOT, answer, free_port, get, running, wait_for

CAPTURE = ROOT.parent / "shared" / "captures" / "vllm-0.32.0" / "main"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium.installed() is None, reason="no chromium on the path"),
    pytest.mark.skipif(not CAPTURE.is_dir(), reason="no captures at ../shared/captures"),
]


@contextmanager
def _captured_engine() -> Iterator[str]:
    """Serves the captured pages one after the other, the last one for ever."""
    pages = sorted((CAPTURE / "metrics").glob("*.prom"))

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.pop(0) if len(pages) > 1 else pages[0]
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=1.0.0; charset=utf-8")
            self.end_headers()
            self.wfile.write(page.read_bytes())

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@contextmanager
def _dashboard(folder: Path, scrape: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """(exporter, dashboard): the program with `serve --dashboard` on a new store."""
    exporter, dashboard = free_port(), free_port()
    settings = {
        "store": {"directory": str(folder / "store")},
        "server": {"listen": f"127.0.0.1:{exporter}"},
        "dashboard": {"listen": f"127.0.0.1:{dashboard}"},
    } | ({"scrape": scrape} if scrape else {})
    config, log = folder / "prefixscope.yml", folder / "serve.log"
    config.write_text(yaml.safe_dump(settings), encoding="utf-8")
    with running([PROGRAM, "serve", "--config", str(config), "--dashboard"], log) as process:
        urls = (f"http://127.0.0.1:{exporter}", f"http://127.0.0.1:{dashboard}")
        wait_for("exporter", lambda: bool(get(f"{urls[0]}/-/healthy")), 60, process, log)
        wait_for("dashboard", lambda: bool(get(f"{urls[1]}/_stcore/health")), 60, process, log)
        yield urls


def _wait_for_engine_rows(exporter: str) -> None:
    """Until the captured pages have been taken in; 43,832 prompt tokens by main's README."""
    for _ in range(120):
        if any(row["prompt_tokens"] for row in answer(exporter, "engine_hit_ratio")):
            return
        threading.Event().wait(0.5)
    pytest.fail("the captured engine pages did not arrive within 60 s")


@pytest.fixture(scope="module", params=["log, engine and events", "engine only", "empty"])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """(what is in the store, address of the dashboard)."""
    folder = tmp_path_factory.mktemp("site")
    with _captured_engine() as engine:
        targets = [{"url": engine, "replica": "captured"}]
        scrape = {"interval_seconds": 1, "targets": {"static": targets}}
        with _dashboard(folder, None if request.param == "empty" else scrape) as urls:
            exporter, dashboard = urls
            if request.param != "empty":
                _wait_for_engine_rows(exporter)
            if request.param == "log, engine and events":
                for name in ("requests.jsonl", "kv-events.raw.jsonl"):
                    command = [PROGRAM, "ingest", str(CAPTURE / name), "--url", exporter]
                    subprocess.run(command, check=True, env=ENVIRONMENT, timeout=60)
            yield request.param, dashboard


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = chromium.installed()
    assert executable is not None
    with chromium.browser(executable) as running_browser:
        yield running_browser


@pytest.mark.parametrize("theme", chromium.THEMES)
@pytest.mark.parametrize("page", chromium.PAGES)
def test_page_opens_without_a_complaint(
    site: tuple[str, str], browser: Browser, page: str, theme: chromium.Theme
) -> None:
    _, dashboard = site
    visit = chromium.visit(browser, chromium.address(dashboard, page), page, theme)
    assert visit.errors == []
    assert visit.text.strip()
    assert "NaN" not in visit.text


def test_the_first_page_has_an_address_of_its_own_too(
    site: tuple[str, str], browser: Browser
) -> None:
    _, dashboard = site
    root = chromium.visit(browser, f"{dashboard}/", "now", "light")
    named = chromium.visit(browser, f"{dashboard}/now", "now", "light")
    assert (root.errors, named.errors) == ([], [])
    assert named.text.splitlines()[:5] == root.text.splitlines()[:5]


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 1440), ("light", 420)])
@pytest.mark.parametrize("tab", chromium.TABS["memory"])
def test_every_tab_of_memory_opens_without_a_complaint(
    site: tuple[str, str], browser: Browser, tab: str, theme: chromium.Theme, width: int
) -> None:
    kind, dashboard = site
    where = chromium.address(dashboard, "memory", f"?range=3650d&compare=off&tab={tab}")
    visit = chromium.visit(browser, where, "memory", theme, width=width)
    assert visit.errors == []
    assert "NaN" not in visit.text
    if kind == "engine only" and tab == "contents":
        assert "--kv-events-config" in visit.text
    if kind == "engine only" and tab == "evictions":
        # Its page has a sample of ages, and nothing else of this tab.
        assert "What KV-cache events would add" in visit.text
    if kind == "log, engine and events" and tab == "evictions":
        assert "By KV-cache events." in visit.text


@pytest.mark.parametrize("page", ["now", "memory"])
def test_time_axes_show_the_asked_window(
    site: tuple[str, str], browser: Browser, page: str
) -> None:
    kind, dashboard = site
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    since = until - timedelta(days=7)
    window = f"?since={since:%Y-%m-%dT%H:%M:%SZ}&until={until:%Y-%m-%dT%H:%M:%SZ}"
    where = chromium.address(dashboard, page, window)
    axes = chromium.visit(browser, where, page, "light").time_axes
    assert bool(axes) == (kind != "empty")
    for start, end in axes:
        assert abs(start - since) < timedelta(hours=12)
        assert abs(end - until) < timedelta(hours=12)


def test_now_shows_the_headline_of_what_is_there(site: tuple[str, str], browser: Browser) -> None:
    kind, dashboard = site
    where = chromium.address(dashboard, "now", "?range=3650d&compare=off")
    text = chromium.visit(browser, where, "now", "light").text.lower()
    # 29,696 of 43,832 prompt tokens, by the log and by the engine's counters alike.
    assert ("67.7" in text or "67.8" in text) == (kind != "empty")
    assert "engine counters" in text or kind != "engine only"


@pytest.mark.parametrize(("theme", "width"), [("dark", 1280), ("light", 400)])
def test_week_tells_its_week(
    site: tuple[str, str], browser: Browser, theme: chromium.Theme, width: int
) -> None:
    kind, dashboard = site
    where = chromium.address(dashboard, "week", "?zone=Europe/Berlin")
    visit = chromium.visit(browser, where, "week", theme, width=width)
    assert visit.errors == []
    assert ("Cache report" in visit.text) == (kind != "empty")
