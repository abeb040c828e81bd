"""Whatever happens to a log between two looks, every row that was written is stored once."""

import json
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.sources.log_settings import LogSettings
from exporter.sources.tail import Tailer
from exporter.store.store import Store

_numbers = count()

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 400)),
        st.tuples(st.just("poll"), st.just(0)),
        st.tuples(st.just("rename"), st.integers(0, 2)),
        st.tuples(st.just("copy"), st.integers(0, 1)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    min_size=5,
    max_size=25,
)


class World:
    """A program that writes its log bytes by bytes, what rotates it, and what follows it.

    Row n has n prompt tokens; every second one has no id, so that only its place tells it.
    """

    def __init__(self, store: Store, folder: Path, *, wide: bool) -> None:
        self.store, self.folder, self.wide = store, folder, wide
        self.log, self.source = folder / "app.log", f"log-{next(_numbers)}"
        self.writer = self.log.open("ab", buffering=0)
        self.begun, self.pending, self.rotations = 0, b"", 0
        self.lines_in_file = self.lines_seen = 0
        self.tailer = self._tailer()

    def _tailer(self) -> Tailer:
        path = str(self.log) + ("*" if self.wide else "")
        return Tailer(self.store, LogSettings(source=self.source, path=path))

    def write(self, size: int) -> None:
        """The next bytes of an endless stream of rows; they may end anywhere."""
        while len(self.pending) < size:
            self.begun += 1
            row: dict[str, object] = {"prompt_tokens": self.begun, "model": "größe-漢字-🙂"}
            if self.begun % 2:
                row["request_id"] = f"r{self.begun}"
            self.pending += json.dumps(row, ensure_ascii=False).encode() + b"\n"
        self._put(size)

    def _put(self, size: int) -> None:
        data, self.pending = self.pending[:size], self.pending[size:]
        self.writer.write(data)
        self.lines_in_file += data.count(b"\n")

    def finish_line(self) -> None:
        self._put(len(self.pending))

    def poll(self) -> None:
        self.tailer.poll_once()
        assert self.tailer.errors == {}
        self.lines_seen = self.lines_in_file

    def rename(self, when: int) -> None:
        """The old file is finished before, after, or after with a look in between."""
        if when == 0 or not (self.wide or self.lines_seen):
            self.finish_line()
        if not (self.wide or self.lines_seen):
            # A file that is gone from the pattern before anybody saw it cannot be known.
            self.poll()
        self.rotations += 1
        self.log.rename(self.folder / f"app.log.{self.rotations}")
        if when == 2:
            self.tailer.poll_once()
        self.finish_line()
        self.writer.close()
        self.writer = self.log.open("ab", buffering=0)
        self.lines_in_file = self.lines_seen = 0

    def copy(self, look_between: int) -> None:
        """Copied and truncated after everything was read: else rows would be lost by others."""
        self.finish_line()
        self.poll()
        self.rotations += 1
        shutil.copyfile(self.log, self.folder / f"app.log.{self.rotations}")
        if look_between:
            self.poll()
        self.writer.truncate(0)
        self.lines_in_file = self.lines_seen = 0

    def restart(self, _: int) -> None:
        self.tailer.stop()
        self.tailer = self._tailer()

    def close(self) -> None:
        self.tailer.stop()
        self.writer.close()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    opened = Store.open(tmp_path_factory.mktemp("any") / "store")
    yield opened
    opened.close()


@given(steps=STEPS, wide=st.booleans())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_t59_t60_t67_every_row_is_stored_once(
    store: Store,
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, int]],
    wide: bool,
) -> None:
    world = World(store, tmp_path_factory.mktemp("logs"), wide=wide)
    try:
        for name, number in steps:
            if name == "poll":
                world.poll()
            else:
                {"write": world.write, "rename": world.rename, "copy": world.copy,
                 "restart": world.restart}[name](number)  # fmt: skip
        world.finish_line()
        world.poll()
    finally:
        world.close()
    parameters = {"source": world.source}
    cursor = store.cursor()
    stored = cursor.execute(
        "SELECT prompt_tokens FROM requests WHERE source = $source ORDER BY ALL", parameters
    ).fetchall()
    assert [tokens for (tokens,) in stored] == list(range(1, world.begun + 1))
    rejected = "SELECT count(*) FROM rejects WHERE source = $source"
    assert cursor.execute(rejected, parameters).fetchall() == [(0,)]
