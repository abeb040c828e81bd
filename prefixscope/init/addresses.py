"""An address given to `init`: a metric page, a Prometheus, a gateway, a bucket, or nothing."""

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

from exporter.errors import PrefixscopeError
from exporter.sources.discovery import Discovery, Target
from exporter.sources.prometheus.settings import PrometheusSourceSettings
from exporter.sources.target_settings import PrometheusDiscovery, StaticTarget, TargetSettings
from prefixscope.init.found import Found, FoundPrometheus, FoundTarget, Remark
from prefixscope.recognise import LIMITS, Kind, Seen, engines_behind, recognise

# Where engines, gateways and Prometheus usually listen.
USUAL = (
    "127.0.0.1:8000", "127.0.0.1:30000", "127.0.0.1:8080", "127.0.0.1:4000", "127.0.0.1:9090",
    "127.0.0.1:29000",
)  # fmt: skip
# What `logs` can follow without init having looked: prefixes of objects, LiteLLM's database.
_FOLLOWED = {"s3": "docs/object-stores.md", "gs": "docs/object-stores.md",
             "az": "docs/object-stores.md", "postgresql": "docs/spend-logs.md",
             "postgres": "docs/spend-logs.md"}  # fmt: skip
_BUCKETS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "wasbs", "r2", "oss", "hdfs")
_HOST_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d{1,5}(/\S*)?")
# Of the pages a Prometheus lists so many are tried.
_TRIED_PAGES = 5


def is_address(given: str) -> bool:
    """Whether this names a server or a bucket, and no file."""
    return "://" in given or bool(_HOST_PORT.fullmatch(given))


def look_at_address(given: str) -> Iterator[Found]:
    """What is there. Never raises for what answers."""
    scheme = urlsplit(given).scheme.lower() if "://" in given else "http"
    if scheme in _FOLLOWED:
        yield _followed(given, _FOLLOWED[scheme])
        return
    if scheme in _BUCKETS:
        yield _bucket(given)
        return
    try:
        StaticTarget(url=given)
    except ValueError:
        yield Remark(_shown(given), "no address init understands", "write http://HOST:PORT")
        return
    seen = recognise(given)
    if seen.kind is Kind.PAGE:
        yield _page(seen)
    elif seen.kind is Kind.PROMETHEUS:
        yield _prometheus(seen)
    elif seen.kind is Kind.SILENT:
        yield Remark(_shown(given), f"nothing answers: {seen.error}")
    else:
        yield Remark(_shown(given), f"{seen.title}: {seen.error}", seen.fix or _ELSE)
    if seen.engine == "litellm":
        yield Remark(
            _shown(given), "LiteLLM can send a row for every call, which tells more than its page",
            'callbacks: ["generic_api"] in litellm_settings, and '
            "GENERIC_LOGGER_ENDPOINT=http://127.0.0.1:9465/v1/requests?source=litellm",
        )  # fmt: skip


_ELSE = "name the engine's own metric page, such as http://HOST:8000/metrics"


def _shown(given: str) -> str:
    """The address without what may be secret in it: a name and password, or a query."""
    return re.sub(r"(?<=//)[^@\s]*@|\?.*", "", given)


def _followed(given: str, page: str) -> Remark:
    """Where keys are in the environment and rows cost money, only a person decides to look."""
    place = _shown(given)
    if place.startswith("postgres"):
        place = place.replace("://", "://USER@", 1)
    return Remark(
        place, f"can be followed, but init does not look into it ({page})",
        f"under logs: - {{source: NAME, path: {place}}}; or once: prefixscope ingest {place} "
        "--source NAME",
    )  # fmt: skip


def _bucket(given: str) -> Remark:
    return Remark(
        _shown(given), "a bucket of a kind that is not read: s3://, gs:// and az:// are",
        "copy the logs here and name the files, or pipe them: aws s3 cp URL - | prefixscope ingest "
        "- --source NAME",
    )  # fmt: skip


def _page(seen: Seen) -> FoundTarget:
    page = seen.page
    assert page is not None
    models = sorted({group.model for group in page.groups if group.model})
    return FoundTarget(
        seen.url, target_name(seen.url, seen.engine or "engine"), seen.title, tuple(models),
        page.advice, seen.engine,
    )  # fmt: skip


def target_name(url: str, engine: str) -> str:
    """The first word of the host; of an address or this machine the engine and its port."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if host != "localhost":
            return host.partition(".")[0]
    else:
        if not ipaddress.ip_address(host).is_loopback:
            return f"{host}:{port}"
    return f"{engine}-{port}"


def _prometheus(seen: Seen) -> FoundPrometheus | Remark:
    try:
        behind = engines_behind(PrometheusSourceSettings(url=seen.url))
        jobs = dict(sorted(Counter(target.labels.get("job", "") for target in behind).items()))
        if not jobs:
            return Remark(
                seen.url, f"{seen.title} without series of any engine or gateway known here",
                "let it scrape the engines, or name their metric pages",
            )  # fmt: skip
    except PrefixscopeError as error:
        return Remark(seen.url, f"{seen.title}, which answers no query: {error}")
    listed = PrometheusDiscovery(url=seen.url, jobs=[job for job in jobs if job])
    # Mimir and its like list no targets: then there is none to try.
    targets = Discovery(TargetSettings(prometheus=[listed]), LIMITS).refresh()
    answered, tried = _answering(targets)
    return FoundPrometheus(seen.url, seen.title, jobs, tried, answered)


def _answering(targets: list[Target]) -> tuple[int, int]:
    """How many of the first pages can be read from here, and how many were tried."""
    tried = targets[:_TRIED_PAGES]
    pages = [recognise(target.url).kind is Kind.PAGE for target in tried]
    return sum(pages), len(tried)
