"""Synthetic request logs for benchmarks: our own NDJSON, as a tap or gateway would write it."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

MODELS, REPLICAS, ROUTES, TEMPLATES, TENANTS = 2, 4, 6, 12, 300


def rows(count: int, *, seed: int = 1, seconds_apart: float = 0.05) -> Iterator[dict[str, object]]:
    """`count` rows in time order, ending now. Tenants are heavy-tailed, 3 % of the rows do not
    report cached tokens, 5 % are not streamed, 1 % failed."""
    draw = random.Random(seed)
    start = datetime.now(UTC) - timedelta(seconds=count * seconds_apart)
    for index in range(count):
        yield _row(draw, index, start + timedelta(seconds=index * seconds_apart))


def _row(draw: random.Random, index: int, start: datetime) -> dict[str, object]:
    template = min(int(draw.expovariate(0.4)), TEMPLATES - 1)
    prompt = draw.randint(400, 12_000)
    cached = draw.choice((0, prompt // 32 * 16, (prompt - 1) // 16 * 16))
    ttft = 0.05 + (prompt - cached) / 9_000 * draw.uniform(0.9, 1.3)
    streamed, failed = draw.random() > 0.05, draw.random() < 0.01
    return {
        "ts": start.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "request_id": f"req-{index:08x}-{draw.getrandbits(32):08x}",
        "session": f"session-{index // 6}",
        "turn": index % 6 + 1,
        "trace_id": f"{draw.getrandbits(64):016x}",
        "replica": f"replica-{draw.randrange(REPLICAS)}",
        "provider": "vllm",
        "model": f"model-{template % MODELS}",
        "route": f"route-{template % ROUTES}",
        "template": f"template-{template}",
        "template_version": str(template % 3 + 1),
        "tenant": f"tenant-{min(int(draw.expovariate(0.05)), TENANTS - 1)}",
        "prompt_tokens": prompt,
        "cached_tokens": None if draw.random() < 0.03 else cached,
        "output_tokens": draw.randint(1, 600),
        "ttft_seconds": round(ttft, 6),
        "ttft_point": "gateway",
        "queue_seconds": round(draw.uniform(0, 0.05), 6),
        "prefill_seconds": round(ttft * 0.9, 6),
        "e2e_seconds": round(ttft + draw.uniform(0.5, 6), 6),
        "stream": streamed,
        "status": "error" if failed else "ok",
        "block_size": 16,
    }


def write_log(path: Path, count: int, **options: float) -> Path:
    """Writes a log unless a file of that name is there already."""
    if not path.exists():
        with path.open("w") as file:
            for row in rows(count, **options):  # type: ignore[arg-type]
                file.write(json.dumps(row) + "\n")
    return path


# The typed columns of these logs, for DuckDB's own reader.
COLUMNS = {
    **dict.fromkeys(
        ("ts", "request_id", "session", "trace_id", "replica", "provider", "model", "route",
         "template", "template_version", "tenant", "ttft_point", "status"),
        "VARCHAR",
    ),
    **dict.fromkeys(
        ("turn", "prompt_tokens", "cached_tokens", "output_tokens", "block_size"), "BIGINT"
    ),
    **dict.fromkeys(
        ("ttft_seconds", "queue_seconds", "prefill_seconds", "e2e_seconds"), "DOUBLE"
    ),
    "stream": "BOOLEAN",
    "ts": "TIMESTAMP",
}  # fmt: skip
