"""Metric pages as bytes -> samples, read by prometheus-client's own parsers.

The parser is chosen by content type: OpenMetrics where the target says so, classic text
otherwise. Engines are scraped, re-exported and proxied in several spellings of one name, so
names are brought to one spelling here (`vllm:prompt_tokens_total`), before anything else
looks at them.
"""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from prometheus_client.openmetrics.parser import (
    text_fd_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_fd_to_metric_families as classic_families

from exporter.errors import PrefixscopeError

Labels = dict[str, str]

# Ray replaces the colon and adds its own prefix; some servers replace only the colon. Names of
# other programs that only begin alike (vllm_router_...) stay as they are.
ENGINE_NAME = re.compile(
    r"^(# TYPE )?(?:ray_)?(vllm|sglang|llamacpp|lmcache)(?::|_(?!router_|mp_))", re.MULTILINE
)
RAY_NAME = re.compile(r"^ray_(?:vllm|sglang|llamacpp|lmcache)_", re.MULTILINE)
PROCESS_START = "process_start_time_seconds"
CREATED = "_created"
_COUNTER_PARTS = ("_total", "_bucket", "_sum", "_count")

# Times a page may plausibly state for its samples: 2015 to 2100.
_PLAUSIBLE_UNIX = (1_420_070_400.0, 4_102_444_800.0)


class NotAMetricsPage(PrefixscopeError):
    """What the target answered cannot be read as Prometheus metrics."""


@dataclass(frozen=True, slots=True)
class PageSample:
    """One line of a page. `timestamp` is Unix seconds where the page states one."""

    name: str
    labels: Labels
    value: float
    timestamp: float | None = None


@dataclass(frozen=True)
class Exposition:
    """A parsed page.

    `created` holds what `_created` series say: the start time of each series in Unix seconds.
    They are start times only and never values.
    """

    samples: tuple[PageSample, ...]
    created: dict[tuple[str, tuple[tuple[str, str], ...]], float]
    process_start: float | None
    warnings: tuple[str, ...] = ()

    @property
    def exposed_unix(self) -> float | None:
        """The newest plausible time the page itself gives its samples, else None."""
        low, high = _PLAUSIBLE_UNIX
        stated = [s.timestamp for s in self.samples if s.timestamp is not None]
        return max((time for time in stated if low <= time <= high), default=None)

    def start_of(self, name: str, labels: Labels) -> float | None:
        """When the counter or histogram with these labels began to count; None = not said."""
        if not self.created:
            return None
        own = tuple(sorted((k, v) for k, v in labels.items() if k != "le"))
        return self.created.get((_family(name), own))


def parse_page(
    body: bytes, content_type: str | None, keep: frozenset[str] | None = None
) -> Exposition:
    """Read one page. Raises NotAMetricsPage with what to do when it is none.

    `keep` are the names worth parsing (in the one spelling; families and series): an engine's
    page also carries hundreds of lines of its web framework, which need not be read, and a
    broken one among those must not cost the page. An empty page has no samples.
    """
    openmetrics, warnings = _dialect(body, content_type)
    text = _decode(body)
    ray = RAY_NAME.search(text) is not None
    lines = _lines(ENGINE_NAME.sub(r"\1\2:", text), openmetrics, keep)
    read = _openmetrics_samples if openmetrics else _classic_samples
    try:
        samples = list(read(lines))
    except (ValueError, IndexError, KeyError, AttributeError, OverflowError) as error:
        # The library's parsers raise whichever of these the odd line leads them to.
        kind = "OpenMetrics" if openmetrics else "Prometheus text"
        raise NotAMetricsPage(f"the page is not valid {kind}: {_first_words(error)}") from error
    return _collect(samples, warnings, trust_process_start=not ray)


def _dialect(body: bytes, content_type: str | None) -> tuple[bool, tuple[str, ...]]:
    """Whether to read OpenMetrics, and what was odd about the content type."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind == "application/openmetrics-text":
        return True, ()
    if kind == "text/html" or body[:200].lstrip()[:1] == b"<":
        raise NotAMetricsPage(
            "the target answered with HTML, not metrics: check the path (usually /metrics) "
            "and that no login page or proxy answers in its place"
        )
    if kind == "application/json":
        raise NotAMetricsPage(
            "the target answered with JSON, not metrics: point the target at its Prometheus "
            "page (TensorRT-LLM serves it at /prometheus/metrics)"
        )
    if kind == "application/vnd.google.protobuf":
        raise NotAMetricsPage("the target answered with protobuf although text was asked for")
    if kind == "text/plain":
        return False, ()
    said = f"content type {kind!r}" if kind else "no content type"
    return False, (f"the target sent {said}; read as classic text",)


def _decode(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotAMetricsPage(
            f"the page is not UTF-8 text (byte {error.start}): is it compressed or binary?"
        ) from error


def _lines(text: str, openmetrics: bool, keep: frozenset[str] | None) -> list[str]:
    """The lines worth parsing. HELP and UNIT are left out: nothing here reads them.

    Some servers name a counter's family with `_total` in the type line, which OpenMetrics
    forbids; taking it off there lets one parser read both.
    """
    kept = []
    for line in text.split("\n"):
        if line.startswith("#"):
            comment = _comment(line.rstrip("\r"), openmetrics, keep)
            if comment:
                kept.append(comment)
        elif line.strip() and (keep is None or _name(line) in keep):
            kept.append(line)
    return kept


def _comment(line: str, openmetrics: bool, keep: frozenset[str] | None) -> str:
    """The type line or end mark as the parser takes it; '' for every other comment."""
    if not line.startswith("# TYPE "):
        return line if line == "# EOF" else ""
    if keep is not None and line.split(" ", 3)[2] not in keep:
        return ""
    if openmetrics and line.endswith("_total counter"):
        return line.removesuffix("_total counter") + " counter"
    return line


def _name(line: str) -> str:
    """The name a sample line starts with."""
    return line.partition("{")[0].split(" ", 1)[0]


def _openmetrics_samples(lines: list[str]) -> Iterator[PageSample]:
    text = io.StringIO("\n".join(lines))
    for family in openmetrics_families(text):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            stated = None if sample.timestamp is None else float(sample.timestamp)
            yield PageSample(sample.name, sample.labels, float(sample.value), stated)


def _classic_samples(lines: list[str]) -> Iterator[PageSample]:
    """Classic text, one line at a time.

    A page repeats the same series at every scrape, and reading names and labels is most of
    the work, so the library reads each series once and is asked again only for new ones.
    """
    unsuffixed = set()
    for line in lines:
        if line.startswith("#"):
            if line.startswith("# TYPE ") and line.endswith(" counter"):
                unsuffixed.add(line.removesuffix(" counter")[7:].removesuffix("_total"))
            continue
        line_end = line.rfind("}") + 1 or len(line.split(None, 1)[0])
        name, labels = _series(line[:line_end])
        value, stated = _value_and_time(line[line_end:])
        yield PageSample(name + "_total" if name in unsuffixed else name, labels, value, stated)


@lru_cache(maxsize=20_000)
def _series(text: str) -> tuple[str, Labels]:
    """Name and labels of a series as a page spells it. Callers share the labels: read only."""
    for family in classic_families(io.StringIO(f"{text} 0")):
        for sample in family.samples:
            return sample.name, sample.labels
    raise ValueError(f"no series: {text}")


def _value_and_time(text: str) -> tuple[float, float | None]:
    """Value and, where given, the time in Unix seconds; classic text has milliseconds."""
    if "_" in text:  # Python would read 1_000 as a number
        raise ValueError(f"invalid value: {text}")
    value, *stated = text.split()
    if len(stated) > 1:
        raise ValueError(f"text after the time: {text}")
    return float(value), float(stated[0]) / 1000 if stated else None


def _collect(
    found: list[PageSample], warnings: tuple[str, ...], trust_process_start: bool
) -> Exposition:
    samples = []
    created = {}
    process_start = None
    for sample in found:
        if sample.name.endswith(CREATED):
            own = tuple(sorted(sample.labels.items()))
            created[sample.name.removesuffix(CREATED), own] = sample.value
        elif sample.name == PROCESS_START:
            # A Ray agent re-exports other processes' counters: its own start is not theirs.
            process_start = sample.value if trust_process_start else None
        else:
            samples.append(sample)
    return Exposition(tuple(samples), created, process_start, warnings)


def _family(name: str) -> str:
    for part in _COUNTER_PARTS:
        if name.endswith(part):
            return name.removesuffix(part)
    return name


def _first_words(error: Exception) -> str:
    """At most one line of the library's message: pages may hold anything."""
    words = str(error).split("\n")[0].strip() or type(error).__name__
    return words[:200]
