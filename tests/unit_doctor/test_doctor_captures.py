"""doctor on recorded pages and logs of real engines, served on loopback: what it finds there.

Expected numbers are the captures' own (their README works them out from the clients' usage).
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from prefixscope.serve import running
from prefixscope.settings import load_settings
from tests.log_path import CAPTURES, needs_captures
from tests.loopback_answers import Answer, answering, page
from tests.running import eventually, free_port
from tests.unit_cli.conftest import RunCli, cli

__all__ = ["cli"]

pytestmark = needs_captures
VLLM = CAPTURES / "vllm-0.32.0"
ROUTER = CAPTURES / "vllm-0.32.0-x2-vllm-router-0.1.17"
DETAILS = "start vLLM with --enable-prompt-tokens-details"
Findings = dict[tuple[str, str], dict[str, Any]]


def last_page(folder: Path) -> Answer:
    return page(max(folder.glob("*.prom")))


def findings(cli: RunCli, *arguments: object) -> tuple[int, dict[str, Any], Findings]:
    """Exit status, everything, and the findings by check and severity."""
    done = cli("doctor", *arguments, "--pause", "0", "--output", "json")
    assert done.err == ""
    told = json.loads(done.out)
    return done.status, told, {(f["check"], f["severity"]): f for f in told["findings"]}


def beyond_ok(found: Findings) -> set[tuple[str, str]]:
    return {key for key in found if key[1] != "ok"}


def settings(folder: Path, **sections: object) -> Path:
    file = folder / "prefixscope.yml"
    usual = {
        "store": {"directory": str(folder / "store")},
        "server": {"listen": f"127.0.0.1:{free_port()}"},
    }
    file.write_text(yaml.safe_dump({**usual, **sections}), encoding="utf-8")
    return file


def with_log(folder: Path, address: str, log: Path) -> Path:
    copy = folder / "requests.jsonl"
    shutil.copyfile(log, copy)
    return settings(
        folder,
        scrape={"interval_seconds": 0.5, "targets": {"static": [{"url": address, "name": "v"}]}},
        logs=[{"source": "client", "path": str(copy)}],
    )


def test_an_engine_in_order_by_its_page_alone(cli: RunCli) -> None:
    answers = {"/metrics": last_page(VLLM / "main" / "metrics"),
               "/version": Answer('{"version": "0.32.0"}')}  # fmt: skip
    with answering(answers) as engine:
        status, told, found = findings(cli, "--target", engine.address)
    assert status == 0
    assert told["level"] == 0
    assert beyond_ok(found) == {("usage-details", "note")}
    says = found["target-reachable", "ok"]["says"]
    assert says.startswith("vLLM 0.32.0: model tiny; ")
    assert {call.partition(" ")[0] for call in engine.asked} == {"GET"}, "nothing is sent unasked"


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        ("main", set()),
        ("defaults", {("usage-details", "warning")}),
        ("caching-off", {("caching-off", "warning")}),
    ],
)
def test_page_and_log_before_anything_runs(
    cli: RunCli, tmp_path: Path, scenario: str, expected: set[tuple[str, str]]
) -> None:
    with answering({"/metrics": last_page(VLLM / scenario / "metrics")}) as engine:
        config = with_log(tmp_path, engine.url, VLLM / scenario / "requests.jsonl")
        status, _, found = findings(cli, "--config", config)
    assert status == 0
    assert beyond_ok(found) == expected | {("exporter", "note")}
    assert not (tmp_path / "store").exists(), "looking leaves nothing behind"


def test_t05_a_missing_flag_is_named_with_its_evidence(cli: RunCli, tmp_path: Path) -> None:
    with answering({"/metrics": last_page(VLLM / "defaults" / "metrics")}) as engine:
        config = with_log(tmp_path, engine.url, VLLM / "defaults" / "requests.jsonl")
        _, told, found = findings(cli, "--config", config)
        assert cli("doctor", "--config", config, "--pause", "0", "--strict").status == 1
    flag = found["usage-details", "warning"]
    assert flag["fix"] == DETAILS
    # The client sent 53 requests; the engine's own counters know 26,624 of 42,264 tokens.
    assert "53 of the newest 53 rows" in flag["says"]
    assert "26,624 cached of 42,264 prompt tokens" in flag["says"]
    assert told["level"] == 0


@pytest.mark.parametrize("how", ["config", "url", "store"])
def test_beside_a_running_exporter_and_after_it(cli: RunCli, tmp_path: Path, how: str) -> None:
    with answering({"/metrics": last_page(VLLM / "main" / "metrics")}) as engine:
        config = with_log(tmp_path, engine.url, VLLM / "main" / "requests.jsonl")
        with running(load_settings(config, {})) as exporter:
            wait_for_rows(cli, exporter.url)
            if how != "store":
                place = ("--config", config) if how == "config" else ("--url", exporter.url)
                status, told, found = findings(cli, *place)
        if how == "store":
            status, told, found = findings(cli, "--store", tmp_path / "store")
    assert status == 0
    assert beyond_ok(found) == set()
    # Token ids of a capture become chains of keyed hashes.
    assert told["level"] == 3
    assert found["log-readable", "ok"]["says"].startswith("55 rows of format capture; ")
    assert found["exporter", "ok"]["says"].startswith("asked the ")


def wait_for_rows(cli: RunCli, url: str) -> None:
    def taken() -> bool:
        rows = json.loads(cli("query", "store_state", "--url", url, "--output", "json").out)
        return rows[0]["requests"] == 55 and bool(rows[0]["engine_last_ts"])

    eventually("rows and pages in the exporter", taken)


def behind_router(cli: RunCli, run: str) -> Findings:
    folder = ROUTER / run
    pages = {"/metrics": last_page(folder / "router-metrics")}
    replica = {"/metrics": last_page(folder / "replica-0-metrics")}
    with answering(pages) as router, answering(replica) as engine:
        status, _, found = findings(cli, "--target", router.url, "--target", engine.url)
    assert status == 0
    return found


def test_the_silent_fallback_of_a_router(cli: RunCli) -> None:
    found = behind_router(cli, "cache-aware-no-render")
    assert found["scale-out", "warning"]["says"].startswith("48 of 48 requests could not be")
    assert "--enable-scale-out" in found["scale-out", "warning"]["fix"]


def test_a_router_that_sees_prompts(cli: RunCli) -> None:
    found = behind_router(cli, "cache-aware")
    assert ("scale-out", "warning") not in found
    assert "all 48 requests" in found["scale-out", "ok"]["says"]


def test_llamacpp_in_order(cli: RunCli) -> None:
    pages = {"/metrics": last_page(CAPTURES / "llama.cpp-b11434" / "mixed" / "metrics")}
    with answering(pages) as engine:
        status, told, found = findings(cli, "--target", engine.url, "--strict")
    assert (status, told["level"]) == (0, 0)
    assert beyond_ok(found) == set()
