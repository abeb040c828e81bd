"""What answers at an address: a metric page we read, or something else, told by what it says.

`init` and `doctor` both ask. Only GETs are sent, each within limits, without any key, and of
what comes back only versions, model names and a handful of named settings are looked at: the
descriptions of a server may hold its keys.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from exporter.errors import PrefixscopeError
from exporter.sources.engines.own_series import PageLabels
from exporter.sources.engines.page import EnginePage
from exporter.sources.engines.reading import read_page
from exporter.sources.fetch import Fetched, FetchFailed, FetchLimits, fetch
from exporter.sources.prometheus.api import PrometheusApi
from exporter.sources.prometheus.settings import PrometheusSourceSettings
from exporter.sources.prometheus.targets import PastTarget, find_targets
from exporter.sources.scrape import ACCEPT
from exporter.sources.target_settings import DEFAULT_PATH

# A person waits for each of these.
LIMITS = FetchLimits(connect_timeout_seconds=2.0, deadline_seconds=5.0)
# A Prometheus that scraped an engine within this long scrapes it still.
LATELY_SECONDS = 600.0
_JSON = "application/json"
_REDIRECTS = range(300, 400)
# Of SGLang's server_info, which may hold keys too, only these.
SGLANG_SETTINGS = (
    "version", "model_path", "served_model_name", "enable_metrics", "enable_cache_report",
    "disable_radix_cache", "log_requests", "log_requests_level", "export_metrics_to_file",
    "kv_events_config",
)  # fmt: skip


class Kind(StrEnum):
    """What an address turned out to be."""

    PAGE = "page"
    """A metric page prefixscope reads."""
    PROMETHEUS = "prometheus"
    ENGINE = "engine"
    """An engine or gateway that serves no metric page."""
    EXPORTER = "exporter"
    OTHER = "other"
    """Something answers, and nothing we know."""
    SILENT = "silent"
    """Nothing answers."""


@dataclass(frozen=True)
class Seen:
    """What was found. `url` is the address to configure; `page` is there for a metric page only,
    `error` where there is none. `title` says in words what it is, `fix` how to get the page."""

    url: str
    kind: Kind
    title: str
    page: EnginePage | None = None
    fetched: Fetched | None = None
    error: str | None = None
    fix: str | None = None
    engine: str | None = None
    settings: dict[str, object] = field(default_factory=dict)


def page_url(address: str) -> str:
    """The metric page an address means: `/metrics` where it names no path."""
    whole = address if "://" in address else f"http://{address}"
    parts = urlsplit(whole)
    path = parts.path if parts.path not in ("", "/") else DEFAULT_PATH
    return urlunsplit((parts.scheme, _place(parts.netloc), path, parts.query, ""))


def base_url(address: str) -> str:
    """The server behind an address: without the path of a metric page."""
    parts = urlsplit(address if "://" in address else f"http://{address}")
    path = parts.path.rstrip("/").removesuffix("/prometheus/metrics").removesuffix(DEFAULT_PATH)
    return urlunsplit((parts.scheme, _place(parts.netloc), path, "", ""))


def _place(netloc: str) -> str:
    """Host and port: a name and password before them are neither sent nor shown."""
    return netloc.rpartition("@")[2]


def recognise(address: str, limits: FetchLimits = LIMITS, labels: PageLabels | None = None) -> Seen:
    """Look at an address. Never raises for what answers there."""
    url = page_url(address)
    try:
        return _page_at(url, limits, labels)
    except FetchFailed as failure:
        if failure.status is None:
            return Seen(url, Kind.SILENT, "nothing", error=str(failure))
        return _without_page(url, str(failure), failure.status, limits, labels)
    except PrefixscopeError as failure:
        return _without_page(url, str(failure), None, limits, labels)


def _page_at(url: str, limits: FetchLimits, labels: PageLabels | None) -> Seen:
    """The metric page there; PrefixscopeError where there is none that is known."""
    fetched = fetch(url, ACCEPT, limits)
    page = read_page(fetched.body, fetched.content_type, labels)
    title = f"{page.engine.title} {page.version or ''}".strip()
    return Seen(url, Kind.PAGE, title, page, fetched, engine=page.engine.name)


def _without_page(
    url: str, error: str, status: int | None, limits: FetchLimits, labels: PageLabels | None
) -> Seen:
    """Ask the questions that tell who is there, most telling first."""
    ask = _Asker(url, error, limits)
    for guess in (_as_prometheus, _as_exporter, _as_sglang, _as_llamacpp):
        if (seen := guess(ask)) is not None:
            return seen
    if (seen := _as_litellm(ask, status, labels)) is not None:
        return seen
    return _as_vllm(ask) or Seen(url, Kind.OTHER, _in_words(ask), error=error)


@dataclass(frozen=True)
class _Asker:
    """GETs beside a page that could not be read; nothing for whatever is no success."""

    url: str
    error: str
    limits: FetchLimits

    @property
    def base(self) -> str:
        return base_url(self.url)

    def text(self, path: str) -> str | None:
        try:
            return fetch(self.base + path, "*/*", self.limits).body.decode("utf-8", "replace")
        except FetchFailed:
            return None

    def json(self, path: str) -> dict[str, Any]:
        """The object at a path; an empty one for anything else."""
        try:
            body = fetch(self.base + path, _JSON, self.limits).body
            value = json.loads(body)
        except (FetchFailed, ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


def _as_prometheus(ask: _Asker) -> Seen | None:
    answer = ask.json("/api/v1/query?" + urlencode({"query": "vector(1)"}))
    if answer.get("status") != "success" or not isinstance(answer.get("data"), dict):
        return None
    built = ask.json("/api/v1/status/buildinfo").get("data")
    version = _text(built, "version")
    return Seen(ask.base, Kind.PROMETHEUS, f"Prometheus {version}".strip(), error=ask.error)


def _as_exporter(ask: _Asker) -> Seen | None:
    if not (ask.text("/-/healthy") or "").startswith("prefixscope"):
        return None
    return Seen(
        ask.base, Kind.EXPORTER, "a prefixscope exporter", error=ask.error,
        fix="this is prefixscope itself: name the engines, and give doctor this address as --url",
    )  # fmt: skip


def sglang_settings(ask: Callable[[str], dict[str, Any]]) -> dict[str, object]:
    """What an SGLang server says it was started with; {} where it says nothing."""
    for path in ("/server_info", "/get_server_info"):
        told = ask(path)
        if "disable_radix_cache" in told or "enable_cache_report" in told:
            return {name: told[name] for name in SGLANG_SETTINGS if name in told}
    return {}


def settings_of(engine: str, url: str, limits: FetchLimits = LIMITS) -> dict[str, object]:
    """What the server of a page says of itself beside it: its version, SGLang its flags too."""
    ask = _Asker(url, "", limits)
    if engine == "sglang":
        return sglang_settings(ask.json)
    if engine == "vllm":
        version = _text(ask.json("/version"), "version")
        return {"version": version} if version else {}
    return {}


def _as_sglang(ask: _Asker) -> Seen | None:
    settings = sglang_settings(ask.json)
    if not settings:
        return None
    title = f"SGLang {_text(settings, 'version')}".strip()
    return Seen(
        ask.url, Kind.ENGINE, f"{title} without its metric page", error=ask.error, engine="sglang",
        fix="start SGLang with --enable-metrics", settings=settings,
    )  # fmt: skip


def _as_llamacpp(ask: _Asker) -> Seen | None:
    told = ask.json("/props")
    if "default_generation_settings" not in told:
        return None
    title = f"llama.cpp {_text(told, 'build_info')}".strip()
    return Seen(
        ask.url, Kind.ENGINE, f"{title} without its metric page", error=ask.error,
        engine="llamacpp", fix="start llama-server with --metrics",
    )  # fmt: skip


def _as_litellm(ask: _Asker, status: int | None, labels: PageLabels | None) -> Seen | None:
    """LiteLLM's page ends in a slash; it asks for a key unless told otherwise."""
    if "alive" not in (ask.text("/health/liveliness") or "").lower():
        return None
    error = ask.error
    if not ask.url.endswith("/") and (status is None or status in _REDIRECTS):
        try:
            return _page_at(f"{ask.url}/", ask.limits, labels)
        except PrefixscopeError as failure:
            error = str(failure)
    return Seen(
        f"{ask.base}{DEFAULT_PATH}/", Kind.ENGINE, "a LiteLLM proxy without a readable metric page",
        error=error, engine="litellm",
        fix='in LiteLLM\'s litellm_settings set callbacks: ["prometheus"] and '
        "require_auth_for_metrics_endpoint: false (the page then is open: keep its port inside "
        "your network)",
    )  # fmt: skip


def _as_vllm(ask: _Asker) -> Seen | None:
    """Any server with OpenAI's list of models; vLLM puts its name there."""
    models = ask.json("/v1/models").get("data")
    if not isinstance(models, list):
        return None
    if any(_text(model, "owned_by") == "vllm" for model in models):
        title = f"vLLM {_text(ask.json('/version'), 'version')}".strip()
        return Seen(
            ask.url, Kind.ENGINE, f"{title} without its metrics", error=ask.error, engine="vllm",
            fix="start vLLM without --disable-log-stats",
        )  # fmt: skip
    return Seen(
        ask.url, Kind.ENGINE, "a server with OpenAI's API, without a metric page", error=ask.error,
        fix="switch its metrics on (docs/engines says how for each engine), or follow its "
        "request log",
    )  # fmt: skip


def _in_words(ask: _Asker) -> str:
    """What answers, where nobody was recognised."""
    front = (ask.text("/") or "").lstrip()[:200].lower()
    if front.startswith(("<!doctype html", "<html")):
        return "a web page"
    return "another server"


def _text(value: object, key: str) -> str:
    """Short printable text at a key, else nothing: it came from somebody else."""
    told = value.get(key) if isinstance(value, dict) else None
    return told[:80] if isinstance(told, str) and told.isprintable() else ""


def engines_behind(settings: PrometheusSourceSettings) -> list[PastTarget]:
    """The engines a Prometheus has lately scraped. PrefixscopeError where it does not answer.

    Tries again, but never waits: a person does.
    """
    patient = settings.model_copy(update={"query_timeout_seconds": LIMITS.deadline_seconds})
    api = PrometheusApi(patient, pause=lambda _: None)
    now = time.time()
    return find_targets(api, now - LATELY_SECONDS, now, settings.jobs, settings.ha_labels)
