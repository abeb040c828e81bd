"""Results of benchmark clients: whole documents and records, and what of them is a request."""

import json
from collections.abc import Iterable

import pytest

from exporter.errors import PrefixscopeError
from exporter.sources.formats import documents
from exporter.sources.formats.detect import detect
from exporter.store.store import Store
from tests.log_path import Answer, Row, ask, by_id, hit_ratio, load, requests

START = 1772442904.125


def into(store: Store, route: str, data: bytes | Iterable[Row], format: str = "auto") -> Answer:
    rows = data if isinstance(data, bytes) else list(data)
    load(store, rows, route, format=format, defaults={"route": route})
    return hit_ratio(store, route=route)


# ------------------------------------------------------------------------- GuideLLM


def stats(name: str, prompt: int, cached: int | None, second: float) -> dict[str, object]:
    return {
        "type_": "generative_request_stats", "request_id": name, "response_id": f"chatcmpl-{name}",
        "request_args": "Zebra-Quartz prompt", "output": "Zebra-Quartz answer",
        "input_metrics": {"text_tokens": prompt, "cached_tokens": cached},
        "request_start_time": START + second, "request_latency": 2.0, "prompt_tokens": prompt,
        "cached_tokens": cached, "output_tokens": 9, "time_to_first_token_ms": 100.0,
    }  # fmt: skip


def report(*benchmarks: dict[str, list[dict[str, object]]]) -> bytes:
    told = {"metadata": {"version": 1, "guidellm_version": "0.8.1"}, "args": {"target": "x"},
            "benchmarks": [{"requests": requests} for requests in benchmarks]}  # fmt: skip
    return json.dumps(told, indent=1).encode()


def test_a_report_gives_each_request_with_how_it_ended(shared_store: Store) -> None:
    first = {"successful": [stats("g1", 1000, 640, 0), stats("g2", 1000, 0, 1)],
             "incomplete": [stats("g3", 500, None, 2)], "errored": []}  # fmt: skip
    second = {"successful": [stats("g4", 2000, 1024, 60)], "incomplete": [],
              "errored": [stats("g5", 100, None, 61)]}  # fmt: skip
    figures = into(shared_store, "guide", report(first, second))
    assert (figures["requests"], figures["prompt_tokens"]) == (5, 4600)
    assert (figures["reported_prompt_tokens"], figures["cached_tokens"]) == (4000, 1664)
    assert figures["token_hit_ratio"] == 1664 / 4000
    rows = by_id(shared_store, "guide")
    assert [rows[f"g{n}"]["status"] for n in range(1, 6)] == [
        "ok", "ok", "incomplete", "ok", "error",
    ]  # fmt: skip
    assert {row["ttft_point"] for row in rows.values()} == {"client"}


def test_a_report_read_twice_changes_nothing(shared_store: Store) -> None:
    data = report({"successful": [stats("twice", 1000, 640, 0)]})
    assert into(shared_store, "guide twice", data) == into(shared_store, "guide twice", data)


# --------------------------------------------------------------------------- vLLM bench


def result(longer: int = 0, **more: object) -> bytes:
    told = {
        "date": "20260302-091504", "backend": "openai-chat", "model_id": "m", "num_prompts": 3,
        "mean_ttft_ms": 1.0, "input_lens": [1000 + longer, 500, 200], "output_lens": [9, 8, 0],
        "ttfts": [0.25, 0.5, 0.0], "itls": [[0.1], [0.1], []],
        "generated_texts": ["Zebra-Quartz", "", ""], "errors": ["", "", "it failed"],
        "start_times": [8124.5, 8123.5, 8130.0], "latencies": [2.5, 1.5, 0.0], **more,
    }  # fmt: skip
    return json.dumps({name: value for name, value in told.items() if value is not None}).encode()


def test_t43_failed_requests_of_a_benchmark_have_no_first_token_time(shared_store: Store) -> None:
    figures = into(shared_store, "bench", result())
    assert (figures["requests"], figures["prompt_tokens"]) == (3, 1700)
    assert (figures["reported_prompt_tokens"], figures["token_hit_ratio"]) == (0, None)
    (ttft,) = ask(shared_store, "ttft_by_outcome", route="bench")
    assert (ttft["outcome"], ttft["ttft_point"], ttft["requests"]) == ("unknown", "client", 2)
    assert ttft["mean_seconds"] == pytest.approx(0.375)
    failed = requests(shared_store, "bench")[-1]
    assert (failed["status"], failed["prompt_tokens"]) == ("error", 200)
    assert "ttft_zero" in failed["flags"]


def test_t65_a_clock_without_an_epoch_counts_from_the_first_request(shared_store: Store) -> None:
    into(shared_store, "clock", result())
    rows = {row["prompt_tokens"]: row["ts"] for row in requests(shared_store, "clock")}
    assert (rows[1000] - rows[500]).total_seconds() == 1.0
    assert (rows[200] - rows[500]).total_seconds() == 6.5


def test_results_appended_to_a_file_are_all_read(shared_store: Store) -> None:
    figures = into(shared_store, "appended", result() + b"\n" + result(50) + b"\n")
    assert (figures["requests"], figures["prompt_tokens"]) == (6, 3450)


def test_arrays_of_different_length_leave_unknown_what_is_missing(shared_store: Store) -> None:
    into(shared_store, "short", result(ttfts=[0.25], start_times=None, latencies=None))
    rows = sorted(requests(shared_store, "short"), key=lambda row: row["position"])
    assert [row["ttft_seconds"] for row in rows] == [0.25, None, None]
    assert all("no_time" in row["flags"] for row in rows)


def test_a_summary_without_requests_says_which_flag_to_set(shared_store: Store) -> None:
    arrays = ("input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors",
              "start_times", "latencies")  # fmt: skip
    with pytest.raises(PrefixscopeError, match="--save-detailed"):
        load(shared_store, result(0, **dict.fromkeys(arrays)), "summary", format="auto")


# ------------------------------------------------------------------------------ AIPerf


def record(name: str, phase: str, prompt: int, cached: int | None) -> dict[str, object]:
    metrics = {"usage_prompt_tokens": {"value": prompt, "unit": "tokens"},
               "time_to_first_token": {"value": 250_000_000, "unit": "ns"}}  # fmt: skip
    if cached is not None:
        metrics["usage_prompt_cache_read_tokens"] = {"value": cached, "unit": "tokens"}
    metadata = {"x_request_id": name, "session_num": 1, "benchmark_phase": phase,
                "request_start_ns": 1772442904125000000}  # fmt: skip
    return {"metadata": metadata, "metrics": metrics, "error": None}


def test_warm_up_is_set_aside_and_missing_is_not_zero(shared_store: Store) -> None:
    rows = [record("w", "warmup", 900, 0), record("a", "profiling", 1000, 640),
            record("b", "profiling", 1000, None)]  # fmt: skip
    summary = load(shared_store, rows, "aiperf", format="auto", defaults={"route": "aiperf"})
    assert summary.reasons == {"warmup": 1}
    figures = hit_ratio(shared_store, route="aiperf")
    assert (figures["requests"], figures["reported_requests"]) == (2, 1)
    assert (figures["token_hit_ratio"], figures["coverage_ratio"]) == (0.64, 0.5)
    assert by_id(shared_store, "aiperf")["a"]["ttft_seconds"] == 0.25


# --------------------------------------------------------------------- documents at large


@pytest.mark.parametrize(
    ("name", "data"),
    [("guidellm", report({"successful": [stats("large", 1, 0, 0)]})), ("vllm_bench", result())],
)
def test_a_document_too_large_names_the_limit_and_the_remedy(
    shared_store: Store, monkeypatch: pytest.MonkeyPatch, name: str, data: bytes
) -> None:
    monkeypatch.setattr(documents, "DOCUMENT_LIMIT_BYTES", 0)
    with pytest.raises(PrefixscopeError, match=r"larger than 0 MiB.*; (load|save)"):
        load(shared_store, data, "large", format=name)
    assert requests(shared_store, "large") == []


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"benchmarks": [', "cannot be read as JSON"),
        (b"[1, 2]", "is no JSON object"),
        (b'{"a": "\xff"}', "is not UTF-8"),
        (b"[" * 100_000, "cannot be read as JSON"),
    ],
)
def test_a_broken_document_is_an_error_for_people(
    shared_store: Store, data: bytes, says: str
) -> None:
    with pytest.raises(PrefixscopeError, match=says):
        load(shared_store, data, "broken", format="guidellm")


def test_empty_documents_are_no_error(shared_store: Store) -> None:
    for name in ("guidellm", "weka", "codex", "azure_llm", "bailian"):
        summary = load(shared_store, b" \n", "empty", format=name)
        assert (summary.accepted, summary.rejected) == (0, 0)


def test_a_report_is_told_by_its_first_bytes() -> None:
    decision = detect(report({"successful": []})[:400], "benchmarks.json")
    assert decision.log_format.name == "guidellm"
    assert decision.because == "the document lists benchmarks of GuideLLM"
