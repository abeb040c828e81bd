"""The same ground for every run: property tests without a clock, Ctrl-C that works, new stores that
are copies of one empty store, and a collector of garbage that leaves alone what stays."""

import gc
import os
import shutil
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import duckdb
import pytest
from hypothesis import settings

from exporter.store import store
from tests import empty_store

# A shared machine may stop for a second: a slow example says nothing about the code.
settings.register_profile("explore", deadline=None)
settings.register_profile("repeatable", settings.get_profile("explore"), derandomize=True)
# Fixed examples where a run decides something, new ones everywhere else.
settings.load_profile("repeatable" if os.environ.get("CI") else "explore")

# A shell starts background jobs with SIGINT ignored, and programs inherit that. Tests that stop
# a program by Ctrl-C would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Half a million objects are made here and all of them stay: looking through them for garbage
    again and again took a third of this, and time from every test after it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the expected samples of tests/unit_engines/pages anew; read the difference",
    )


@pytest.fixture(autouse=True, scope="session")
def _new_stores_are_copies() -> Iterator[None]:
    """What a new store finds is what it would have created. Programs that tests start create
    theirs, as a user's do."""
    empty, connect = empty_store.file(), store._connect

    def connect_to_copy(directory: Path, chosen: store.StoreSettings) -> duckdb.DuckDBPyConnection:
        if not (directory / store.FILE_NAME).exists():
            shutil.copyfile(empty, directory / store.FILE_NAME)
        return connect(directory, chosen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_connect", connect_to_copy)
        yield
