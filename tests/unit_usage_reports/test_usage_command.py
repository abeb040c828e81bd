"""`prefixscope backfill --usage` as a person runs it, and the endpoint it sends to."""

import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from exporter.sources.usage_reports import report as reports
from exporter.store.store import Store
from prefixscope import client
from prefixscope.serve import running as exporting
from prefixscope.settings import Settings
from tests.loopback_answers import Answer, answering
from tests.running import free_port
from tests.unit_cli.conftest import RunCli

SAVED = Path(__file__).parent / "saved"
SECRET = "sk-admin-cAnArY-9876543210"
# Prompt and cached tokens of the saved reports, added up by hand.
OPENAI_SUMS = {"openai": (237_444, 104_448)}
ANTHROPIC_SUMS = {"anthropic": (269_720, 259_200)}


@pytest.fixture(autouse=True)
def _no_keys_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_ADMIN_KEY", "ANTHROPIC_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)


def sums(folder: Path) -> dict[str, tuple[int, int]]:
    store = Store.open(folder)
    rows = store.cursor().execute(
        "SELECT reporter, sum(prompt_tokens)::BIGINT, sum(cached_tokens)::BIGINT"
        " FROM provider_usage GROUP BY reporter"
    ).fetchall()  # fmt: skip
    store.close()
    return {reporter: (prompt, cached) for reporter, prompt, cached in rows}


def test_saved_reports_of_both(cli: RunCli, tmp_path: Path) -> None:
    options = ("--usage", SAVED / "openai-pages.json", "--usage", SAVED / "anthropic-pages.ndjson",
               "--store", tmp_path / "s")  # fmt: skip
    first = cli("backfill", *options)
    assert first.status == 0, first.err
    assert sums(tmp_path / "s") == OPENAI_SUMS | ANTHROPIC_SUMS
    assert "3 of 24 h, 2026-11-03 00:00 to 2026-11-05 00:00 UTC" in first.out
    assert "gpt-4o-2024-08-06, gpt-5.6-terra" in first.out
    for word in ("237,444", "104,448", "44.0 % (the provider's figure)", "269,720", "96.1 %"):
        assert word in first.out
    assert "prefixscope query reconciliation" in first.out
    again = cli("backfill", *options)
    assert (again.status, sums(tmp_path / "s")) == (0, OPENAI_SUMS | ANTHROPIC_SUMS)


def test_two_organizations_are_told_apart_by_name(cli: RunCli, tmp_path: Path) -> None:
    """The second has the figures of the first with projects of its own."""
    other = tmp_path / "other.json"
    text = (SAVED / "openai-pages.json").read_text(encoding="utf-8")
    other.write_text(text.replace("proj_", "proj_other_"), encoding="utf-8")
    place = ("--store", tmp_path / "s")
    cli("backfill", "--usage", SAVED / "openai-pages.json", *place)
    refused = cli("backfill", "--usage", other, *place)
    assert refused.status == 1
    assert "is it another organization's?" in refused.err
    assert sums(tmp_path / "s") == OPENAI_SUMS
    for _ in range(2):
        taken = cli("backfill", "--usage", other, "--account", "other", *place)
        assert taken.status == 0, taken.err
    assert sums(tmp_path / "s") == {"openai": (2 * 237_444, 2 * 104_448)}


def test_the_time_of_the_file_tells_which_bucket_was_open(cli: RunCli, tmp_path: Path) -> None:
    file = tmp_path / "usage.json"
    shutil.copy(SAVED / "openai-pages.json", file)
    written = datetime(2026, 11, 5, 15, tzinfo=UTC).timestamp()
    os.utime(file, (written, written))
    done = cli("backfill", "--usage", file, "--store", tmp_path / "s")
    assert "1 of the buckets had not ended at 2026-11-05 15:00 UTC" in done.out
    asked = cli("query", "provider_usage", "--store", tmp_path / "s", "--output", "json")
    told = {(row["day"], row["still_open"]) for row in json.loads(asked.out)}
    assert told == {("2026-11-03T00:00:00Z", False), ("2026-11-05T00:00:00Z", True)}


def test_standard_input(cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = json.loads((SAVED / "openai-pages.json").read_text())[0]
    text = io.TextIOWrapper(io.BytesIO(json.dumps(page).encode()))
    monkeypatch.setattr(sys, "stdin", text)
    done = cli("backfill", "--usage", "-", "--store", tmp_path / "s")
    assert done.status == 0, done.err
    assert sums(tmp_path / "s") == {"openai": (177_444, 72_448)}
    assert "the last page says that there are more: save them too" in done.out


def test_one_report_that_fails_does_not_stop_the_others(cli: RunCli, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"prompt": "SECRET-TEXT"}')
    done = cli("backfill", "--usage", bad, "--usage", "nowhere.json", "--usage",
               SAVED / "openai-pages.json", "--store", tmp_path / "s")  # fmt: skip
    assert done.status == 1
    assert sums(tmp_path / "s") == OPENAI_SUMS
    assert f"{bad}: page 1: is no usage report" in done.err
    assert "nowhere.json: cannot be read: No such file or directory; --usage is a saved" in done.err
    assert "SECRET-TEXT" not in done.out + done.err


def test_wrong_usage(cli: RunCli, tmp_path: Path) -> None:
    both = cli("backfill", "--usage", "openai", "--prometheus", "http://127.0.0.1:9")
    assert (both.status, "give --prometheus or --usage, not both" in both.err) == (2, True)
    without = cli("backfill", "--usage", "openai", "--store", tmp_path / "s")
    assert without.status == 1
    assert "set OPENAI_ADMIN_KEY to an admin key" in without.err


def test_into_a_running_exporter(cli: RunCli, tmp_path: Path) -> None:
    settings = Settings.model_validate({
        "store": {"directory": tmp_path / "s"}, "server": {"listen": f"127.0.0.1:{free_port()}"},
    })  # fmt: skip
    with exporting(settings) as exporter:
        for where in (("--url", exporter.url), ("--store", tmp_path / "s")):
            done = cli("backfill", "--usage", SAVED / "openai-pages.json", *where)
            assert done.status == 0, done.err
            assert f"into the exporter at {exporter.url}" in done.err
        asked = cli("query", "provider_usage", "--url", exporter.url, "--output", "json")
    assert sum(row["prompt_tokens"] for row in json.loads(asked.out)) == 237_444
    assert sums(tmp_path / "s") == OPENAI_SUMS


@pytest.fixture
def provider_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a loopback address in the place of OpenAI's."""

    def put(url: str) -> None:
        tables = {**reports.TABLES, "openai": replace(reports.TABLES["openai"], url=url)}
        monkeypatch.setattr("prefixscope.usage_client.TABLES", tables)

    return put


def last_page() -> bytes:
    page: dict[str, Any] = json.loads((SAVED / "openai-pages.json").read_text())[1]
    return json.dumps(page).encode()


REPLIES: Mapping[str, tuple[Answer, int, str]] = {
    "fine": (Answer(last_page()), 0, "60,000"),
    "refused": (
        Answer(json.dumps({"error": {"message": f"Incorrect key {SECRET}"}}), 401), 1,
        "the key in OPENAI_ADMIN_KEY is refused; it must be an admin key",
    ),
    "echoed": (Answer(SECRET), 1, "the answer is no JSON"),
    "misread": (Answer(json.dumps({"data": [{"start_time": SECRET}]})), 1, "bucket 1: start_time"),
}  # fmt: skip


@pytest.mark.parametrize("reply", REPLIES)
def test_the_key_is_in_no_output_and_not_in_the_store(
    cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    provider_at: Callable[[str], None], caplog: pytest.LogCaptureFixture, reply: str,
) -> None:  # fmt: skip
    caplog.set_level("DEBUG")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", SECRET)
    answer, status, said = REPLIES[reply]
    with answering({"/usage": answer}) as server:
        provider_at(f"{server.url}/usage")
        done = cli("backfill", "--usage", "openai", "--since", "2026-11-03T00:00:00Z",
                   "--store", tmp_path / "s")  # fmt: skip
    assert (done.status, said in done.out + done.err) == (status, True), done.err
    assert "GET /usage?start_time=" in server.asked[0]
    assert SECRET not in done.out + done.err + caplog.text + "".join(server.asked)
    for file in (tmp_path / "s").iterdir():
        assert SECRET.encode() not in file.read_bytes()


@pytest.mark.parametrize(("body", "said"), [
    (b"{", "the body: Invalid JSON"),
    (b'{"reporter": "openai", "read_at": "2026-11-03T00:00:00Z"}', "rows: Field required"),
    (b'{"reporter": "openai", "read_at": "2026-11-03T00:00:00", "rows": []}', "read_at: Input"),
    (json.dumps({"reporter": "openai", "read_at": "2026-11-03T00:00:00Z", "rows": [{
        "day": "2026-11-03T00:00:00Z", "provider": "openai", "prompt_tokens": -1,
        "model": SECRET}]}).encode(), "rows.0.prompt_tokens: Input should be greater"),
])  # fmt: skip
def test_the_endpoint_refuses_what_is_no_report(tmp_path: Path, body: bytes, said: str) -> None:
    settings = Settings.model_validate({
        "store": {"directory": tmp_path / "s"}, "server": {"listen": f"127.0.0.1:{free_port()}"},
    })  # fmt: skip
    with exporting(settings) as exporter, pytest.raises(client.WrongQuestion) as raised:
        client.Exporter(exporter.url).send("POST", "/v1/usage", params={}, headers={}, data=body)
    assert said in str(raised.value)
    assert SECRET not in str(raised.value)
    assert sums(tmp_path / "s") == {}
