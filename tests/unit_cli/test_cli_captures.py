"""Real engines' logs and pages: `ingest`, then the exact sums by `query` and by the query API.

The expected numbers are the captures' own, worked out by their README from the clients' usage.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from prefixscope.serve import running
from prefixscope.settings import load_settings

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out
Row = dict[str, Any]

CAPTURES = Path(__file__).parents[3] / "shared" / "captures"
pytestmark = pytest.mark.skipif(
    not CAPTURES.exists(), reason="the captures are not on this machine"
)
VLLM, LLAMA = "vllm-0.32.0", "llama.cpp-b11434"
ROUTER = "vllm-0.32.0-x2-sglang-router-0.3.2"


@dataclass(frozen=True)
class Case:
    """What a capture holds. `cached` None = the log does not report; `off` = caching was off."""

    prompt: int
    cached: int | None
    engine_cached: int
    off: bool = False
    resets: int = 0
    replicas: int = 1


CASES = {
    (VLLM, "main"): Case(43_832, 29_696, 29_696),
    (VLLM, "evict"): Case(28_017, 5_152, 5_152),
    (VLLM, "caching-off"): Case(42_264, 0, 0, off=True),
    (VLLM, "defaults"): Case(42_264, None, 26_624),
    (VLLM, "dp2"): Case(42_264, 23_584, 23_584, replicas=2),
    (VLLM, "restart"): Case(23_528, 12_672, 12_672, resets=1),
    (VLLM, "external"): Case(23_820, 18_560, 18_560),
    (ROUTER, "off"): Case(75_828, 0, 0, off=True, replicas=2),
    (ROUTER, "round-robin"): Case(75_828, 36_320, 36_320, replicas=2),
    (ROUTER, "cache-aware"): Case(75_828, 60_192, 60_192, replicas=2),
    (LLAMA, "mixed"): Case(42_264, 33_174, 33_174),
    (LLAMA, "one-slot"): Case(42_264, 11_911, 11_911),
}


class Loaded:
    """A capture in a store, asked both ways; both must say the same."""

    def __init__(self, cli: Cli, store: Path, url: str) -> None:
        self._cli, self._store, self._url = cli, store, url

    def ask(self, question: str, by: str | None = None) -> list[Row]:
        arguments = ["--by", by] if by else []
        done = self._cli("query", question, *arguments, "--store", self._store, "--output", "json")
        assert done.status == 0, done.err
        answer = requests.get(
            f"{self._url}/api/v1/query/{question}", {"by": by} if by else {}, timeout=30
        )
        rows: list[Row] = json.loads(done.out)
        assert answer.json() == rows
        return rows


def ingest(cli: Cli, store: Path, inputs: list[Path]) -> None:
    done = cli("ingest", *inputs, "--store", store)
    assert done.status == 0, done.err


def inputs(folder: Path) -> tuple[Path, list[Path]]:
    """The request log, and the folders of metric pages."""
    return folder / "requests.jsonl", [
        path for path in sorted(folder.iterdir()) if path.name.endswith("metrics")
        and path.name != "router-metrics"
    ]  # fmt: skip


# In which order log and pages come matters only where the page says caching is off.
ORDERS = [*((name, True) for name in CASES), ((VLLM, "caching-off"), False)]


@pytest.mark.parametrize(("name", "log_first"), ORDERS)
def test_captures_come_out_to_the_token(
    cli: Cli, tmp_path: Path, name: tuple[str, str], log_first: bool
) -> None:
    case, store = CASES[name], tmp_path / "store"
    log, pages = inputs(CAPTURES.joinpath(*name))
    ingest(cli, store, [log, *pages] if log_first else [*pages, log])
    environment = {
        "PREFIXSCOPE_SERVER__LISTEN": "127.0.0.1:0",
        "PREFIXSCOPE_STORE__DIRECTORY": str(store),
    }
    with running(load_settings(None, environment)) as exporter:
        loaded = Loaded(cli, store, exporter.url)
        check_log(case, loaded)
        check_engine(case, loaded)


def check_log(case: Case, loaded: Loaded) -> None:
    (row,) = loaded.ask("hit_ratio")
    assert row["prompt_tokens"] == case.prompt
    if case.off:
        assert row["ineligible_prompt_tokens"] == case.prompt
        assert (row["token_hit_ratio"], row["coverage_ratio"]) == (None, None)
    elif case.cached is None:
        assert (row["coverage_ratio"], row["token_hit_ratio"]) == (0, None)
    else:
        assert (row["cached_tokens"], row["coverage_ratio"]) == (case.cached, 1)
        assert row["token_hit_ratio"] == case.cached / case.prompt


def check_engine(case: Case, loaded: Loaded) -> None:
    (row,) = loaded.ask("engine_hit_ratio")
    assert (row["prompt_tokens"], row["cached_tokens"]) == (case.prompt, case.engine_cached)
    assert row["resets"] == case.resets
    expected = None if case.off else case.engine_cached / case.prompt
    assert row["token_hit_ratio"] == expected
    by_replica = loaded.ask("engine_hit_ratio", by="replica")
    assert len(by_replica) == case.replicas
    assert sum(r["cached_tokens"] for r in by_replica) == case.engine_cached


def test_caching_off_is_a_ratio_of_zero_until_the_engines_page_tells(
    cli: Cli, tmp_path: Path
) -> None:
    log, pages = inputs(CAPTURES / VLLM / "caching-off")
    ingest(cli, tmp_path / "store", [log])

    def hit_ratio() -> Row:
        done = cli("query", "hit_ratio", "--store", tmp_path / "store", "--output", "json")
        row: Row = json.loads(done.out)[0]
        return row

    assert (hit_ratio()["token_hit_ratio"], hit_ratio()["coverage_ratio"]) == (0, 1)
    ingest(cli, tmp_path / "store", pages)
    assert hit_ratio()["ineligible_prompt_tokens"] == 42_264
    assert hit_ratio()["token_hit_ratio"] is None


def test_external_hits_have_one_denominator(cli: Cli, tmp_path: Path) -> None:
    log, pages = inputs(CAPTURES / VLLM / "external")
    ingest(cli, tmp_path / "store", [log, *pages])
    done = cli("query", "engine_hit_ratio", "--store", tmp_path / "store", "--output", "json")
    (row,) = json.loads(done.out)
    assert (row["lookup_hit_tokens"], row["external_hit_tokens"]) == (4_640, 13_920)
    assert row["cached_device"] == 4_640
    assert row["token_hit_ratio"] == (4_640 + 13_920) / 23_820


def test_the_routers_log_names_the_replica(cli: Cli, tmp_path: Path) -> None:
    log, pages = inputs(CAPTURES / ROUTER / "cache-aware")
    ingest(cli, tmp_path / "store", [log, *pages])
    sums = {}
    for question in ("hit_ratio", "engine_hit_ratio"):
        done = cli("query", question, "--by", "replica", "--store", tmp_path / "store",
                   "--output", "json")  # fmt: skip
        sums[question] = sorted(
            (r["prompt_tokens"], r["cached_tokens"]) for r in json.loads(done.out)
        )
    assert sums["hit_ratio"] == sums["engine_hit_ratio"]
    assert sum(prompt for prompt, _ in sums["hit_ratio"]) == 75_828
