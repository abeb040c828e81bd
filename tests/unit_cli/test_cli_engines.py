"""`prefixscope engines`: what is understood, from which versions, and what cannot be seen."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from exporter.sources.engines import ENGINES, load_engine
from exporter.sources.engines.mapping import Engine, Row
from exporter.sources.engines.summary import reports

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out


def test_every_program_is_listed_with_its_versions(cli: Cli) -> None:
    rows = json.loads(cli("engines", "--output", "json").out)
    assert [row["engine"] for row in rows] == list(ENGINES)
    by_name = {row["engine"]: row for row in rows}
    assert by_name["vllm"]["versions"] == "0.8.0 to 0.33.0"
    assert by_name["sglang"]["recorded"] is None
    assert "tenants" in by_name["litellm"]["tells"]
    table = cli("engines").out
    assert "no, read from source" in table
    assert "0.8.0 to 0.33.0" in table


@pytest.mark.parametrize(
    ("name", "observable", "counted"),
    [
        ("vllm", "yes", "finish/once/tokens"),
        ("lmcache", "yes", "lookup/attempt/tokens"),
        ("lmcache_mp", "yes", "lookup/once/tokens"),
        ("mooncake", "yes", "lookup/once/objects"),
        ("dynamo_kvbm", "amount", "of how many is not told"),
        ("sglang_router", "until 0.2.2", "lookup/once/requests"),
        ("tgi", "no", "not observable"),
        ("production_stack", "no", "scrape the engines"),
    ],
)
def test_what_can_be_seen_is_said_honestly(name: str, observable: str, counted: str) -> None:
    seen = reports(load_engine(name))
    assert seen.observable == observable
    assert counted in seen.hit_ratio


def test_one_program_shows_its_metrics_and_what_is_left_out(cli: Cli) -> None:
    out = cli("engines", "sglang").out
    assert "sglang:cached_tokens_total" in out
    assert "sglang:cache_hit_rate: the last batch's ratio" in out
    rows = json.loads(cli("engines", "tensorrt_llm", "--output", "json").out)
    cached = [row for row in rows if row["measure"] == "cached_tokens"]
    assert cached[0]["exposed"] == "trtllm_prompt_cached_tokens_total"
    assert cached[0]["provenance"] == "finish/once/tokens"


def test_versions_of_a_metric_are_words(cli: Cli) -> None:
    rows = json.loads(cli("engines", "vllm", "--output", "json").out)
    said = {row["versions"] for row in rows}
    assert {"all seen", "from 0.16.0"} <= said


def test_an_unknown_program_is_wrong_usage_and_names_the_known(cli: Cli) -> None:
    done = cli("engines", "vlllm")
    assert done.status == 2
    assert "unknown program 'vlllm'" in done.err
    assert "llamacpp" in done.err


def test_a_table_without_counters_of_reuse_reports_none() -> None:
    row = Row("running_requests", "gauge", "requests", ("x:running",), "being served")
    seen = reports(Engine(name="x", rows=(row,), skipped={}))
    assert seen == ("no", "no cached tokens on the page", ())
