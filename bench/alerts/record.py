"""Writes what a gateway and a scraper would have seen of the fleet into a store.

Rows go through the ordinary intake as NDJSON, samples as the scraper makes them.
"""

import io
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from bench.alerts.faults import Fault
from bench.alerts.fleet import SAMPLE_SECONDS, Sample, Served
from bench.alerts.world import BLOCK_TOKENS, MODEL
from exporter.records import EngineSample
from exporter.sources.intake import Intake
from exporter.store.samples import append_samples
from exporter.store.store import Store

SOURCE = "gateway"
LOST_REPLICA = "replica-2"  # its page is not read while telemetry is at fault
_ROWS = 50_000


def record(store: Store, seen: Iterable[Served | Sample], faults: list[Fault]) -> int:
    """Store all that is seen, as far as telemetry lets it; returns the number of requests."""
    log, samples, rows = io.BytesIO(), list[EngineSample](), 0
    for event in seen:
        lost = any(fault.kind == "telemetry" and fault.at(event.moment) for fault in faults)
        if isinstance(event, Sample):
            if not (lost and event.replica == LOST_REPLICA):
                samples.append(_sample(event))
            continue
        rows += 1
        log.write(_line(event, rows, uncounted=lost and rows % 2 == 0))
        if rows % _ROWS == 0:
            _write(store, log, samples)
            log, samples = io.BytesIO(), []
    _write(store, log, samples)
    store.fold()
    return rows


def _write(store: Store, log: io.BytesIO, samples: list[EngineSample]) -> None:
    log.seek(0)
    Intake(store).ingest(log, source=SOURCE, format="ndjson", origin="http")
    with store.write() as cursor:
        append_samples(cursor, samples)


def _line(served: Served, number: int, *, uncounted: bool) -> bytes:
    row = {
        "ts": _time(served.moment).isoformat(timespec="milliseconds"),
        "request_id": f"r{number}",
        "session": f"s{served.session}",
        "turn": served.turn,
        "model": MODEL,
        "model_fingerprint": served.fingerprint,
        "route": served.route,
        "template": served.template,
        "template_version": served.version,
        "tenant": served.tenant,
        "scope": served.scope,
        "replica": served.replica,
        "prompt_tokens": served.prompt_tokens,
        "cached_tokens": None if uncounted else served.cached_tokens,
        "output_tokens": served.output_tokens,
        "queue_seconds": round(served.queue_seconds, 4),
        "ttft_seconds": round(served.ttft_seconds, 4),
        "ttft_point": "gateway",
        "stream": True,
        "block_size": BLOCK_TOKENS,
    }
    return json.dumps(row).encode() + b"\n"


def _sample(seen: Sample) -> EngineSample:
    ts = _time(seen.moment)
    # After a restart the counters say what was counted since, which is all of the interval.
    return EngineSample(
        target=seen.replica, replica=seen.replica, engine="vllm", model=MODEL,
        since=ts - timedelta(seconds=SAMPLE_SECONDS), ts=ts, reset=seen.restarted,
        provenance="finish/once/tokens",
        prompt_tokens=seen.prompt_tokens, cached_tokens=seen.cached_tokens,
        cached_device=seen.cached_tokens,
        lookup_tokens=seen.prompt_tokens, lookup_hit_tokens=seen.cached_tokens,
        finished_requests=seen.finished,
        running_requests=seen.running, waiting_requests=seen.waiting,
        kv_usage_ratio=seen.kv_usage_ratio, kv_capacity_tokens=seen.capacity_blocks * BLOCK_TOKENS,
        block_size=BLOCK_TOKENS, caching_enabled=True,
    )  # fmt: skip


def _time(moment: float) -> datetime:
    return datetime.fromtimestamp(moment, UTC)
