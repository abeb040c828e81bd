"""Eleven calls through a real LiteLLM 1.108.7 to a real vLLM 0.32.0: log, spans and pages agree.

`recorded/` was written by `tests/engine/record_litellm.py`: what the proxy's generic HTTP logger
posted with its defaults (without texts), vLLM's spans, the client's own count, and vLLM's metric
page before and after. The proxy's pages of the same run are among the pages of engines.
"""

import json
from pathlib import Path

import pytest

from exporter.sources.pages import ingest_pages
from exporter.store.store import Store
from tests.log_path import Answer, ask, hit_ratio, load, rejects, requests
from tests.unit_engines.conftest import write_pages

RECORDED = Path(__file__).parent / "recorded"
PROXY_PAGES = Path(__file__).parents[1] / "unit_engines" / "pages" / "litellm"

CALLS, STREAMED = 11, 5
# Added up by hand from client.jsonl. The last call was not told its usage: it is the same prompt
# as the one before, 622 with 608 cached.
PROMPT_TOKENS = 627 + 340 + 335 + 629 + 335 + 624 + 342 + 626 + 622 + 622 + 622
CACHED_TOKENS = 0 + 0 + 288 + 576 + 288 + 576 + 288 + 576 + 576 + 608 + 608
TENANTS = {
    "acme": (627 + 340 + 335 + 626 + 622 + 622 + 622, 0 + 0 + 288 + 576 + 576 + 608 + 608),
    "birch": (335 + 624, 288 + 576),
    "alone": (629 + 342, 576 + 288),
}


def lines(name: str) -> list[str]:
    return (RECORDED / name).read_text(encoding="utf-8").splitlines()


def client() -> dict[str, Answer]:
    """What each answer told the client, by its id."""
    return {row["id"]: row for row in map(json.loads, lines("client.jsonl"))}


def take(store: Store, *names: str) -> None:
    for name in names:
        source = {"requests.jsonl": "litellm", "spans.jsonl": "vllm"}[name]
        assert load(store, lines(name), source, format="auto", origin="http").rejected == 0


@pytest.mark.parametrize("order", [1, -1])
def test_every_call_is_one_request_as_its_client_counted_it(store: Store, order: int) -> None:
    take(store, *("requests.jsonl", "spans.jsonl")[::order])
    rows, told = requests(store), client()
    assert {row["response_id"] for row in rows} == set(told)
    assert len(rows) == CALLS
    for row in rows:
        sent = told[row["response_id"]]
        assert (row["tenant"], row["template"]) == (
            sent["call"]["team"] or "alone",
            sent["call"]["template"],
        )
        counted = (row["prompt_tokens"], row["cached_tokens"])
        assert counted == (sent["prompt_tokens"] or 622, 608 if sent["cached_tokens"] is None
                           else sent["cached_tokens"])  # fmt: skip
        assert (row["route"], row["model"], row["source"]) == ("assistant", "tiny", "litellm")
        # Only a stream has a first token at the gateway; the engine's stands for the others.
        point = "gateway" if sent["call"]["streams"] else "engine_arrival"
        assert (row["ttft_point"], "joined" in row["flags"]) == (point, True)
        assert 0 < row["queue_seconds"] + row["prefill_seconds"] < row["e2e_seconds"]
    assert sum(row["ttft_point"] == "gateway" for row in rows) == STREAMED
    assert rejects(store) == []


def test_nothing_is_left_unmatched_and_the_sums_agree(store: Store) -> None:
    take(store, "spans.jsonl", "requests.jsonl", "requests.jsonl")
    for row in ask(store, "joins"):
        assert (row["rows"], row["joined"], row["unmatched_ratio"]) == (CALLS, CALLS, 0)
    ratio = hit_ratio(store)
    assert (ratio["requests"], ratio["prompt_tokens"]) == (CALLS, PROMPT_TOKENS)
    assert (ratio["cached_tokens"], ratio["coverage_ratio"]) == (CACHED_TOKENS, 1)
    by_tenant = ask(store, "hit_ratio", by="tenant")
    assert {r["tenant"]: (r["prompt_tokens"], r["cached_tokens"]) for r in by_tenant} == TENANTS


def test_both_pages_agree_with_the_log(store: Store, tmp_path: Path) -> None:
    vllm = [(RECORDED / f"vllm-{when}.prom").read_bytes() for when in ("before", "after")]
    proxy = [(PROXY_PAGES / f"fresh-1.108.7{end}.txt").read_bytes() for end in ("", ".2")]
    write_pages(tmp_path / "vllm", vllm)
    write_pages(tmp_path / "proxy", proxy)
    ingest_pages(store, [tmp_path])
    (engine,) = ask(store, "engine_hit_ratio")
    assert (engine["prompt_tokens"], engine["cached_tokens"]) == (PROMPT_TOKENS, CACHED_TOKENS)
    rows = ask(store, "observed_hit_ratio", by="tenant")
    assert {r["tenant"]: (r["asked"], r["hits"]) for r in rows} == TENANTS
    assert {r["unreported"] for r in rows} == {0}
