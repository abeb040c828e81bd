"""A store for each test that needs one."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.store.store import FILE_NAME, Store
from tests import empty_store
from tests.log_path import SMALL


@pytest.fixture
def store_folder(tmp_path: Path) -> Path:
    """Of a store that is empty, as a copy: its views take longer to make than a test does."""
    folder = tmp_path / "store"
    folder.mkdir()
    shutil.copy(empty_store.file(), folder / FILE_NAME)
    return folder


@pytest.fixture
def store(store_folder: Path) -> Iterator[Store]:
    opened = Store.open(store_folder, SMALL)
    yield opened
    opened.close()
