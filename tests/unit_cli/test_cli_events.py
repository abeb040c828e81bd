"""`ingest` of recorded KV-cache events: into a store and into a running exporter, the same."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prefixscope.serve import running
from prefixscope.settings import Settings
from tests.running import answer

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out

CAPTURES = Path(__file__).parents[3] / "shared" / "captures" / "vllm-0.32.0"
pytestmark = pytest.mark.skipif(
    not CAPTURES.exists(), reason="the captures are not on this machine"
)
SUMMARY = ("event batches 171", "blocks stored 779", "blocks evicted 709")


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    folder = tmp_path / "evict"
    folder.mkdir()
    return Path(shutil.copy(CAPTURES / "evict" / "kv-events.raw.jsonl", folder))


def test_into_a_store(cli: Cli, recording: Path) -> None:
    done = cli("ingest", recording, "--store", "s")
    assert done.status == 0
    assert all(part in words(done.out) for part in SUMMARY)
    assert "resident at the end 70 on evict device" in words(done.out)
    again = cli("ingest", recording, "--store", "s", "--format", "kv-events")
    assert again.status == 0
    assert "already known 171" in words(again.out)


def test_into_a_running_exporter(cli: Cli, recording: Path, tmp_path: Path) -> None:
    """Over HTTP the tables are those of a store filled directly, and of standard input."""
    cli("ingest", recording, "--store", "own")
    direct = cli("query", "evictions", "--store", "own", "--output", "json").out
    settings = Settings.model_validate(
        {"server": {"listen": "127.0.0.1:0"}, "store": {"directory": tmp_path / "served"}}
    )
    with running(settings) as exporter:
        done = cli("ingest", recording, "--url", exporter.url)
        served = cli("query", "evictions", "--url", exporter.url, "--output", "json").out
        (state,) = answer(exporter.url, "store_state")
    assert done.status == 0
    assert all(part in words(done.out) for part in SUMMARY)
    assert served == direct
    assert (state["level"], state["events_last_ts"]) == (0, "2026-11-29T22:48:03.945345Z")


def test_what_is_no_recording_is_an_error(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text('{"prompt_tokens": 5}\n')
    done = cli("ingest", file, "--store", "s", "--format", "kv-events")
    assert done.status == 1
    assert "unreadable 1" in words(done.out)


def test_names_that_cannot_be_labels_are_refused(cli: Cli, recording: Path, tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {"server": {"listen": "127.0.0.1:0"}, "store": {"directory": tmp_path / "served"}}
    )
    with running(settings) as exporter:
        done = cli("ingest", recording, "--url", exporter.url, "--source", "x" * 101)
    assert done.status == 1
    assert "source is a name of at most 100 printable characters" in done.err
