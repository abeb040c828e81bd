"""`/now` in a real browser: every night on a phone and on a desk, by day and in the dark.

The pages are those of tests/unit_now/scenes.py, served with the headers the exporter sends. Run
with `make test-browser`.
"""

import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from exporter.endpoints.now import render
from exporter.server import PAGE_HEADERS
from queries.on_call.screen import Looking, look
from tests.browser import chromium
from tests.unit_now.scenes import CLOCK, SCENES

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium.installed() is None, reason="no chromium on the path"),
]
SIZES = {"phone": (360, 740), "desk": (1280, 900)}
# Of every element with text of its own: the contrast of its colour to what lies behind it, where it
# is below what WCAG asks of ordinary text.
LOW_CONTRAST = """() => {
  const linear = s => s <= .04045 ? s / 12.92 : ((s + .055) / 1.055) ** 2.4;
  const light = c => linear(c / 255);
  const parts = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const luminance = ([r, g, b]) => .2126 * light(r) + .7152 * light(g) + .0722 * light(b);
  const behind = e => { for (; e; e = e.parentElement) {
    const c = parts(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] === 1) return c } return [255, 255, 255] };
  const own = e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  return [...document.body.querySelectorAll('*')].filter(own).map(e => {
    const [a, b] = [luminance(parts(getComputedStyle(e).color)), luminance(behind(e))];
    return [(Math.max(a, b) + .05) / (Math.min(a, b) + .05), e.textContent.trim().slice(0, 40)]
  }).filter(([ratio]) => ratio < 4.5) }"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("nights")
    for name, make in SCENES.items():
        html = render(look(make().ask, Looking(), CLOCK), "1.2.3")
        (folder / f"{name}.html").write_text(html, encoding="utf-8")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def end_headers(self) -> None:
            for header, value in PAGE_HEADERS.items():
                self.send_header(header, value)
            super().end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Handler, directory=str(folder))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = chromium.installed()
    assert executable is not None
    with chromium.browser(executable) as running_browser:
        yield running_browser


def _complaints(page: Page) -> list[str]:
    """Fills with what the console says and with every request but the page's own."""
    found: list[str] = []
    page.on("console", lambda message: found.append(message.text))
    page.on(
        "request",
        lambda request: found.append(request.url) if not request.url.endswith(".html") else None,
    )
    return found


@pytest.mark.parametrize("theme", chromium.THEMES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SCENES)
def test_a_night_fits_and_can_be_read(
    site: str, browser: Browser, tmp_path: Path, name: str, size: str, theme: chromium.Theme
) -> None:
    width, height = SIZES[size]
    context = browser.new_context(
        color_scheme=theme, viewport={"width": width, "height": height}, java_script_enabled=False
    )
    try:
        page = context.new_page()
        complaints = _complaints(page)
        page.goto(f"{site}/{name}.html")
        assert complaints == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(LOW_CONTRAST) == []
        chart = page.locator("svg.ratio")
        assert chart.count() == (name != "no-data")
        if chart.count():
            box = chart.bounding_box()
            assert box is not None
            assert box["width"] > 0.75 * min(width, 900)
            assert box["height"] > 100
        # What matters is above the fold.
        verdict = page.locator(".sentence").bounding_box()
        assert verdict is not None
        assert verdict["y"] + verdict["height"] < height
        page.screenshot(path=tmp_path / f"{name}.png")
    finally:
        context.close()
