"""The runbooks over HTTP, so that the link in an alert opens on a telephone at night.

They are written once, in docs/runbooks; a wheel carries them inside the package `exporter`.
"""

import re
from html import escape
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from exporter.errors import PrefixscopeError

FOLDERS = (
    Path(__file__).parents[1] / "runbooks",
    Path(__file__).parents[2] / "docs" / "runbooks",
)
MARKDOWN = "text/markdown"
# The page needs no script and nothing from elsewhere, so a browser may refuse both.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}
_STYLE = (
    ":root{color-scheme:light dark}body{margin:1rem;max-width:60rem}"
    "pre{font:16px/1.5 ui-monospace,monospace;white-space:pre-wrap}"
)


class UnknownRunbook(PrefixscopeError):
    """No alert has this name."""


def text(name: str) -> str:
    """The runbook of an alert as it is written; a name no alert has is an error."""
    if re.fullmatch(r"[A-Za-z]+", name):
        for folder in FOLDERS:
            page = folder / f"{name}.md"
            if page.is_file():
                return page.read_text(encoding="utf-8")
    raise UnknownRunbook("no alert has this name: docs/runbooks has a page for each")


def routes() -> list[Route]:
    """The address of every runbook: its path in the repository."""
    return [Route("/docs/runbooks/{name}.md", _page)]


def _page(request: Request) -> Response:
    """A page for a browser; as it is written for the dashboard, which asks for Markdown."""
    name = request.path_params["name"]
    if MARKDOWN in request.headers.get("accept", ""):
        return Response(text(name), media_type=MARKDOWN, headers=HEADERS)
    return HTMLResponse(
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(name)}</title><style>{_STYLE}</style><pre>{escape(text(name))}</pre>",
        headers=HEADERS,
    )
