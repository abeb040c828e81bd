"""Pages the ordinary way: written to a folder, ingested into a store, asked by question."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from exporter.sources.engines.own_series import PageLabels
from exporter.sources.pages import ingest_pages
from exporter.store.store import Store
from queries import registry

Rows = list[dict[str, object]]
Through = Callable[..., Rows]
START_UNIX = 1_000_000_000
BETWEEN_SECONDS = 60


def write_pages(folder: Path, pages: Sequence[str | bytes]) -> None:
    """Recorded pages a minute apart, in a folder named after their target."""
    folder.mkdir(parents=True)
    for number, page in enumerate(pages):
        file = folder / f"{number:02}.prom"
        file.write_bytes(page.encode() if isinstance(page, str) else page)
        moment = START_UNIX + number * BETWEEN_SECONDS
        os.utime(file, (moment, moment))


@pytest.fixture
def through(tmp_path: Path) -> Through:
    """Pages of targets -> ordinary path -> the rows of a question.

    `through({"a": [page, page]}, "engine_hit_ratio", by="replica")`; pages are a minute apart.
    """

    def ask(
        targets: dict[str, Sequence[str | bytes]],
        question: str,
        labels: PageLabels | None = None,
        **params: object,
    ) -> Rows:
        count = len(list(tmp_path.iterdir()))
        folder, store_folder = tmp_path / f"pages{count}", tmp_path / f"store{count}"
        for target, pages in targets.items():
            write_pages(folder / target, pages)
        store = Store.open(store_folder)
        try:
            ingest_pages(store, [folder], labels=labels)
            return registry.rows(registry.run(store.cursor(), question, params))
        finally:
            store.close()

    return ask
