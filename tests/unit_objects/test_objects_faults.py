"""Whatever an object store or the way to it does: nothing is lost, nothing counts twice."""

import gzip
import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import duckdb
import pytest
import zstandard

from exporter.errors import PrefixscopeError
from exporter.sources.objects import fetch as objects_fetch
from exporter.sources.objects import intake as objects_intake
from exporter.sources.objects.intake import ObjectReader
from exporter.store.bookmarks import Bookmark, Read
from exporter.store.store import Store
from tests.log_path import rejects
from tests.unit_objects.conftest import PAGE_OBJECTS, SECRET, Bucket
from tests.unit_objects.object_rows import packed, prompts, row, without_id
from tests.unit_objects.s3_front import CUT, DENIED, DROP, SHORT, SLOW_DOWN, Front

Make = Callable[..., ObjectReader]

# More than every attempt that is made for one object in a pass.
ALWAYS = 1000


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same number of attempts, without waiting; the library's own retries left out."""
    pytest.importorskip("s3fs", reason="s3fs (extra s3) is not installed")
    from s3fs import S3FileSystem

    monkeypatch.setattr(objects_fetch, "_PATIENCE_SECONDS", (0.0, 0.01, 0.01))
    monkeypatch.setattr(S3FileSystem, "retries", 1)


@pytest.mark.parametrize("fault", [DROP, CUT, SHORT, SLOW_DOWN])
def test_a_fault_that_passes_is_not_noticed(
    front: Front, store: Store, bucket: Bucket, reader: Make, fault: str
) -> None:
    for number in range(5):
        bucket.put(f"{number}", packed(row(number), without_id(number)))
    front.faults["3"] = [fault]
    again = reader()
    assert again.run().accepted == 10
    assert again.problems == []
    assert prompts(store) == sorted([100 + n for n in range(5)] * 2)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (DROP, "the connection failed"),
        (CUT, "the connection failed"),
        (SHORT, "it arrived shorter than it is"),
        (DENIED, "permission denied"),
    ],
)
def test_a_fault_that_stays_is_said_and_the_object_read_when_it_is_over(
    front: Front, store: Store, bucket: Bucket, reader: Make, fault: str, reason: str
) -> None:
    old = datetime(2026, 3, 2, tzinfo=UTC)
    bucket.put("broken", packed(row(1), without_id(2)), old)
    for number in range(3, 3 + PAGE_OBJECTS):
        bucket.put(f"{number}", packed(row(number)), old + timedelta(days=30))
    front.faults["broken"] = [fault] * ALWAYS
    again = reader(overlap_seconds=60)
    for _ in range(3):  # far behind the window, and still not given up
        again.run()
        (message,) = again.problems
        assert message.startswith(f"s3://{bucket.name}/broken: cannot be read: {reason}")
        assert prompts(store) == [100 + n for n in range(3, 3 + PAGE_OBJECTS)]
    front.faults.clear()
    assert again.run().accepted == 2
    assert again.problems == []
    assert again.run().accepted == 0
    assert prompts(store) == [100 + n for n in range(1, 3 + PAGE_OBJECTS)]


@pytest.mark.parametrize("fault", [DROP, DENIED])
def test_a_listing_that_fails_part_way_loses_nothing(
    front: Front, store: Store, bucket: Bucket, reader: Make, fault: str
) -> None:
    for number in range(3 * PAGE_OBJECTS):
        bucket.put(f"{number:03}", packed(row(number)))

    def fail(number: int) -> None:
        if number == 2:
            front.faults[""] = [fault] * ALWAYS

    front.listed = fail
    again = reader()
    assert again.run().accepted == PAGE_OBJECTS
    front.faults.clear()
    (message,) = again.problems
    assert "cannot be listed" in message
    assert again.run().accepted == 2 * PAGE_OBJECTS
    assert prompts(store) == [100 + n for n in range(3 * PAGE_OBJECTS)]


def test_objects_that_come_and_go_while_they_are_listed(
    front: Front, store: Store, bucket: Bucket, reader: Make
) -> None:
    """Written before and behind the page in hand, replaced and deleted after they were listed."""
    for number in range(2 * PAGE_OBJECTS):
        bucket.put(f"m{number:03}", packed(row(number), without_id(number)))

    def race(page: int) -> None:
        if page == 2:
            bucket.put("a-before", packed(row(100)))
            bucket.put("z-behind", packed(row(101)))
            bucket.put("m001", packed(row(1), without_id(1), row(102)))  # listed, longer now
            bucket.put("m002", packed(row(2)))  # listed, shorter now
            bucket.put("m013", packed(row(13), without_id(13), row(103)))  # not listed yet
            bucket.delete("m003")

    front.listed = race
    again = reader()
    again.run()
    front.listed = lambda page: None
    assert again.problems == []
    again.run()
    assert again.run().accepted == 0
    with_id = [100 + n for n in range(2 * PAGE_OBJECTS)]
    # Whether an object that was listed is still what it was when it is fetched is chance: the
    # rows that were in it for a while may be there, every other one must be, once.
    fleeting = {102, 103}  # of m002 without id, of all of m003
    found = prompts(store)
    certain = sorted([n for n in with_id * 2 if n not in fleeting] + [102] + [200, 201, 202, 203])
    rest = list(found)
    for value in certain:
        rest.remove(value)
    assert all(rest.count(value) <= limit for value, limit in ((102, 1), (103, 2)))
    assert set(rest) <= fleeting


def test_object_deleted_after_it_was_listed_is_no_problem(
    front: Front, store: Store, bucket: Bucket, reader: Make
) -> None:
    bucket.put("a", packed(row(1)))
    bucket.put("b", packed(row(2)))
    again = reader()
    listing = again._fetcher._store.call_s3

    def list_then_delete(*arguments: str, **options: str) -> object:
        answer = listing(*arguments, **options)
        bucket.delete("a")
        return answer

    again._fetcher._store.call_s3 = list_then_delete
    assert again.run().accepted == 1
    assert again.problems == []


@pytest.mark.parametrize("memory_bytes", [1 << 20, 64 << 20])
def test_damaged_object_gives_its_whole_lines_and_the_rest_when_replaced(
    store: Store, bucket: Bucket, reader: Make, memory_bytes: int
) -> None:
    rows = [row(n, note=f"{n * 7919 % 65521:05}" * 40) for n in range(4000)]
    whole = gzip.compress(packed(*rows), 1)
    bucket.put("a.gz", whole[: len(whole) // 2])
    again = reader(memory_bytes=memory_bytes)
    taken = again.run().accepted
    assert 0 < taken < 4000
    (message,) = again.problems
    assert "damaged or ends early" in message
    assert [reason for _, reason in rejects(store)] == ["damaged"]
    assert prompts(store) == [100 + n for n in range(taken)]
    assert again.run().accepted == 0  # it cannot become better by itself
    bucket.put("a.gz", whole)
    assert again.run().accepted == 4000 - taken
    assert prompts(store) == [100 + n for n in range(4000)]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_small_damaged_object_gives_its_whole_lines(
    store: Store, bucket: Bucket, reader: Make, pack: Callable[[bytes], bytes]
) -> None:
    notes = random.Random(7)
    rows = [row(n, note=notes.randbytes(200).hex()) for n in range(100)]
    whole = pack(packed(*rows))
    bucket.put("a", whole[: len(whole) * 3 // 4])
    again = reader()
    taken = again.run().accepted
    # Both hand out a block when it is whole; this zstd frame is one block.
    assert (50 < taken < 100) if pack is gzip.compress else taken == 0
    assert prompts(store) == [100 + n for n in range(taken)]
    assert [reason for _, reason in rejects(store)] == ["damaged"]
    bucket.put("a", whole)
    again.run()
    assert prompts(store) == [100 + n for n in range(100)]


def test_object_without_one_whole_line_is_one_reject(
    store: Store, bucket: Bucket, reader: Make
) -> None:
    bucket.put("a.gz", gzip.compress(packed(row(1)))[:30])
    again = reader()
    assert again.run().accepted == 0
    assert "damaged or ends early" in again.problems[0]
    assert [reason for _, reason in rejects(store)] == ["damaged"]
    assert again.run().decided_because == "0 objects read, 1 known before"


def test_store_that_refuses_rows_of_a_large_object_does_not_end_it(
    store: Store, bucket: Bucket, reader: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put("large", packed(*(row(n, note="x" * 900) for n in range(1000))))
    again = reader(memory_bytes=1 << 20)

    def refuse(*arguments: object, **options: object) -> None:
        raise PrefixscopeError("the store's memory limit is too small")

    with monkeypatch.context() as patched:
        patched.setattr(objects_intake, "append", refuse)
        with pytest.raises(PrefixscopeError, match="memory limit"):
            again.run()
    assert again.run().accepted == 1000


def test_large_object_cut_off_on_the_way_is_read_to_its_end_later(
    front: Front, store: Store, bucket: Bucket, reader: Make
) -> None:
    rows = [row(n, note="x" * 900) for n in range(4000)]
    bucket.put("large", packed(*rows))
    front.faults["large"] = [DROP] * ALWAYS
    again = reader(memory_bytes=1 << 20)
    again.run()
    assert "cannot be read: the connection failed" in again.problems[0]
    front.faults.clear()
    again.run()
    assert prompts(store) == [100 + n for n in range(4000)]


def test_object_of_no_known_format_is_said_once_and_not_fetched_again(
    front: Front, store: Store, bucket: Bucket, reader: Make
) -> None:
    bucket.put("scores/1.json", b'{"score": 1, "comment": "hello"}\n')
    bucket.put("rows/1.json", packed(row(1)))
    again = reader()
    assert again.run().accepted == 1
    (message,) = again.problems
    assert "not a request log prefixscope knows" in message
    assert "hello" not in message
    again.run()
    assert front.gets.count("scores/1.json") == 1
    # Another format is another reading.
    assert reader(format="ndjson").run().duplicate == 1


def test_rows_and_bookmark_are_one_transaction(
    store: Store, bucket: Bucket, reader: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put("a", packed(row(1), without_id(2)))
    keep = Bookmark.keep

    def fail(self: Bookmark, cursor: duckdb.DuckDBPyConnection, read: list[Read]) -> None:
        keep(self, cursor, read)
        raise KeyboardInterrupt

    monkeypatch.setattr(Bookmark, "keep", fail)
    with pytest.raises(KeyboardInterrupt):
        reader().run()
    assert prompts(store) == []
    monkeypatch.setattr(Bookmark, "keep", keep)
    assert reader().run().accepted == 2


def test_stopped_pass_goes_on_later(store: Store, bucket: Bucket, reader: Make) -> None:
    for number in range(4):
        some = range(number * 300, (number + 1) * 300)
        bucket.put(f"{number}", packed(*(row(n, note="x" * 1000) for n in some)))
    stopped = reader(memory_bytes=1 << 20)
    stop: threading.Event = stopped._stopped
    stopped.run(progress=lambda size: stop.set())
    assert 0 < len(prompts(store)) < 1200
    reader(memory_bytes=1 << 20).run()
    assert prompts(store) == [100 + n for n in range(1200)]


def test_secrets_reach_neither_messages_nor_the_store(
    front: Front, store: Store, bucket: Bucket, reader: Make, caplog: pytest.LogCaptureFixture
) -> None:
    bucket.put("a", packed(row(1)))
    front.faults["a"] = [DENIED] * ALWAYS
    again = reader()
    again.run()
    said = "\n".join([*again.problems, caplog.text])
    assert "permission denied" in said
    store.cursor().execute("CHECKPOINT")
    kept = b"".join(path.read_bytes() for path in store.directory.rglob("*") if path.is_file())
    assert SECRET not in said
    assert SECRET.encode() not in kept
