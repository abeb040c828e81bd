"""Asks the exporter over HTTP. Answers come as Arrow; every failure is an error to show people."""

import os
from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa
import requests

DEFAULT_URL = "http://127.0.0.1:9465"
ARROW = "application/vnd.apache.arrow.stream"
MARKDOWN = "text/markdown"
_TIMEOUT_SECONDS = (2.0, 30.0)  # to connect, to answer


class DashboardError(Exception):
    """Something the reader of a page can act on.

    The message is our own words. `detail` is text from elsewhere, to be shown as it is and
    never as markup; `remedy` is what to run.
    """

    def __init__(self, message: str, remedy: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy
        self.detail = detail


class ExporterUnreachable(DashboardError):
    """Nothing, or something that is not an exporter, answers at the address."""


class TokenRefused(DashboardError):
    """The exporter wants a token, or another one."""


class QuestionRefused(DashboardError):
    """The exporter does not answer this question; its message names the reason."""


def exporter_url() -> str:
    """Where the exporter is: PREFIXSCOPE_URL, without a trailing slash."""
    return (os.environ.get("PREFIXSCOPE_URL") or DEFAULT_URL).rstrip("/")


def ask(url: str, name: str, params: Mapping[str, str]) -> pa.Table:
    """Answer of one question. Time stamps are UTC without a zone; no rows is an empty table.

    The token, if any, is read from PREFIXSCOPE_TOKEN at each call and appears in no message.
    """
    return _table(url, name, _get(url, f"/api/v1/query/{name}", ARROW, params))


def runbook(url: str, name: str) -> str:
    """What to do about an alert, as Markdown; '' where the exporter has no such page."""
    response = _get(url, f"/docs/runbooks/{name}.md", MARKDOWN, {})
    is_markdown = response.headers.get("Content-Type", "").startswith(MARKDOWN)
    return response.text if response.status_code == 200 and is_markdown else ""


def _get(url: str, path: str, accept: str, params: Mapping[str, str]) -> requests.Response:
    token = os.environ.get("PREFIXSCOPE_TOKEN")
    headers = {"Accept": accept} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        return requests.get(
            url + path,
            params=dict(params),
            headers=headers,
            timeout=_TIMEOUT_SECONDS,
            allow_redirects=False,
        )
    except requests.RequestException as error:
        raise _unreachable(url, type(error).__name__) from error


def shown(url: str) -> str:
    """The address for people: without the user and password it may carry."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _table(url: str, name: str, response: requests.Response) -> pa.Table:
    """The answer's table, or the error its status means."""
    if response.status_code in {401, 403}:
        raise TokenRefused(
            f"The exporter at {shown(url)} asks for a token, or does not know the one given.",
            "export PREFIXSCOPE_TOKEN=…   # the token of the exporter, then restart the dashboard",
        )
    is_arrow = response.headers.get("Content-Type", "").startswith(ARROW)
    if response.status_code == 200 and is_arrow:
        try:
            return pa.ipc.open_stream(response.content).read_all()
        except pa.ArrowException as error:
            raise _unreachable(url, "the answer broke off") from error
    if response.status_code in {400, 404, 422, 429, 500, 503}:
        raise QuestionRefused(
            f"The exporter could not answer {name} (status {response.status_code}).",
            detail=_reason(response),
        )
    raise _unreachable(url, f"status {response.status_code} and no Arrow: not an exporter")


def _reason(response: requests.Response) -> str:
    """First line of a refusal's text, bounded; the whole is in the exporter's log."""
    lines = response.text[:2000].strip().splitlines()
    return lines[0][:300] if lines else "no reason given"


def _unreachable(url: str, reason: str) -> ExporterUnreachable:
    return ExporterUnreachable(
        f"No exporter answers at {shown(url)} ({reason}).",
        "prefixscope serve --config prefixscope.yml   # or, to look around: prefixscope demo",
    )
