"""`ingest`: inputs of every kind, the summary, and what a person is told when one is bad."""

import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard

from tests.full_disk import no_file_beyond

CAPTURES = Path(__file__).parents[3] / "shared" / "captures"

# Of one prompt of 500 tokens: acme sends it first, then three others with salts of their own.
SALTED = Path(__file__).parents[1] / "unit_isolation" / "llama_two_tenants" / "tap.ndjson"

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out


def lines(*ids: str, **more: object) -> bytes:
    row = {"ts": "2026-03-02T12:00:00Z", "prompt_tokens": 1000, "cached_tokens": 700} | more
    return b"".join(json.dumps({"request_id": i, **row}).encode() + b"\n" for i in ids)


def facts(out: str) -> dict[str, str]:
    """The summary's names and values."""
    pairs = (line.strip().split("  ", 1) for line in out.splitlines() if line.startswith("  "))
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


def cached(cli: Cli, store: Path) -> int:
    done = cli("query", "hit_ratio", "--store", store, "--output", "json")
    return int(json.loads(done.out)[0]["cached_tokens"])


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
def test_plain_gzip_and_zstd_are_told_by_their_bytes(
    cli: Cli, tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    file = tmp_path / "log"
    file.write_bytes(pack(lines("a", "b")))
    done = cli("ingest", file, "--store", tmp_path / "store")
    assert done.status == 0, done.err
    summary = facts(done.out)
    assert (summary["accepted"], summary["duplicate"], summary["rejected"]) == ("2", "0", "0")
    assert (summary["token hit ratio"], summary["coverage"]) == ("70.0 %", "100.0 %")
    assert "(" in summary["format"]
    assert cached(cli, tmp_path / "store") == 1400


def test_without_an_exporter_scopes_are_audited_at_the_end(cli: Cli, tmp_path: Path) -> None:
    """31 whole blocks of 16 of the prompt; however long ago it was sent."""
    assert cli("ingest", SALTED, "--store", tmp_path / "store").status == 0
    told = cli("query", "isolation", "--store", tmp_path / "store", "--output", "json")
    found = {row["tenants"]: row["merged_tokens"] for row in json.loads(told.out)}
    assert found == dict.fromkeys(("birch", "cedar", "no salt"), 496)


def test_standard_input_is_a_dash(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(lines("a"))))
    done = cli("ingest", "-", "--store", tmp_path / "store", "--source", "gateway")
    assert done.status == 0, done.err
    health = cli("query", "ingest_health", "--store", tmp_path / "store", "--output", "json")
    assert json.loads(health.out)[0]["source"] == "gateway"


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
def test_a_pipe_may_be_packed_too(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    command = [sys.executable, "-m", "prefixscope", "ingest", "-", "--store", "store"]
    content = pack(lines("a", "b"))
    done = subprocess.run(command, input=content, capture_output=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert facts(done.stdout.decode())["accepted"] == "2"


def test_t67_the_same_file_twice_changes_nothing(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(lines("a", "b"))
    cli("ingest", file, "--store", tmp_path / "store")
    again = cli("ingest", file, "--store", tmp_path / "store")
    assert (again.status, facts(again.out)["duplicate"]) == (0, "2")
    assert cached(cli, tmp_path / "store") == 1400


def test_bad_rows_are_counted_by_reason(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(lines("a") + b"{broken\n[]\n" + lines("b"))
    done = cli("ingest", file, "--store", tmp_path / "store")
    assert done.status == 0
    rejected = facts(done.out)["rejected"]
    assert rejected.startswith("2 (")
    found = cli("query", "rejects", "--store", tmp_path / "store", "--output", "json")
    assert sum(row["rejects"] for row in json.loads(found.out)) == 2


def test_input_without_one_usable_row_is_1(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(b"this is\nno log\n")
    done = cli("ingest", file, "--store", tmp_path / "store", "--format", "ndjson")
    assert done.status == 1
    assert facts(done.out)["rejected"].startswith("2 (")


def test_bad_inputs_are_named_and_the_others_loaded(cli: Cli, tmp_path: Path) -> None:
    good, cut, folder = tmp_path / "good", tmp_path / "cut.gz", tmp_path / "folder"
    good.write_bytes(lines("a"))
    cut.write_bytes(gzip.compress(os.urandom(5000))[:-100])
    folder.mkdir()
    inputs = [tmp_path / "gone", folder, cut, good]
    done = cli("ingest", *inputs, "--store", tmp_path / "store", "--format", "ndjson")
    assert done.status == 1
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 3
    assert "gone: cannot be read: No such file or directory" in errors[0]
    assert "folder without metric pages" in errors[1]
    assert "cut.gz: the compressed data is damaged or ends early" in errors[2]
    assert facts(done.out)["accepted"] == "1"
    assert "error" not in done.out


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_one_may_not_read_is_named(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(lines("a"))
    file.chmod(0)
    done = cli("ingest", file, "--store", tmp_path / "store")
    assert (done.status, "Permission denied" in done.err) == (1, True)


def test_an_unknown_format_is_2_and_names_the_known(cli: Cli, tmp_path: Path) -> None:
    done = cli("ingest", tmp_path / "x", "--format", "nonsense")
    assert done.status == 2
    assert "ndjson" in done.err


def test_nothing_to_load_is_2(cli: Cli) -> None:
    assert cli("ingest").status == 2


@pytest.mark.skipif(not CAPTURES.exists(), reason="the captures are not on this machine")
def test_log_and_metric_pages_of_a_capture(cli: Cli, tmp_path: Path) -> None:
    capture = CAPTURES / "vllm-0.32.0" / "main"
    done = cli(
        "ingest", capture / "requests.jsonl", capture / "metrics", "--store", tmp_path / "store"
    )
    assert done.status == 0, done.err
    assert facts(done.out)["metric pages"] == "11"
    for question in ("hit_ratio", "engine_hit_ratio"):
        answer = cli("query", question, "--store", tmp_path / "store", "--output", "json")
        (row,) = json.loads(answer.out)
        assert (row["prompt_tokens"], row["cached_tokens"]) == (43_832, 29_696)


def test_a_full_disk_is_told_with_what_to_do(cli: Cli, tmp_path: Path) -> None:
    log, store = tmp_path / "log.jsonl", tmp_path / "store"
    log.write_bytes(lines("a"))
    assert cli("ingest", log, "--store", store).status == 0
    log.write_bytes(lines(*(f"b{n}" for n in range(3_000))))
    with no_file_beyond(50_000):
        full = cli("ingest", log, "--store", store)
    assert full.status == 1
    assert "cannot be written" in full.err
    assert "make room and do it again" in full.err
    assert "Traceback" not in full.err
    assert facts(cli("ingest", log, "--store", store).out)["accepted"] == "3,000"
