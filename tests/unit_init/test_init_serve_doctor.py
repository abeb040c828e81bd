"""From an address and a file to a green doctor and answers, with nothing edited in between."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from prefixscope.serve import running
from prefixscope.settings import load_settings
from tests.log_path import CAPTURES, needs_captures
from tests.loopback_answers import answering, page
from tests.running import eventually, free_port
from tests.unit_cli.conftest import RunCli, cli

__all__ = ["cli"]

MAIN = CAPTURES / "vllm-0.32.0" / "main"


def rows(cli: RunCli, question: str, *arguments: str) -> list[dict[str, Any]]:
    answered: list[dict[str, Any]] = json.loads(
        cli("query", question, *arguments, "--output", "json").out
    )
    return answered


@needs_captures
def test_init_then_serve_then_a_green_doctor(
    cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copyfile(MAIN / "requests.jsonl", tmp_path / "client.jsonl")
    pages = {"/metrics": page(max((MAIN / "metrics").glob("*.prom")))}
    # Another port than the usual one, which may be taken here.
    monkeypatch.setenv("PREFIXSCOPE_SERVER__LISTEN", f"127.0.0.1:{free_port()}")
    with answering(pages) as engine:
        assert cli("init", engine.address, "client.jsonl").status == 0
        before = cli("doctor", "--config", "prefixscope.yml", "--pause", "0", "--strict")
        assert before.status == 0, before.out
        with running(load_settings(tmp_path / "prefixscope.yml")) as exporter:

            def taken() -> bool:
                (state,) = rows(cli, "store_state", "--url", exporter.url)
                return state["requests"] == 55 and bool(state["engine_last_ts"])

            eventually("rows and pages in the exporter", taken)
            done = cli("doctor", "--config", "prefixscope.yml", "--pause", "0", "--strict",
                       "--output", "json")  # fmt: skip
            (ratio,) = rows(cli, "hit_ratio", "--url", exporter.url)
    told = json.loads(done.out)
    assert (done.status, told["worst"], told["level"]) == (0, "ok", 3), told
    lines = (MAIN / "requests.jsonl").read_text(encoding="utf-8").splitlines()
    usages = [json.loads(line)["usage"] for line in lines]
    assert ratio["prompt_tokens"] == sum(u["prompt_tokens"] for u in usages)
    assert ratio["cached_tokens"] == sum(
        u["prompt_tokens_details"]["cached_tokens"] for u in usages
    )
    assert ratio["coverage_ratio"] == 1.0
