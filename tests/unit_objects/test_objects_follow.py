"""Following a prefix, by the follower itself and by `serve` and `ingest` as people start them."""

import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import requests
import yaml

from exporter.sources.log_settings import LogSettings
from exporter.sources.objects.follow import follow_prefix
from exporter.sources.passes import PassFollower
from exporter.store.store import Store
from prefixscope import client
from prefixscope.cli import main
from prefixscope.doctor import log_files
from prefixscope.doctor.facts import LogFacts
from prefixscope.serve import running
from prefixscope.settings import load_settings
from tests.log_path import SMALL
from tests.running import eventually
from tests.unit_objects.conftest import PAGE_OBJECTS, SECRET, Bucket
from tests.unit_objects.object_rows import packed, prompts, row
from tests.unit_objects.s3_front import DENIED, Front


@pytest.fixture
def follow(store: Store, bucket: Bucket) -> Iterator[Callable[..., PassFollower]]:
    started: list[PassFollower] = []

    def start(**settings: object) -> PassFollower:
        given = {"source": "bucket", "path": f"s3://{bucket.name}/", **settings}
        started.append(follow_prefix(store, LogSettings.model_validate(given)))
        return started[-1]

    yield start
    for follower in started:
        follower.stop()


def _until(reached: Callable[[], bool]) -> None:
    eventually("such rows in the store", reached)


def test_new_objects_are_taken_while_it_runs(
    store: Store, bucket: Bucket, follow: Callable[..., PassFollower]
) -> None:
    follower = follow(objects={"poll_seconds": 0.05})
    bucket.put("1", packed(row(1)))
    follower.start()
    _until(lambda: prompts(store) == [101])
    bucket.put("0", packed(row(0)))
    _until(lambda: prompts(store) == [100, 101])
    assert follower.alive
    follower.stop()
    assert not follower.alive


def test_begin_at_the_end_leaves_what_is_there(
    store: Store, bucket: Bucket, follow: Callable[..., PassFollower]
) -> None:
    bucket.put("1", packed(row(1)))
    first = follow(begin="end")
    first.poll_once()
    bucket.put("2", packed(row(2)))
    first.poll_once()
    assert prompts(store) == [102]
    bucket.put("3", packed(row(3)))
    follow(begin="end").poll_once()  # a restart is no first start
    assert prompts(store) == [102, 103]


def test_begin_at_the_end_of_an_empty_prefix_takes_all_that_comes(
    store: Store, bucket: Bucket, follow: Callable[..., PassFollower]
) -> None:
    follower = follow(begin="end")
    follower.poll_once()
    assert follower.errors == [f"s3://{bucket.name}/: no object there yet"]
    bucket.put("1", packed(row(1)))
    follower.poll_once()
    assert prompts(store) == [101]


def test_begin_at_the_end_waits_for_a_whole_listing(
    front: Front, store: Store, bucket: Bucket, follow: Callable[..., PassFollower]
) -> None:
    for number in range(2 * PAGE_OBJECTS):
        bucket.put(f"{number:03}", packed(row(number)))

    def fail(number: int) -> None:
        if number == 2:
            front.faults[""] = [DENIED] * 100

    front.listed = fail
    follower = follow(begin="end")
    follower.poll_once()
    front.faults.clear()
    follower.poll_once()
    bucket.put("999", packed(row(999)))
    follower.poll_once()
    assert prompts(store) == [1099]


def test_problems_are_logged_once_and_over_when_they_are(
    front: Front, store: Store, bucket: Bucket, follow: Callable[..., PassFollower],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level("INFO", logger="exporter.sources.passes")
    bucket.put("1", packed(row(1)))
    front.faults["1"] = [DENIED] * 10
    follower = follow()
    for _ in range(3):
        follower.poll_once()
    assert len(follower.errors) == 1
    front.faults.clear()
    follower.poll_once()
    assert follower.errors == []
    levels = [record.levelname for record in caplog.records if "bucket" in record.getMessage()]
    assert levels == ["WARNING", "INFO"]
    assert SECRET not in caplog.text


def test_defaults_and_format_are_those_of_the_settings(
    store: Store, bucket: Bucket, follow: Callable[..., PassFollower]
) -> None:
    bucket.put("1", packed(row(1)))
    follow(format="ndjson", defaults={"route": "chat"}).poll_once()
    (found,) = store.cursor().execute("SELECT route, source FROM requests").fetchall()
    assert found == ("chat", "bucket")


def test_serve_follows_a_prefix(bucket: Bucket, tmp_path: Path) -> None:
    folder = tmp_path
    bucket.put("1", packed(row(1)))
    file = folder / "prefixscope.yml"
    file.write_text(
        yaml.safe_dump(
            {
                "store": {"directory": str(folder / "served")},
                "server": {"listen": "127.0.0.1:0"},
                "logs": [{"source": "bucket", "path": f"s3://{bucket.name}/"}],
            }
        )
    )
    with running(load_settings(file, {})) as exporter:

        def seen() -> bool:
            answer = requests.get(f"{exporter.url}/api/v1/query/hit_ratio", timeout=60)
            return bool(answer.json()[0]["prompt_tokens"] == 101)

        _until(seen)


def _ingest(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["prefixscope", "ingest", *map(str, arguments)])
    monkeypatch.setattr(client, "DEFAULT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), *capfd.readouterr()


def test_ingest_takes_a_prefix_beside_a_file(
    front: Front, bucket: Bucket, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = tmp_path
    monkeypatch.chdir(folder)
    for number in range(3):
        bucket.put(f"logs/{number}.json", json.dumps(row(number)).encode())
    (folder / "file.jsonl").write_bytes(packed(row(7)))
    path, to = f"s3://{bucket.name}/logs/", folder / "loaded"
    status, out, err = _ingest(monkeypatch, capfd, path, "file.jsonl", "--store", to)
    assert status == 0, err
    assert "3 objects read, 0 known before" in out
    front.faults["logs/3.json"] = [DENIED] * 10
    bucket.put("logs/3.json", packed(row(3)))
    status, out, err = _ingest(monkeypatch, capfd, path, "--store", to)
    assert status == 1
    assert "0 objects read, 3 known before" in out
    assert f"{path}3.json: cannot be read: permission denied" in err.replace("\n", "")
    assert SECRET not in out + err
    loaded = Store.open(to, SMALL)
    assert prompts(loaded) == [100, 101, 102, 107]
    loaded.close()


def test_doctor_reads_a_few_objects_or_says_why_not(front: Front, bucket: Bucket) -> None:
    for number in range(3):
        bucket.put(f"{number}", packed(row(number)))

    def look(path: str) -> LogFacts:
        found = log_files.find(LogSettings(source="bucket", path=path))
        assert found.error is None
        (facts,) = log_files.sampled([found], {}, datetime.now(UTC))
        return facts

    facts = look(f"s3://{bucket.name}/")
    assert (facts.error, facts.accepted, facts.sampled) == (None, 3, True)
    missing = look("s3://no-such-bucket-here/x/")
    assert missing.error is not None
    assert "there is no such bucket" in missing.error
    front.faults[""] = [DENIED] * 10
    denied = look(f"s3://{bucket.name}/")
    assert denied.error is not None
    assert "permission denied" in denied.error
    assert SECRET not in f"{denied.error} {denied.fix}"
