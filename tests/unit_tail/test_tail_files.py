"""What a followed file goes through: growth, partial lines, rotation, cuts, oddities."""

import gzip
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
import zstandard

from exporter.sources import catch_up
from exporter.sources.tail import Tailer
from exporter.store.store import Store
from tests.unit_tail.written import append_to, ids, offsets, row

Follow = Callable[..., Tailer]


def test_grows(store: Store, logs: Path, follow: Follow) -> None:
    tailer = follow()
    append_to(logs / "app.log", row("r1"), row("r2"))
    tailer.poll_once()
    tailer.poll_once()
    append_to(logs / "app.log", row("r3"))
    tailer.poll_once()
    assert ids(store) == ["r1", "r2", "r3"]
    assert offsets(store) == [((logs / "app.log").stat().st_size, 3)]
    assert store.cursor().execute("SELECT sum(duplicate) FROM ingest_batches").fetchall() == [(0,)]


def test_t59_truncated_file_is_read_from_its_start(
    store: Store, logs: Path, follow: Follow
) -> None:
    path, tailer = logs / "app.log", follow()
    header = b'{"request_id":"r0","prompt_tokens":9}\n'
    append_to(path, header, *(row(f"old{n}") for n in range(110)))
    tailer.poll_once()
    assert offsets(store)[0][0] > 10_000
    # Cut, and it begins with the same line as before: only its size tells.
    path.write_bytes(header + row("n0") + row("n1"))
    assert path.stat().st_size < 300
    tailer.poll_once()
    tailer.poll_once()
    assert ids(store) == sorted([*(f"old{n}" for n in range(110)), "r0", "n0", "n1"])
    assert offsets(store) == [(path.stat().st_size, 3)]


def test_t59_three_new_rows_after_a_restart(store: Store, logs: Path, follow: Follow) -> None:
    path = logs / "app.log"
    append_to(path, *(row(f"old{n}") for n in range(100)))
    follow().poll_once()
    path.write_bytes(row("n0") + row("n1") + row("n2"))
    tailer = follow()
    tailer.poll_once()
    tailer.poll_once()
    assert ids(store) == sorted([*(f"old{n}" for n in range(100)), "n0", "n1", "n2"])


def test_cut_and_grown_beyond_the_offset_between_two_polls(
    store: Store, logs: Path, follow: Follow
) -> None:
    path, tailer = logs / "app.log", follow()
    append_to(path, row("r1"))
    tailer.poll_once()
    path.write_bytes(b"".join(row(f"n{n}") for n in range(5)))
    tailer.poll_once()
    assert ids(store) == ["n0", "n1", "n2", "n3", "n4", "r1"]


def test_cut_and_grown_to_the_same_size(store: Store, logs: Path, follow: Follow) -> None:
    path, tailer = logs / "app.log", follow()
    append_to(path, row("r1"), row("r2"))
    tailer.poll_once()
    path.write_bytes(row("n1") + row("n2"))
    os.utime(path, (0, 0))  # the clock of the file system may be too coarse to tell
    tailer.poll_once()
    assert ids(store) == ["n1", "n2", "r1", "r2"]


def test_offset_inside_a_line_is_not_trusted(store: Store, logs: Path, follow: Follow) -> None:
    """Same first line, longer than before, but no line ends where the old file ended."""
    path, tailer = logs / "app.log", follow()
    header = b'{"request_id":"r0","prompt_tokens":9}\n'
    append_to(path, header, row("short"))
    tailer.poll_once()
    path.write_bytes(header + row("a-much-longer-name") + row("n2"))
    tailer.poll_once()
    assert ids(store) == ["a-much-longer-name", "n2", "r0", "short"]


def test_t60_only_complete_lines_move_the_offset(store: Store, logs: Path, follow: Follow) -> None:
    path, tailer = logs / "app.log", follow()
    second = row("r2")
    append_to(path, row("r1"), second[:24])
    tailer.poll_once()
    assert (ids(store), offsets(store)) == (["r1"], [(len(row("r1")), 1)])
    append_to(path, second[24:])
    tailer.poll_once()
    assert (ids(store), offsets(store)) == (["r1", "r2"], [(len(row("r1")) + len(second), 2)])
    assert store.cursor().execute("FROM rejects").fetchall() == []


def test_t60_first_line_is_not_complete_yet(store: Store, logs: Path, follow: Follow) -> None:
    path, tailer = logs / "app.log", follow()
    path.touch()
    tailer.poll_once()
    append_to(path, row("r1")[:30])
    tailer.poll_once()
    assert (ids(store), offsets(store), tailer.errors) == ([], [], {})
    append_to(path, row("r1")[30:])
    tailer.poll_once()
    assert ids(store) == ["r1"]


def test_first_line_completed_and_renamed_between_two_polls(
    store: Store, logs: Path, follow: Follow
) -> None:
    path, tailer = logs / "app.log", follow()
    append_to(path, row("r1")[:30])
    tailer.poll_once()
    append_to(path, row("r1")[30:])
    path.rename(logs / "app.log.1")
    append_to(path, row("r2"))
    tailer.poll_once()
    assert ids(store) == ["r1", "r2"]


@pytest.mark.parametrize("pattern", ["app.log", "app.log*", "*"])
@pytest.mark.parametrize("name", ["app.log.1", "app.log-20260302", "elsewhere/old"])
def test_renamed_file_is_read_to_its_end(
    store: Store, logs: Path, follow: Follow, pattern: str, name: str
) -> None:
    path, tailer = logs / "app.log", follow(pattern)
    append_to(path, row("r1"))
    tailer.poll_once()
    append_to(path, row("r2"))
    (logs / name).parent.mkdir(exist_ok=True)
    path.rename(logs / name)
    append_to(path, row("r3"))
    tailer.poll_once()
    # The writer may keep the old file open for a while.
    append_to(logs / name, row("r4"))
    tailer.poll_once()
    assert ids(store) == ["r1", "r2", "r3", "r4"]
    assert store.cursor().execute("SELECT sum(duplicate) FROM ingest_batches").fetchall() == [(0,)]


def test_renamed_while_down_is_read_to_its_end(store: Store, logs: Path, follow: Follow) -> None:
    path = logs / "app.log"
    append_to(logs / "app.log-ours-is-not-this", row("stranger"))
    append_to(path, row("r1"))
    follow().poll_once()
    append_to(path, row("r2"))
    path.rename(logs / "app.log.1")
    append_to(path, row("r3"))
    follow().poll_once()
    # A file that merely looks like a rotated one, and was never followed, is left alone.
    assert ids(store) == ["r1", "r2", "r3"]


def test_file_that_was_never_followed_is_left_alone_when_deleted(
    store: Store, logs: Path, follow: Follow
) -> None:
    tailer, stranger = follow(linger_seconds=0), logs / "app.log.7"
    append_to(logs / "app.log", row("r1"))
    append_to(stranger, row("stranger"))
    tailer.poll_once()
    append_to(stranger, row("stranger-2"))
    stranger.unlink()
    for _ in range(3):
        tailer.poll_once()
    assert ids(store) == ["r1"]


def test_file_that_is_written_aside_and_moved_into_place(
    store: Store, logs: Path, follow: Follow
) -> None:
    tailer = follow()
    append_to(logs / "app.log.tmp", row("r1"))
    tailer.poll_once()
    assert ids(store) == []
    (logs / "app.log.tmp").rename(logs / "app.log")
    tailer.poll_once()
    assert ids(store) == ["r1"]


def test_deleted_file_is_read_to_its_end(store: Store, logs: Path, follow: Follow) -> None:
    path, tailer = logs / "app.log", follow(linger_seconds=0)
    append_to(path, row("r1"))
    tailer.poll_once()
    append_to(path, row("r2"), row("r3")[:-1])
    path.unlink()
    tailer.poll_once()
    assert ids(store) == ["r1", "r2"]
    # Quiet since: the writer is gone, and what stands there is all there will be.
    tailer.poll_once()
    assert ids(store) == ["r1", "r2", "r3"]


def test_copied_and_truncated(store: Store, logs: Path, follow: Follow) -> None:
    path, tailer = logs / "app.log", follow("app.log*")
    append_to(path, row("r1"), row("r2"))
    tailer.poll_once()
    append_to(path, row("r3"))
    (logs / "app.log.1").write_bytes(path.read_bytes())
    path.write_bytes(row("r4"))
    tailer.poll_once()
    assert ids(store) == ["r1", "r2", "r3", "r4"]
    assert store.cursor().execute("SELECT sum(duplicate) FROM ingest_batches").fetchall() == [(0,)]


def test_copy_in_progress_is_not_a_cut(store: Store, logs: Path, follow: Follow) -> None:
    path, tailer = logs / "app.log", follow("app.log*")
    append_to(path, *(row(f"r{n}") for n in range(9)))
    tailer.poll_once()
    end = offsets(store)
    (logs / "app.log.1").write_bytes(path.read_bytes()[: len(row("r0")) * 3])
    tailer.poll_once()
    assert offsets(store) == end
    assert store.cursor().execute("SELECT sum(duplicate) FROM ingest_batches").fetchall() == [(0,)]


def test_two_logs_that_begin_alike(store: Store, logs: Path, follow: Follow) -> None:
    """They cannot be told apart by their first line; rows are lost from neither."""
    header, tailer = b'{"request_id":"h","prompt_tokens":9}\n', follow("*.log")
    for turn in range(4):
        for name, length in (("a", 3), ("b", 11)):
            path = logs / f"{name}.log"
            if turn == 0:
                append_to(path, header)
            append_to(path, row(f"{name * length}{turn}"))
            tailer.poll_once()
    expected = [f"{'a' * 3}{n}" for n in range(4)] + [f"{'b' * 11}{n}" for n in range(4)]
    assert ids(store) == [*expected, "h"]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_compressed_rotated_file_is_read_once(
    store: Store, logs: Path, follow: Follow, pack: Callable[[bytes], bytes]
) -> None:
    path, packed = logs / "app.log", logs / "app.log.1.x"
    append_to(path, row("r1"))
    follow("app.log*").poll_once()
    # Rotated and compressed while nobody looked, with a row more; one file is older than us.
    packed.write_bytes(pack(path.read_bytes() + row("r2")))
    (logs / "app.log.2.x").write_bytes(pack(row("a1") + row("a2")[:-1]))
    path.write_bytes(row("r3"))
    for _ in range(2):
        tailer = follow("app.log*")
        tailer.poll_once()
        os.utime(packed)
        tailer.poll_once()
    assert ids(store) == ["a1", "a2", "r1", "r2", "r3"]
    assert store.cursor().execute("SELECT sum(duplicate) FROM ingest_batches").fetchall() == [(0,)]


def test_compressed_file_that_is_still_written(store: Store, logs: Path, follow: Follow) -> None:
    path, tailer = logs / "app.log.1.gz", follow("app.log*")
    whole = gzip.compress(row("r1") + row("r2"))
    path.write_bytes(whole[:-12])
    tailer.poll_once()
    assert "damaged or not complete" in tailer.errors[str(path)]
    path.write_bytes(whole)
    tailer.poll_once()
    assert (ids(store), tailer.errors) == (["r1", "r2"], {})


def test_t66_lines_of_one_response_in_several_polls(
    store: Store, logs: Path, follow: Follow
) -> None:
    usage = {"input_tokens": 2, "cache_read_input_tokens": 15030,
             "cache_creation_input_tokens": 8655}  # fmt: skip
    tailer = follow()
    for output in (9, 9, 159):
        line = {"id": "m1", "type": "message", "usage": usage | {"output_tokens": output}}
        append_to(logs / "app.log", json.dumps(line).encode() + b"\n")
        tailer.poll_once()
    stored = store.cursor().execute(
        "SELECT prompt_tokens, cached_tokens, output_tokens FROM requests"
    ).fetchall()  # fmt: skip
    assert stored == [(23687, 15030, 159)]
    store.fold()
    rolled = store.cursor().execute("SELECT sum(prompt_tokens) FROM hour_rollup").fetchall()
    assert rolled == [(23687,)]


def test_t67_read_again_and_contradicted(store: Store, logs: Path, follow: Follow) -> None:
    append_to(logs / "app.log", row("r1"), row("r2"))
    follow().poll_once()
    # The same rows again in a file of their own, then one that says otherwise.
    append_to(logs / "again.log", row("r2"), row("r1"), row("r1", prompt_tokens=1200))
    follow("again.log").poll_once()
    total = store.cursor().execute("SELECT count(*), sum(prompt_tokens) FROM requests").fetchall()
    assert total == [(2, 2000)]
    rejects = store.cursor().execute("SELECT reason, line_number FROM rejects").fetchall()
    assert rejects == [("conflicting", 3)]


def test_rows_without_an_id_are_read_once(store: Store, logs: Path, follow: Follow) -> None:
    path = logs / "app.log"
    line = b'{"prompt_tokens":10,"cached_tokens":4}\n'
    append_to(path, line, line)
    follow().poll_once()
    append_to(path, line)
    path.rename(logs / "app.log.1")
    follow("app.log*").poll_once()
    assert store.cursor().execute("SELECT count(*) FROM requests").fetchall() == [(3,)]


def test_format_is_decided_on_the_first_rows(store: Store, logs: Path, follow: Follow) -> None:
    path, tailer = logs / "app.log", follow()
    append_to(path, b"starting up\n")
    tailer.poll_once()
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105,
             "prompt_tokens_details": {"cached_tokens": 64}}  # fmt: skip
    line = {"id": "c1", "object": "chat.completion", "created": 1772452800, "usage": usage}
    append_to(path, json.dumps(line).encode() + b"\n")
    tailer.poll_once()
    stored = store.cursor().execute("SELECT request_id, cached_tokens FROM requests").fetchall()
    assert stored == [("c1", 64)]
    rejects = store.cursor().execute("SELECT reason FROM rejects").fetchall()
    assert rejects == [("invalid_json",)]


def test_defaults_fill_what_rows_do_not_have(store: Store, logs: Path, follow: Follow) -> None:
    append_to(logs / "app.log", row("r1"), row("r2", model="theirs"))
    follow(defaults={"model": "ours", "template_version": 3, "block_size": 16}).poll_once()
    stored = store.cursor().execute(
        "SELECT model, template_version, block_size FROM requests ORDER BY request_id"
    ).fetchall()  # fmt: skip
    assert stored == [("ours", "3", 16), ("theirs", "3", 16)]


def test_begin_at_the_end_holds_at_the_first_start_only(
    store: Store, logs: Path, follow: Follow
) -> None:
    path = logs / "app.log"
    append_to(path, row("past"), row("r1")[:20])
    tailer = follow(begin="end")
    tailer.poll_once()
    append_to(path, row("r1")[20:])
    tailer.poll_once()
    assert ids(store) == ["r1"]
    # What was written while nobody looked is not the past.
    append_to(path, row("r2"))
    path.rename(logs / "app.log.1")
    append_to(path, row("r3"))
    follow(begin="end").poll_once()
    assert ids(store) == ["r1", "r2", "r3"]


def test_what_cannot_be_followed_is_said_once(
    store: Store, logs: Path, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    loop, folder, pipe, text = (logs / f"{n}.log" for n in ("loop", "folder", "pipe", "text"))
    loop.symlink_to(loop)
    folder.mkdir()
    os.mkfifo(pipe)
    append_to(text, b'{"level":"info"}\n')
    append_to(logs / "good.log", row("r1"))
    tailer = follow("*.log")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            tailer.poll_once()
    assert ids(store) == ["r1"]
    assert set(tailer.errors) == {str(path) for path in (loop, folder, pipe, text)}
    assert "symbolic links" in tailer.errors[str(loop)]
    assert "this is a folder" in tailer.errors[str(folder)]
    assert "not a plain file" in tailer.errors[str(pipe)]
    assert "keys: level" in tailer.errors[str(text)]
    assert len(caplog.records) == 4
    loop.unlink()
    append_to(loop, row("r2"))
    append_to(text, row("r3"))
    tailer.poll_once()
    assert ids(store) == ["r1", "r2", "r3"]
    assert set(tailer.errors) == {str(folder), str(pipe)}


def test_missing_right_is_said_and_over_when_given(
    store: Store, logs: Path, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, tailer = logs / "app.log", follow()
    append_to(path, row("r1"))
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> int:
            raise PermissionError(13, "Permission denied")

        patch.setattr(os, "open", refuse)
        tailer.poll_once()
    assert tailer.errors == {str(path): "cannot be read: Permission denied"}
    tailer.poll_once()
    assert (ids(store), tailer.errors) == (["r1"], {})


def test_folder_that_cannot_be_listed(logs: Path, follow: Follow) -> None:
    (logs / "loop").symlink_to(logs / "loop")
    tailer = follow("loop/*.log")
    tailer.poll_once()
    assert "cannot list the folder" in tailer.errors[str(logs / "loop")]


def test_nothing_matches_yet(store: Store, logs: Path, follow: Follow) -> None:
    tailer = follow("pods/*/app.log")
    tailer.poll_once()
    assert tailer.errors == {str(logs / "pods/*/app.log"): "no file matches yet"}
    (logs / "pods" / "a").mkdir(parents=True)
    append_to(logs / "pods" / "a" / "app.log", row("r1"))
    tailer.poll_once()
    assert (ids(store), tailer.errors) == (["r1"], {})


def test_file_that_vanishes_between_listing_and_opening(
    store: Store, logs: Path, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_to(logs / "a.log", row("r1"))
    append_to(logs / "b.log", row("r2"))
    really = os.open

    def vanish(path: str | Path, flags: int) -> int:
        if Path(path).name == "a.log":
            (logs / "a.log").unlink()
        return really(path, flags)

    tailer = follow("*.log")
    monkeypatch.setattr(os, "open", vanish)
    tailer.poll_once()
    assert (ids(store), tailer.errors) == (["r2"], {})


def test_thread_follows_and_stops(store: Store, logs: Path, follow: Follow) -> None:
    tailer = follow()
    append_to(logs / "app.log", row("r1"))
    tailer.start()
    assert tailer.alive
    while not ids(store):
        assert tailer.alive
    tailer.stop()
    assert (tailer.alive, ids(store)) == (False, ["r1"])


def test_store_that_takes_no_rows_is_tried_again(
    store: Store, logs: Path, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_to(logs / "a.log", row("r1"))
    tailer = follow("*.log")
    faults = [
        duckdb.IOException("No space left on device"),
        duckdb.InvalidInputException('malformed: "a secret prompt"'),
    ]
    said: list[str] = []
    with monkeypatch.context() as patch:

        def fail(*_: object) -> None:
            raise faults[len(said)]

        patch.setattr(catch_up, "append", fail)
        for _ in faults:
            tailer.poll_once()
            said.append(tailer.errors[str(logs / "a.log")])
    assert "No space left on device" in said[0]
    assert "secret" not in said[1]
    assert "InvalidInputException" in said[1]
    tailer.poll_once()
    assert (ids(store), tailer.errors) == (["r1"], {})
