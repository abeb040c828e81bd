"""Logs of real engines and the sums that must come out of them, to the token.

The sums are those an independent check of the captures states; here they are also added up
from the raw lines, without the code under test.
"""

import json
from pathlib import Path

import pytest

from exporter.sources.pages import ingest_pages
from exporter.store.store import Store
from tests.log_path import CAPTURES, SMALL, Answer, ask, hit_ratio, load, needs_captures, requests

pytestmark = needs_captures

VLLM = "vllm-0.32.0"
ROUTED = "vllm-0.32.0-x2-sglang-router-0.3.2"
# capture -> prompt tokens, cached tokens (None = the log does not report any)
SUMS: dict[str, tuple[int, int | None]] = {
    f"{VLLM}/main": (43_832, 29_696),
    f"{VLLM}/evict": (28_017, 5_152),
    f"{VLLM}/caching-off": (42_264, 0),
    f"{VLLM}/defaults": (42_264, None),
    f"{VLLM}/dp2": (42_264, 23_584),
    f"{VLLM}/restart": (23_528, 12_672),
    f"{VLLM}/external": (23_820, 18_560),
    f"{ROUTED}/off": (75_828, 0),
    f"{ROUTED}/round-robin": (75_828, 36_320),
    f"{ROUTED}/cache-aware": (75_828, 60_192),
    "llama.cpp-b11434/mixed": (42_264, 33_174),
    "llama.cpp-b11434/one-slot": (42_264, 11_911),
}


def log_of(capture: str) -> Path:
    return CAPTURES / capture / "requests.jsonl"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Every capture's log as it is, told apart by route."""
    store = Store.open(tmp_path_factory.mktemp("captures") / "store", SMALL)
    for capture in SUMS:
        data = log_of(capture).read_bytes()
        summary = load(store, data, capture, format="auto", defaults={"route": capture})
        assert (summary.format, summary.rejected, summary.duplicate) == ("capture", 0, 0)
    return store


@pytest.mark.parametrize("capture", SUMS)
def test_capture_comes_out_to_the_token(loaded: Store, capture: str) -> None:
    prompt, cached = SUMS[capture]
    figures = hit_ratio(loaded, route=capture)
    rows = [json.loads(line) for line in log_of(capture).read_text().splitlines()]
    assert figures["requests"] == len(rows)
    assert figures["prompt_tokens"] == prompt == sum(r["usage"]["prompt_tokens"] for r in rows)
    assert figures["cached_tokens"] == (cached or 0)
    if cached is None:
        assert (figures["token_hit_ratio"], figures["coverage_ratio"]) == (None, 0.0)
    else:
        assert figures["token_hit_ratio"] == cached / prompt
        assert figures["coverage_ratio"] == figures["request_coverage_ratio"] == 1.0
        details = [row["usage"]["prompt_tokens_details"]["cached_tokens"] for row in rows]
        assert sum(details) == cached


@pytest.mark.parametrize("capture", SUMS)
def test_capture_rows_keep_what_the_client_wrote(loaded: Store, capture: str) -> None:
    rows = {row["id"]: row for row in map(json.loads, log_of(capture).read_text().splitlines())}
    stored = {row["request_id"]: row for row in requests(loaded, capture)}
    assert set(stored) == set(rows), "the request ids are kept"
    for request_id, row in rows.items():
        kept = stored[request_id]
        assert kept["template"] == row.get("template")
        assert kept["tenant"] == row.get("tenant")
        assert kept["replica"] == (str(row["replica"]) if "replica" in row else None)
        assert kept["e2e_seconds"] == row["total_s"]
        assert (kept["scope"] is None) == (row.get("cache_salt") is None)
        streamed = row.get("stream") is not False and row["ttft_s"] < row["total_s"]
        assert kept["ttft_seconds"] == (row["ttft_s"] if streamed else None)
        assert kept["ttft_point"] == ("client" if streamed else None)
        assert kept["ts"].timestamp() == pytest.approx(_local(row["sent_unix"]), abs=1e-5)


def _local(unix: float) -> float:
    """A naive UTC time stamp's `timestamp()` reads it as local; so is this."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(unix, UTC).replace(tzinfo=None).timestamp()


@pytest.mark.parametrize("policy", ["round-robin", "cache-aware"])
def test_log_behind_a_router_names_both_replicas(loaded: Store, policy: str) -> None:
    capture = f"{ROUTED}/{policy}"
    found = ask(loaded, "hit_ratio", by="replica", route=capture)
    assert {row["replica"] for row in found} == {"0", "1"}
    assert sum(row["cached_tokens"] for row in found) == SUMS[capture][1]
    assert sum(row["prompt_tokens"] for row in found) == SUMS[capture][0]


def test_salts_and_token_ids_of_captures_stay_out_of_the_store(loaded: Store) -> None:
    values = repr(requests(loaded))
    assert "salt-" not in values
    assert "prompt_token_ids" not in values


def _figures(store: Store) -> Answer:
    names = ("prompt_tokens", "ineligible_prompt_tokens", "cached_tokens", "token_hit_ratio",
             "coverage_ratio", "ineligible_requests")  # fmt: skip
    figures = hit_ratio(store)
    return {name: figures[name] for name in names}


ALL_INELIGIBLE = {
    "prompt_tokens": 42_264, "ineligible_prompt_tokens": 42_264, "cached_tokens": 0,
    "token_hit_ratio": None, "coverage_ratio": None, "ineligible_requests": 53,
}  # fmt: skip
CACHING_OFF = f"{VLLM}/caching-off"


@pytest.mark.parametrize("order", ["log first", "pages first"])
def test_caching_off_is_no_miss_once_the_engine_says_so(store: Store, order: str) -> None:
    pages = CAPTURES / CACHING_OFF / "metrics"
    data = log_of(CACHING_OFF).read_bytes()
    if order == "pages first":
        ingest_pages(store, [pages])
    load(store, data, format="auto")
    if order == "log first":
        alone = _figures(store)
        assert (alone["token_hit_ratio"], alone["coverage_ratio"]) == (0.0, 1.0)
        assert alone["ineligible_prompt_tokens"] == 0
        ingest_pages(store, [pages])
    assert _figures(store) == ALL_INELIGIBLE
    for table in ("minute_rollup", "hour_rollup"):
        sums = store.cursor().execute(
            f"""SELECT sum(requests), sum(prompt_tokens), sum(ineligible_prompt_tokens),
            sum(ineligible_requests), sum(reported_prompt_tokens) FROM {table}"""
        ).fetchone()  # fmt: skip
        assert sums == (53, 42_264, 42_264, 53, 0), table
    load(store, data, format="auto")
    assert _figures(store) == ALL_INELIGIBLE, "reading the log again changes nothing"


def test_pages_with_caching_on_leave_the_log_alone(store: Store) -> None:
    ingest_pages(store, [CAPTURES / VLLM / "main" / "metrics"])
    load(store, log_of(f"{VLLM}/main").read_bytes(), format="auto")
    assert hit_ratio(store)["token_hit_ratio"] == 29_696 / 43_832


def test_log_that_does_not_report_is_not_filled_up_from_the_engine(store: Store) -> None:
    load(store, log_of(f"{VLLM}/defaults").read_bytes(), format="auto")
    ingest_pages(store, [CAPTURES / VLLM / "defaults" / "metrics"])
    figures = hit_ratio(store)
    assert (figures["token_hit_ratio"], figures["coverage_ratio"]) == (None, 0.0)
    (engine,) = ask(store, "engine_hit_ratio")
    assert (engine["prompt_tokens"], engine["cached_tokens"]) == (42_264, 26_624)
