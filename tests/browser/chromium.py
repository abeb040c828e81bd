"""Drives the operating system's Chromium over the pages of a running dashboard.

Playwright is only the driver: it downloads no browser here, the one on the path is used.
A visit is timed from the moment of navigation and is over when Streamlit's script has
stopped running and no placeholder is left.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, ConsoleMessage, Page, Response, sync_playwright

PAGES = ("now", "who", "why", "latency", "memory", "what_if", "week")
# Views within a page that a link opens.
TABS = {
    "memory": ("split", "evictions", "offload", "contents"),
    "why": ("causes", "prompts", "scopes", "routing"),
}
Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")

# Without the last four Chromium asks the internet for updates and suggestions at start.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TIMEOUT_MILLISECONDS = 60_000
CONTENT = "[data-testid='stMain'] :is([data-testid='stMarkdown'], [data-testid='stMetric'], h1, h2)"
RESTING = "[data-testid='stApp'][data-test-script-state='notRunning']"
PLACEHOLDER = "[data-testid='stSkeleton']"
PROBES = ("/_stcore/health", "/_stcore/host-config")
FAILURE = "[data-testid='stException']"


@dataclass(frozen=True)
class Visit:
    """What one page did: seconds to its first content and to rest, its text, its errors.

    `time_axes` are the ends of every chart's time axis as the reader sees them.
    """

    page: str
    theme: Theme
    first_content_seconds: float
    settled_seconds: float
    text: str
    errors: list[str]
    time_axes: list[tuple[datetime, datetime]]


def installed() -> str | None:
    """Path of Chromium or Chrome; None where neither is installed."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


@contextmanager
def browser(executable: str) -> Iterator[Browser]:
    """A headless browser with an empty profile, closed at the end."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        try:
            yield started
        finally:
            started.close()


def _is_probe(address: str) -> bool:
    """Streamlit asks /PAGE/_stcore/… first to find its own base path; 404 is its answer."""
    return address.endswith(tuple(f"/{page}{probe}" for page in PAGES for probe in PROBES))


def _collect_errors(page: Page) -> list[str]:
    """A list that fills with what the console, the scripts and the server complain about."""
    errors: list[str] = []

    def on_console(message: ConsoleMessage) -> None:
        if message.type == "error" and not _is_probe(message.location["url"]):
            errors.append(f"console: {message.text}")

    def on_response(response: Response) -> None:
        if response.status >= 400 and not _is_probe(response.url):
            errors.append(f"{response.status} from {response.url}")

    page.on("console", on_console)
    page.on("response", on_response)
    page.on("pageerror", lambda error: errors.append(f"script: {error}"))
    return errors


def _time_axes(page: Page) -> list[tuple[datetime, datetime]]:
    """Ends of the time axes of all Plotly charts, from the live charts."""
    ranges = page.evaluate(
        """() => [...document.querySelectorAll('.js-plotly-plot')].flatMap(plot =>
            Object.entries(plot._fullLayout)
                .filter(([name, axis]) => name.startsWith('xaxis') && axis.type === 'date')
                .map(([name, axis]) => axis.range))"""
    )
    return [(_utc(start), _utc(end)) for start, end in ranges]


def _utc(text: str) -> datetime:
    """Plotly writes up to four digits of a second's fraction."""
    seconds, _, _ = text.partition(".")
    return datetime.fromisoformat(seconds).replace(tzinfo=UTC)


def _wait_until_at_rest(page: Page) -> None:
    page.wait_for_selector(RESTING, timeout=TIMEOUT_MILLISECONDS)
    page.wait_for_selector(PLACEHOLDER, state="detached", timeout=TIMEOUT_MILLISECONDS)
    page.wait_for_timeout(500)  # charts draw after the script has stopped


def address(url: str, name: str, query: str = "") -> str:
    """Address of a page of the dashboard at `url`; the first page is the one at the root."""
    return f"{url.rstrip('/')}/{'' if name == PAGES[0] else name}{query}"


def visit(
    running: Browser,
    where: str,
    name: str,
    theme: Theme,
    picture: Path | None = None,
    height: int = 1000,
    width: int = 1440,
) -> Visit:
    """Open a page as a first-time visitor of the given theme; save a picture if asked."""
    context = running.new_context(color_scheme=theme, viewport={"width": width, "height": height})
    try:
        page = context.new_page()
        errors = _collect_errors(page)
        start = time.perf_counter()
        page.goto(where, timeout=TIMEOUT_MILLISECONDS)
        page.wait_for_selector(CONTENT, timeout=TIMEOUT_MILLISECONDS)
        first_content = time.perf_counter() - start
        _wait_until_at_rest(page)
        settled = time.perf_counter() - start
        errors += [f"page: {part}" for part in page.locator(FAILURE).all_inner_texts()]
        if picture is not None:
            page.screenshot(path=picture)
        text = page.locator("[data-testid='stMain']").inner_text()
        return Visit(name, theme, first_content, settled, text, errors, _time_axes(page))
    finally:
        context.close()
