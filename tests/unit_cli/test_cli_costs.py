"""`prefixscope query costs` on a log: prices of the environment, and errors that name the file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporter.errors import PrefixscopeError
from prefixscope.serve import running
from prefixscope.settings import load_settings
from tests.running import eventually

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out

PRICES = {
    "mine": {
        "input_cost_per_token": 2e-06,
        "cache_read_input_token_cost": 5e-07,
        "output_cost_per_token": 1e-05,
    }
}
ROW = {
    "ts": "2026-11-29T10:00:00Z", "model": "mine", "prompt_tokens": 1_000_000,
    "cached_tokens": 600_000, "output_tokens": 1000,
}  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    rows = [ROW, {**ROW, "model": "somebody's", "prompt_tokens": 1_000_000}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "prices.json").write_text(json.dumps(PRICES))
    return path


def test_costs_of_a_log_by_the_prices_of_the_environment(
    cli: Cli, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("ingest", log, "--store", "s")
    (bare,) = json.loads(cli("query", "costs", "--store", "s", "--output", "json").out)
    assert (bare["input_usd"], bare["unpriced_prompt_tokens"]) == (None, 2_000_000)
    monkeypatch.setenv("PREFIXSCOPE_PRICES__FILE", str(log.with_name("prices.json")))
    (costs,) = json.loads(cli("query", "costs", "--store", "s", "--output", "json").out)
    # 400000 x 2 + 600000 x 0.5; a million at 2 without caching; 1000 x 10.
    assert costs["input_usd"] == pytest.approx(1.1)
    assert costs["input_without_caching_usd"] == pytest.approx(2)
    assert costs["net_saved_usd"] == pytest.approx(0.9)
    assert costs["output_usd"] == pytest.approx(0.01)
    assert (costs["priced_ratio"], costs["unknown_price_tokens"]) == (0.5, 1_000_000)
    table = cli("query", "costs", "--store", "s").out
    assert [line.split() for line in table.splitlines()][:2] == [
        ["input_usd", "1.1000"],
        ["input_without_caching_usd", "2.0000"],
    ]
    assert cli("query", "costs", "--store", "s", "--by", "replica").status == 2
    prices = cli("query", "prices", "--store", "s").out
    assert "prices.json" in prices


def test_a_running_exporter_keeps_the_prices(cli: Cli, log: Path) -> None:
    settings = load_settings(None, {
        "PREFIXSCOPE_SERVER__LISTEN": "127.0.0.1:0",
        "PREFIXSCOPE_STORE__DIRECTORY": "s",
        "PREFIXSCOPE_PRICES__FILE": str(log.with_name("prices.json")),
        "PREFIXSCOPE_PRICES__GPU_HOUR_PRICE": "2.5",
        "PREFIXSCOPE_PRICES__GPUS_PER_REPLICA": "8",
    })  # fmt: skip
    cli("ingest", log, "--store", "s")
    with running(settings) as exporter:
        arguments = ("query", "costs", "--url", exporter.url, "--output", "json")
        asked = lambda: json.loads(cli(*arguments).out)[0]  # noqa: E731
        eventually("prices of the exporter", lambda: asked()["input_usd"] is not None)
        costs = asked()
    assert costs["input_usd"] == pytest.approx(1.1)
    assert costs["gpus_per_replica"] == 8


def test_a_price_file_that_cannot_be_used_is_an_error_with_its_name(
    cli: Cli, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("ingest", log, "--store", "s")
    monkeypatch.setenv("PREFIXSCOPE_PRICES__FILE", str(log))
    done = cli("query", "costs", "--store", "s")
    assert (done.status, done.out) == (1, "")
    assert f"error: prices.file: {log} is not JSON" in done.err
    with pytest.raises(PrefixscopeError, match="is not JSON"), running(load_settings(None)):
        pytest.fail("it must not start")
    # What needs no prices goes on.
    assert cli("query", "hit_ratio", "--store", "s").status == 0


def test_prices_of_a_config_file(cli: Cli, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = log.with_name("c.yml")
    config.write_text(f"prices: {{file: {log.with_name('prices.json')}}}\n")
    monkeypatch.setenv("PREFIXSCOPE_CONFIG", str(config))
    cli("ingest", log, "--store", "s")
    (costs,) = json.loads(cli("query", "costs", "--store", "s", "--output", "json").out)
    assert costs["input_usd"] == pytest.approx(1.1)
