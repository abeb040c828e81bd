"""Stores and the recorded answers of a real Prometheus."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.store.store import Store
from tests.unit_cli.conftest import cli

__all__ = ["cli", "new_store"]


@pytest.fixture
def new_store(tmp_path: Path) -> Iterator[Callable[[str], Store]]:
    """Opens stores by name; all are closed at the end. The same name twice opens it again."""
    opened: dict[str, Store] = {}

    def open_store(name: str) -> Store:
        if name in opened:
            opened[name].close()
        opened[name] = Store.open(tmp_path / name)
        return opened[name]

    yield open_store
    for store in opened.values():
        store.close()
