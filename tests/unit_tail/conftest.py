"""A store, a folder of logs, and tailers on it that are stopped at the end."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.sources.log_settings import LogSettings
from exporter.sources.tail import Tailer
from exporter.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "store")
    yield opened
    opened.close()


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


@pytest.fixture
def follow(store: Store, logs: Path) -> Iterator[Callable[..., Tailer]]:
    """A tailer on a pattern inside `logs`; stopped at the end of the test."""
    started: list[Tailer] = []

    def start(pattern: str = "app.log", linger_seconds: float = 60.0, **settings: object) -> Tailer:
        given = {"source": "gateway", "path": str(logs / pattern), **settings}
        tailer = Tailer(store, LogSettings.model_validate(given), linger_seconds=linger_seconds)
        started.append(tailer)
        return tailer

    yield start
    for tailer in started:
        tailer.stop()
