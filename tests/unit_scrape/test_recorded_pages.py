"""Recorded pages on disk: which are found, how they are named, and what a person is told."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.errors import PrefixscopeError
from exporter.sources.page_files import holds_pages, read_pages, target_name
from exporter.sources.pages import PagesSummary, ingest_pages
from exporter.store.samples import load_targets
from exporter.store.store import Store

BEGAN = 1_772_452_800.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "store")
    yield opened
    opened.close()


def page(prompt: int, cached: int = 0) -> str:
    return (
        f"llamacpp:prompt_tokens_total {prompt}\nllamacpp:prompt_tokens_cached_total {cached}\n"
        "llamacpp:requests_processing 0\n"
    )


def record(folder: Path, bodies: list[str | None], first: int = 0) -> Path:
    """A folder of pages a minute apart with its index; None = the target was down."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "index.jsonl").open("a") as index:
        for number, body in enumerate(bodies, first):
            line = {"file": None, "scraped_unix": BEGAN + 60 * number, "error": "refused"}
            if body is not None:
                line = {"file": f"{number:03d}.prom", "scraped_unix": BEGAN + 60 * number,
                        "status": 200, "content_type": "text/plain; version=0.0.4"}  # fmt: skip
                (folder / f"{number:03d}.prom").write_text(body)
            index.write(json.dumps(line) + "\n")
    return folder


def sums(store: Store) -> tuple[int, int, int]:
    """Prompt tokens, cached tokens, samples."""
    found = store.cursor().execute(
        "SELECT coalesce(sum(prompt_tokens), 0)::BIGINT, coalesce(sum(cached_tokens), 0)::BIGINT,"
        " count(*) FROM engine_samples"
    )
    row = found.fetchone()
    assert row is not None
    return row[0], row[1], row[2]


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("replica-0-metrics", "replica-0"),
        ("runs/main/metrics", "main"),
        ("pages/engine-a", "engine-a"),
        ("x/a-metrics/metrics", "a"),
    ],
)
def test_targets_are_named_after_their_folder(tmp_path: Path, folder: str, name: str) -> None:
    assert target_name(tmp_path / folder) == name


def test_a_folder_with_an_index(store: Store, tmp_path: Path) -> None:
    folder = record(tmp_path / "a", [page(0), page(30, 70), None, page(50, 150)])
    summary = ingest_pages(store, [folder])
    # computed 30 + cached 70, then computed 20 + cached 80
    assert sums(store) == (200, 150, 3)
    assert (summary.pages, summary.down, summary.samples) == (3, 1, 3)
    assert (summary.first_unix, summary.last_unix) == (BEGAN, BEGAN + 180)
    row = load_targets(store.cursor())["a"]
    assert (row.engine, row.up, row.url) == ("llamacpp", True, None)
    assert row.missing_metrics == ("llamacpp:tokens_predicted_total", "llamacpp:requests_deferred")


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 4])
def test_parts_in_any_number_of_calls_are_the_same(store: Store, tmp_path: Path, cut: int) -> None:
    bodies: list[str | None] = [page(0), page(30, 70), None, page(50, 150)]
    folder = tmp_path / "a"
    for first, part in ((0, bodies[:cut]), (cut, bodies[cut:])):
        if part:
            record(folder, part, first)
            try:
                ingest_pages(store, [folder])
            except PrefixscopeError:
                assert not any(part)
    assert sums(store) == (200, 150, 3)


def test_pages_read_again_count_once(store: Store, tmp_path: Path) -> None:
    folder = record(tmp_path / "a", [page(0), page(30, 70)])
    ingest_pages(store, [folder])
    again = ingest_pages(store, [folder, folder / "000.prom"])
    assert sums(store) == (100, 70, 2)
    assert (again.pages, again.skipped) == (0, 2)


def test_single_files_take_their_times_from_the_index_beside_them(
    store: Store, tmp_path: Path
) -> None:
    folder = record(tmp_path / "a", [page(0), page(10), page(30)])
    ingest_pages(store, [folder / "002.prom", folder / "000.prom"])
    assert sums(store) == (30, 0, 2)


def test_without_an_index_files_are_ordered_by_their_own_time(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    for name, minutes, prompt in (("z.prom", 0, 5), ("a.prom", 1, 25)):
        (folder / name).write_text(page(prompt))
        os.utime(folder / name, (BEGAN + 60 * minutes, BEGAN + 60 * minutes))
    summary = ingest_pages(store, [folder])
    assert sums(store) == (20, 0, 2)
    assert summary.messages == []


def test_openmetrics_files_without_an_index_are_known_by_their_end_mark(
    store: Store, tmp_path: Path
) -> None:
    body = "# TYPE llamacpp:prompt_tokens_cached counter\nllamacpp:prompt_tokens_cached_total 5\n"
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "a.prom").write_text(body + "# EOF\n")
    assert ingest_pages(store, [folder]).pages == 1


def test_several_folders_below_one_are_several_targets(store: Store, tmp_path: Path) -> None:
    record(tmp_path / "all" / "a-metrics", [page(0), page(1)])
    record(tmp_path / "all" / "b-metrics", [page(0), page(2)])
    summary = ingest_pages(store, [tmp_path / "all"])
    assert summary.replicas == {"a", "b"}
    assert sums(store)[0] == 3


def test_bad_pages_are_counted_and_named_and_the_rest_is_taken(
    store: Store, tmp_path: Path
) -> None:
    folder = record(tmp_path / "a", [page(0), "<html>", "node_load1 5\n", page(10)])
    summary = ingest_pages(store, [folder])
    assert (summary.pages, summary.unreadable, summary.foreign) == (2, 1, 1)
    assert any("001.prom" in text and "HTML" in text for text in summary.messages)
    assert sums(store)[0] == 10


def test_an_error_status_is_the_target_down(store: Store, tmp_path: Path) -> None:
    folder = record(tmp_path / "a", [page(0)])
    with (folder / "index.jsonl").open("a") as index:
        (folder / "err.prom").write_text("Internal Server Error")
        line = {"file": "err.prom", "scraped_unix": BEGAN + 60, "status": 500}
        index.write(json.dumps(line) + "\n")
    assert ingest_pages(store, [folder]).down == 1
    row = load_targets(store.cursor())["a"]
    assert (row.up, row.error) == (False, "HTTP status 500")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", r"index.jsonl:2: not JSON"),
        ('{"file": "000.prom"}', r"index.jsonl:2: scraped_unix"),
        ('{"file": "000.prom", "scraped_unix": "soon"}', r"index.jsonl:2: scraped_unix"),
        ('{"file": "gone.prom", "scraped_unix": 1}', "gone.prom, which is not beside it"),
        ('{"file": "../000.prom", "scraped_unix": 1}', "must be a name in the same folder"),
        ("[]", r"index.jsonl:2:"),
        ('{"file": "000.prom", "scraped_unix": NaN}', r"index.jsonl:2: scraped_unix"),
    ],
)
def test_faults_of_an_index_name_file_and_line(tmp_path: Path, line: str, says: str) -> None:
    folder = record(tmp_path / "a", [page(0)])
    with (folder / "index.jsonl").open("a") as index:
        index.write(line + "\n")
    with pytest.raises(PrefixscopeError, match=says):
        list(read_pages([folder]))


def test_paths_without_pages_say_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "log.jsonl").write_text("{}\n")
    for path, says in (("gone", "does not exist"), ("empty", "holds no"), ("log.jsonl", "is no")):
        with pytest.raises(PrefixscopeError, match=says):
            list(read_pages([tmp_path / path]))


def test_what_holds_pages(tmp_path: Path) -> None:
    folder = record(tmp_path / "run" / "metrics", [page(0)])
    (tmp_path / "requests.jsonl").write_text("{}\n")
    assert holds_pages(tmp_path / "run")
    assert holds_pages(folder / "000.prom")
    assert holds_pages(folder / "index.jsonl")
    assert not holds_pages(tmp_path / "requests.jsonl")
    assert not holds_pages(tmp_path / "gone")


def test_an_unreadable_page_is_an_error_for_a_person(tmp_path: Path, store: Store) -> None:
    folder = record(tmp_path / "a", [page(0)])
    (folder / "000.prom").unlink()
    (folder / "000.prom").symlink_to(folder)
    with pytest.raises(PrefixscopeError, match=r"000\.prom"):
        ingest_pages(store, [folder])


def test_nothing_is_written_when_a_batch_fails(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = record(tmp_path / "a", [page(0), page(10)])

    def broken(*_: object) -> None:
        raise RuntimeError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr("exporter.sources.pages.upsert_targets", broken)
        with pytest.raises(RuntimeError):
            ingest_pages(store, [folder])
    assert sums(store) == (0, 0, 0)
    ingest_pages(store, [folder])
    assert sums(store) == (10, 0, 2)


def test_a_summary_keeps_a_bounded_number_of_messages() -> None:
    summary = PagesSummary()
    for number in range(100):
        summary.say(f"message {number}")
        summary.say("message 0")
    assert len(summary.messages) == 20
