"""Everything that reads input of others, as a function of bytes; rows of logs also in `rows.py`.

Each answers how much it made of the input, and raises nothing but its own error.
"""

import base64
import gzip
import io
import json
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from exporter.blocks.order import StreamName
from exporter.blocks.tracker import Tracker
from exporter.endpoints.body import as_lines, unpack
from exporter.endpoints.otlp import JSON, PROTOBUF, Sources, batches, read
from exporter.errors import PrefixscopeError
from exporter.price_tables import PriceFile
from exporter.records import EngineSample
from exporter.sources.discovery import Discovery
from exporter.sources.engines import ENGINES
from exporter.sources.engines.own_series import PageLabels
from exporter.sources.engines.reading import read_page
from exporter.sources.events.recorded import EventsSummary
from exporter.sources.events.recorded_lines import read_recorded
from exporter.sources.exposition import NotAMetricsPage, parse_page
from exporter.sources.formats import FORMATS, ndjson
from exporter.sources.formats.detect import detect
from exporter.sources.formats.mapping import LogFormat
from exporter.sources.increase import advance
from exporter.sources.name_checks import check_pattern, read_lookup
from exporter.sources.page_files import read_pages
from exporter.sources.target_settings import (
    FileDiscovery,
    HttpDiscovery,
    PrometheusDiscovery,
    TargetSettings,
)
from exporter.sources.target_state import TargetIdentity, TargetState
from prefixscope.settings import load_settings
from prefixscope.settings_file import BadSettings
from replay.geometry import kv_geometry
from replay.model_config import UnknownGeometry
from tests.fuzz import seeds
from tests.fuzz.damage import Kind
from tests.unit_events.batches import CLEARED, removed, stored
from tests.unit_events.batches import batch as event_batch
from tests.unit_geometry.test_known_models import KNOWN
from tests.unit_otel import spans
from tests.unit_prices.conftest import PRICES

Errors = tuple[type[Exception], ...]
LIMIT_BYTES = 1 << 22
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Parser:
    """`read` answers the size of what it made: rows, samples or bytes. `own` are the errors it
    may raise, `share` how many of a thousand inputs a full run gives it."""

    name: str
    kind: Kind
    seeds: tuple[bytes, ...]
    read: Callable[[bytes], int]
    own: Errors = (PrefixscopeError,)
    share: int = 10


def parsers(folder: Path) -> list[Parser]:
    """All of them; `folder` is where those that read files find theirs."""
    return [*_logs(), *_bodies(), *_spans(), *_pages(), *_events(), *_files(folder)]


# ------------------------------------------------------------------------ logs


def _logs() -> Iterator[Parser]:
    for known in FORMATS:
        found = seeds.of_format(known.name)
        kind: Kind = "text" if known.name in ("azure_llm", "burstgpt") else "json"
        if known.documents:
            yield Parser(f"document {known.name}", kind, found, partial(_document, known))
        if known.reshape:
            yield Parser(f"line {known.name}", kind, found, partial(_reshape, known), (ValueError,))
    every = tuple(seed for known in FORMATS for seed in seeds.of_format(known.name)[:6])
    yield Parser("which format", "json", every, _which_format, share=20)


def _document(log_format: LogFormat, data: bytes) -> int:
    assert log_format.documents
    rows = log_format.documents(io.BytesIO(data))
    return sum(len(row if isinstance(row, str) else json.dumps(row)) for row in rows)


def _reshape(log_format: LogFormat, data: bytes) -> int:
    assert log_format.reshape
    return sum(len(json.dumps(row)) for row in log_format.reshape(data.decode()))


def _which_format(data: bytes) -> int:
    return len(detect(data, "input").because)


# ---------------------------------------------------------------------- bodies


def _bodies() -> Iterator[Parser]:
    rows = seeds.of_format(ndjson.FORMAT.name)
    array = b"[" + b",".join(rows[:3]) + b"]"
    spread = json.dumps(json.loads(rows[0]), indent=1).encode()
    yield Parser("HTTP body", "json", (array, spread, b"\n".join(rows[:5])), _as_lines, share=20)
    text = b"\n".join(rows)
    packed = (gzip.compress(text, mtime=0), gzip.compress(rows[0], mtime=0) * 2)
    yield Parser("gzip body", "bytes", packed, partial(_unpack, "gzip"), share=20)
    frames = (zstandard.compress(text), zstandard.compress(rows[0]) * 2)
    yield Parser("zstd body", "bytes", frames, partial(_unpack, "zstd"), share=20)


def _as_lines(data: bytes) -> int:
    return len(as_lines(data))


def _unpack(encoding: str, data: bytes) -> int:
    return len(unpack(data, encoding, LIMIT_BYTES))


def _spans() -> Iterator[Parser]:
    usage = {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.cached_tokens": 64}
    tree = spans.request(
        spans.call(1, {**usage, "gen_ai.operation.name": "chat"}),
        spans.span(2, {"openinference.span.kind": "LLM", "llm.token_count.prompt": 5},
                   parentSpanId="1" * 16),
        resource={"service.name": "bot"},
    )  # fmt: skip
    listed = seeds.of_format("otlp")
    yield Parser(
        "OTLP JSON", "json", (spans.as_json(tree), *listed), partial(_otlp, JSON), share=25
    )
    yield Parser(
        "OTLP protobuf", "bytes", (spans.as_protobuf(tree),), partial(_otlp, PROTOBUF), share=25
    )


def _otlp(kind: str, data: bytes) -> int:
    made = batches(read(data, kind), Sources(), None)
    return sum(len(lines.getvalue()) for lines in made.values())


# ----------------------------------------------------------------------- pages


def _pages() -> Iterator[Parser]:
    every: list[bytes] = []
    for name in ENGINES:
        found = seeds.of_engine(name)
        every += [found[0], _openmetrics(found[0])]
        yield Parser(f"page {name}", "text", (*found, _openmetrics(found[0])),
                     partial(_page, found[0]), (NotAMetricsPage,))  # fmt: skip
    yield Parser("exposition", "text", tuple(every), _exposition, (NotAMetricsPage,), share=25)


def _dialect(data: bytes) -> str:
    """As the bytes have it, so that an input tells how it was read."""
    return "application/openmetrics-text" if b"# EOF" in data else "text/plain"


def _openmetrics(page: bytes) -> bytes:
    """The same page as OpenMetrics: its end is marked, and its comments are gone."""
    lines = [line for line in page.splitlines() if not line.startswith(b"#")]
    return b"\n".join([*lines, b"# EOF\n"])


def _exposition(data: bytes) -> int:
    return len(parse_page(data, _dialect(data)).samples)


def _page(before: bytes, data: bytes) -> int:
    """Read, and taken as the page after a good one and before another."""
    labels = PageLabels(tenant="team", route="app", hash_key="k")
    page = read_page(data, _dialect(data), labels)
    state, who = TargetState(), TargetIdentity("target", "replica")
    good = read_page(before, "text/plain", labels)
    found: list[EngineSample] = []
    for minute, each in enumerate((good, page, good)):
        found += advance(state, each, 1_000_000_000 + 60 * minute, who)
    for sample in found:
        _check_sample(sample)
    return len(page.series) + len(page.histograms) + len(found)


def _check_sample(sample: EngineSample) -> None:
    """Nothing counts backwards, and every number is one that can be stored."""
    for name, value in sample:
        values = value.values() if isinstance(value, dict) else (value,)
        for number in values:
            if isinstance(number, int | float):
                assert math.isfinite(number), (name, number)
                assert 0 <= number < 2**63, (name, number)


# ----------------------------------------------------------------------- files


def _events() -> Iterator[Parser]:
    payload = event_batch(1e9, stored(1, 2, salt="s"), removed(1), CLEARED, stored(5, medium="CPU"))
    frames = [base64.b64encode(part).decode() for part in (b"t", bytes(8), payload)]
    raw = {"received_unix": 1e9, "endpoint": "tcp://h:5557", "frames_base64": frames}
    decoded = {**raw, "frames_base64": None, "topic": "t", "seq": 0,
               "batch": msgspec.msgpack.decode(payload)}  # fmt: skip
    lines = tuple(json.dumps(line).encode() + b"\n" for line in (raw, decoded))
    yield Parser("recorded events", "json", lines, _recorded, share=20)
    yield Parser("event batch", "bytes", (payload,), _event_batch, share=20)


def _recorded(data: bytes) -> int:
    """Every message of a recording, into a state of its own."""
    tracker, messages = Tracker("key"), 0
    for line in read_recorded(io.BytesIO(data), "fuzzed", EventsSummary()):
        messages += 1
        tracker.hear(StreamName("s", line.endpoint), 0, line.batch.payload, line.at)
    return messages


def _event_batch(data: bytes) -> int:
    """How many blocks one message makes resident."""
    tracker = Tracker("key")
    tracker.hear(StreamName("s", "r"), 0, data, datetime(2026, 11, 30, tzinfo=UTC))
    tracker.drain(datetime(2026, 11, 30, 1, tzinfo=UTC))
    resident = [cache.resident_blocks for cache in tracker.snapshot().caches]
    assert all(blocks >= 0 for blocks in resident)
    return sum(resident)


def _files(folder: Path) -> Iterator[Parser]:
    path = folder / "fuzzed"
    yield Parser("settings", "text", tuple(_settings()), partial(_read_settings, path),
                 (BadSettings,), share=6)  # fmt: skip
    yield Parser("naming pattern", "text", _PATTERNS, _pattern, (ValueError,), share=1)
    yield Parser("lookup CSV", "text", (b"value,name\nh1,acme\n\"h,2\",globex\n",),
                 partial(_lookup, path.with_suffix(".csv")), (ValueError,))  # fmt: skip
    yield Parser("lookup JSON", "json", (b'{"h1": "acme", "h2": "globex"}',),
                 partial(_lookup, path.with_suffix(".json")), (ValueError,))  # fmt: skip
    models = tuple(json.dumps(case.config).encode() for case in KNOWN.values())
    yield Parser("model config", "json", models, _geometry, (UnknownGeometry,), share=30)
    yield Parser("price file", "json", (json.dumps(PRICES).encode(),),
                 partial(_prices, path.with_suffix(".json")), share=25)  # fmt: skip
    yield Parser("index of pages", "json", (_INDEX,), partial(_index, folder / "index.jsonl"))
    yield Parser("target file", "text", (_GROUPS, _GROUPS_YAML),
                 partial(_target_file, path), share=15)  # fmt: skip
    yield Parser("targets over HTTP", "json", (_GROUPS,), _targets, share=15)
    yield Parser("targets of a Prometheus", "json", (_ACTIVE,), _prometheus, share=15)


_PATTERNS = (rb"^tenant:(.+)$", rb"(?i)/v1/(?:chat|x)/([a-z0-9-]{1,40})", rb"\bteam=(\w+)\b")
_INDEX = b"\n".join(
    json.dumps({"file": f"{n}.prom", "scraped_unix": 1e9 + n, "status": 200}).encode()
    for n in (1, 2)
)
_GROUPS = json.dumps([{"targets": ["a:8000", "[::1]:8000"], "labels": {"pod": "p"}}]).encode()
_GROUPS_YAML = b"- targets: ['a:8000', b:9000]\n  labels:\n    pod: p-1\n    __scheme__: https\n"
_ACTIVE = json.dumps({"status": "success", "data": {"activeTargets": [
    {"scrapeUrl": "http://10.0.0.1:8000/metrics", "labels": {"job": "vllm", "pod": "p"},
     "discoveredLabels": {"__address__": "10.0.0.1:8000"}}]}}).encode()  # fmt: skip
_NAMES = b"""names:
  gateway:
    tenant:
      - header: x-tenant
      - field: request_tags[*]
        pattern: '^tenant:(.+)$'
      - {field: metadata.key, hashed: true}
      - constant: nobody
logs:
  - source: gateway
    path: /var/log/*.jsonl
    defaults: {model: m, block_size: 16}
scrape:
  targets:
    static: [10.0.0.1:8000, {url: "http://b:8000/metrics", role: decode}]
"""


def _settings() -> Iterator[bytes]:
    yield _NAMES
    text = (ROOT / "deploy" / "prefixscope.yml").read_text(encoding="utf-8")
    yield "\n".join(line for line in text.splitlines() if "#" not in line).encode()


def _read_settings(path: Path, data: bytes) -> int:
    path.write_bytes(data)
    return len(str(load_settings(path, {})))


def _pattern(data: bytes) -> int:
    check_pattern(data.decode(errors="replace"))
    return 1


def _lookup(path: Path, data: bytes) -> int:
    path.write_bytes(data)
    return len(read_lookup(path))


def _geometry(data: bytes) -> int:
    config: Any = None
    with suppress(ValueError, RecursionError):  # whoever reads the file says that
        config = json.loads(data)
    geometry = kv_geometry(config)
    assert 0 <= geometry.bytes_per_token <= geometry.all_full_bytes_per_token
    return 1


def _prices(path: Path, data: bytes) -> int:
    path.write_bytes(data)
    prices = PriceFile(path)
    found = [prices.find("anthropic", name) for name in PRICES]
    for price in found:
        for value in (price.input, price.output, price.cached_read) if price else ():
            assert value is None or 0 <= value <= 10_000, price
    return len(found)


def _index(path: Path, data: bytes) -> int:
    for number in (1, 2):
        path.with_name(f"{number}.prom").touch()
    path.write_bytes(data)
    return sum(1 for _ in read_pages([path.parent]))


class _Answered(Discovery):
    """Lists that come over HTTP, answered by the input."""

    answer = b""

    def _get(self, url: str) -> str:  # noqa: ARG002  # whatever is asked for
        return self.answer.decode(errors="replace")


def _refreshed(data: bytes, settings: TargetSettings) -> int:
    discovery = _Answered(settings)
    discovery.answer = data
    return len(discovery.refresh()) + len(discovery.errors)


def _target_file(path: Path, data: bytes) -> int:
    path.write_bytes(data)
    return _refreshed(data, TargetSettings(file_sd=[FileDiscovery(files=[str(path)])]))


def _targets(data: bytes) -> int:
    return _refreshed(data, TargetSettings(http_sd=[HttpDiscovery(url="http://sd")]))


def _prometheus(data: bytes) -> int:
    return _refreshed(data, TargetSettings(prometheus=[PrometheusDiscovery(url="http://p")]))
