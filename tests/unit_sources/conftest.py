"""Pages of one engine whose counters we know, by whatever way they come."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from exporter.sources.page_files import RecordedPage
from exporter.sources.pages import PageIntake, PagesSummary
from exporter.sources.target_state import TargetIdentity
from exporter.store.samples import append_samples
from exporter.store.store import Store
from tests.log_path import SMALL, store

__all__ = ["store"]

BEGAN = 1_772_452_800.0  # 2026-03-02 12:00 UTC
Counts = Sequence[tuple[float, int, int]]


@pytest.fixture
def new_store(tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """New, empty stores; all are closed at the end."""
    opened: list[Store] = []

    def open_store() -> Store:
        opened.append(Store.open(tmp_path / f"store-{len(opened)}", SMALL))
        return opened[-1]

    yield open_store
    for one in opened:
        one.close()


def page(prompt: int, cached: int, started: float = BEGAN - 3600, model: str = "m") -> str:
    """A metric page of a vLLM that began at `started`."""
    labels = f'{{engine="0",model_name="{model}"}}'
    return "\n".join([
        f"process_start_time_seconds {started}",
        "# TYPE vllm:prompt_tokens_total counter",
        f"vllm:prompt_tokens_total{labels} {prompt}",
        "# TYPE vllm:prompt_tokens_cached_total counter",
        f"vllm:prompt_tokens_cached_total{labels} {cached}",
        "",
    ])  # fmt: skip


def take(store: Store, who: TargetIdentity, counts: Counts, started: float = BEGAN - 3600) -> int:
    """Pages at so many seconds after BEGAN with these totals; how many samples were stored."""
    intake = PageIntake(who, None, PagesSummary())
    stored = 0
    for seconds, prompt, cached in counts:
        text = page(prompt, cached, started)
        samples = intake.take(RecordedPage(who.target, BEGAN + seconds, None, text=text))
        with store.write() as cursor:
            stored += len(append_samples(cursor, samples))
    return stored


def sums(store: Store) -> dict[str, tuple[int, int]]:
    """Prompt and cached tokens of each replica, as engine figures add them."""
    rows = store.cursor().execute(
        "SELECT replica, coalesce(sum(prompt_tokens), 0)::BIGINT,"
        " coalesce(sum(cached_tokens), 0)::BIGINT FROM engine_samples GROUP BY replica"
    )
    return {replica: (prompt, cached) for replica, prompt, cached in rows.fetchall()}
