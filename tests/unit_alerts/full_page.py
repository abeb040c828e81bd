"""A page of /metrics on which every family has series, made by the parts that make it at work."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from exporter.collector import Collector, Inputs
from exporter.drops import Drop, DropSettings, judge
from exporter.engine_totals import EngineTotals
from exporter.isolation.crossed import CrossedTotals
from exporter.records import EngineSample
from exporter.store.counters import CounterDelta
from exporter.store.samples import TargetRow
from exporter.store.store import Store
from exporter.verdicts import Verdicts
from tests.log_path import SMALL, load
from tests.unit_alerts.hours import MONDAY, RATIOS, put_hour
from tests.unit_blocks.event_streams import NOON, Listener, removed, stored

NOW = datetime.now(UTC)
# More than the guards of the rules ask for: tokens in half an hour, blocks evicted in it.
PROMPT_TOKENS, CACHED_TOKENS = 60_000, 30_000
BLOCKS = 250


def full_pages(folder: Path) -> list[bytes]:
    """Two pages, before and after traffic, of an exporter that lives through everything at once:
    rejects, a drop, a target that is down, a replica that evicts and moves blocks, stale reuse,
    reuse across scopes."""
    drops = _drops(folder / "weeks")
    store = Store.open(folder / "store", SMALL)
    try:
        engines, events, crossed = EngineTotals(), Listener(chains=True), CrossedTotals()
        collector = Collector(
            Inputs(
                counters=store.counters.snapshot,
                engines=engines.snapshot,
                targets=_targets,
                store_file=store.path,
                version="0",
                blocks=events.tracker.snapshot,
                bytes_per_token={"tiny": 1000},
                drops=lambda: drops,
                verdicts=lambda: Verdicts(
                    {("tiny", "host"): 0}, {("tiny", "adapter"): 16, ("tiny", "unaccounted"): 16}
                ),
                crossed=crossed.snapshot,
                external_url="https://cache.example.org",
                judged=lambda: dict.fromkeys(("drops", "verdicts", "causes"), NOW),
            )
        )
        pages = []
        for step in range(2):
            _put_requests(store, step)
            engines.add([_sample(step, replica) for replica in ("pod", "pod-2")])
            _put_events(events)
            crossed.add({("tiny", "pod"): 2000})
            _put_causes(store)
            pages.append(collector.render(openmetrics=False))
        return pages
    finally:
        store.close()


def _drops(folder: Path) -> list[Drop]:
    """Four Mondays, and one on which hardly anything was reused."""
    store = Store.open(folder, SMALL)
    try:
        for week, ratio in enumerate((0.1, *RATIOS)):
            put_hour(store.cursor(), MONDAY - timedelta(weeks=week), ratio)
        return judge(store.cursor(), DropSettings(), MONDAY + timedelta(hours=1))
    finally:
        store.close()


def _put_requests(store: Store, step: int) -> None:
    """A live row, and one that cannot be read."""
    row = {
        "request_id": f"r{step}", "ts": (NOW - timedelta(seconds=30)).isoformat(),
        "model": "tiny", "route": "chat", "template": "checkout", "tenant": "acme",
        "prompt_tokens": PROMPT_TOKENS, "cached_tokens": CACHED_TOKENS,
        "cached_device": CACHED_TOKENS - 16, "cached_host": 16, "ttft_seconds": 0.2,
    }  # fmt: skip
    summary = load(store, [row, "no JSON"], "gateway", origin="http")
    assert (summary.accepted, summary.rejected) == (1, 1)
    store.fold_settled(5)


def _put_causes(store: Store) -> None:
    """What a sealed minute adds."""
    delta = CounterDelta()
    series = store.counters.series("tiny", "chat", "checkout", "acme")
    delta.add_missed(series, {"evicted": PROMPT_TOKENS - CACHED_TOKENS})
    store.counters.apply(delta)


def _sample(step: int, replica: str) -> EngineSample:
    """What an engine's page told since the one before; the first is a baseline."""
    counted = {
        "since": NOW - timedelta(seconds=60), "reset": True, "prompt_tokens": PROMPT_TOKENS,
        "cached_tokens": CACHED_TOKENS, "cached_device": CACHED_TOKENS,
        "evicted": {"host/blocks": 2},
        "offload_bytes": {"store/host": 10, "load/host": 10},
        "offload_seconds": {"store/host": 0.1, "load/host": 0.1},
    }  # fmt: skip
    return EngineSample.model_validate({
        "target": replica, "replica": replica, "engine": "vllm", "model": "tiny", "block_size": 16,
        "kv_running_tokens": 320, "kv_cached_tokens": 160, "kv_free_tokens": 520,
        "kv_capacity_tokens": 1000, "ts": NOW - timedelta(seconds=60 - 60 * step),
        **(counted if step else {}),
    })  # fmt: skip


def _put_events(listener: Listener) -> None:
    """Blocks come, go for others, come back, and one moves down."""
    listener.tracker.connected(listener.stream, True)
    seconds, hashes = 20.0 * listener.sequence, list(range(1, BLOCKS + 1))
    tokens = list(range(16 * BLOCKS))
    listener.hear(stored(hashes, tokens=tokens, medium="GPU"), seconds=seconds)
    listener.hear(removed(hashes[1:], medium="GPU"), seconds=seconds + 5)
    again = stored(hashes[1:], parent=1, tokens=tokens[16:], medium="GPU")
    listener.hear(again, seconds=seconds + 9)
    last = stored(hashes[-1:], parent=BLOCKS - 1, tokens=tokens[-16:], medium="CPU")
    listener.hear(last, seconds=seconds + 11)
    listener.hear(removed(hashes[-1:], medium="GPU"), seconds=seconds + 12)
    listener.tracker.drain(NOON + timedelta(seconds=seconds + 60))


def _targets() -> list[TargetRow]:
    return [
        TargetRow("pod", up=True, last_success=NOW, duration_seconds=0.01),
        TargetRow("west-1", up=False, missing_metrics=("vllm:prompt_tokens_cached_total",)),
    ]
