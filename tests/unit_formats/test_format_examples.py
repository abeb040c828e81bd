"""Rows of every format and the exact request each must become, in `cases/*.yaml` beside this.

A case file names its `format` and holds either `rows`, each loaded as a line (`row`, or text
as it is: `line`), or one whole `input` with the `requests` and `rejects` it becomes. It is
loaded once with `--format auto`, unless it says `by_name`. A request is found again by its id:
`id` where the row does not show it (`#2` is the second row of a log without ids); a reject by
its line number.

The examples that come with the description of the formats are read where they are at hand. To
add a format: a line in READ_AS, and a case file.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.store.store import Store
from tests.log_path import SHARED, Answer, load, rejects, requests, utc

CASES = sorted(Path(__file__).parent.joinpath("cases").glob("*.yaml"))
EXAMPLES = SHARED / "format-examples" / "examples.jsonl"

# Described example -> the format that `--format auto` must choose for it.
READ_AS = {
    "usage.openai_chat": "openai",
    "usage.openai_responses": "openai",
    "usage.anthropic": "anthropic",
    "usage.openrouter": "openai",
    "usage.deepseek": "openai",
    "usage.vllm_openai": "openai",
    "usage.vllm_anthropic": "anthropic",
    "usage.gemini": "gemini",
    "usage.bedrock_converse": "bedrock",
    "openrouter.generation": "openrouter",
    "litellm.standard_logging_payload": "litellm",
    "litellm.spend_logs": "litellm_spend_logs",
    "envoy_ai_gateway.access_log": "envoy_ai_gateway",
    "kong.ai_log": "kong",
    "portkey.export": "portkey",
    "helicone.request": "helicone",
    "langfuse.observation": "langfuse",
    "edge.exclusive_detected": "openai",
    "edge.undetectable_exclusive": "openai",
    "edge.stream_no_usage": "openai",
    "edge.litellm_response_cache": "litellm_spend_logs",
    "sglang.request_log_json": "sglang",
    "sglang.metrics_file": "sglang",
    "production_stack.router_log": "production_stack",
    "aiperf.profile_export_jsonl": "aiperf",
    "guidellm.request": "guidellm_request",
    "vllm_bench.save_detailed": "vllm_bench",
    "trace.mooncake": "mooncake",
    "trace.bailian": "bailian",
    "trace.weka_claude_code": "weka",
    "trace.azure_llm_csv": "azure_llm",
    "trace.burstgpt_csv": "burstgpt",
    "trace.tracelab_round": "tracelab",
    "trace.lmcache_agent": "lmcache_agent",
    "otlp_json.genai_client": "otlp",
    "otlp_json.vllm": "otlp",
    "otlp_json.openinference": "otlp",
}
EXAMPLE_COUNT = 37

# The description's short names for ours.
OURS = {
    "ttft_s": "ttft_seconds", "queue_s": "queue_seconds", "prefill_s": "prefill_seconds",
    "e2e_s": "e2e_seconds", "engine": "replica", "cached_gpu": "cached_device",
    "cached_cpu": "cached_host",
    "cached_remote_or_disk": "cached_remote",  # the examples name a remote store
}  # fmt: skip


def _id(entry: dict[str, Any]) -> str | None:
    """The request id a case's row becomes, as far as one can tell by looking at it."""
    if "id" in entry:
        return str(entry["id"])
    row = entry["row"]
    for holder in (row, row.get("message"), row.get("response")):
        if isinstance(holder, dict):
            for name in ("request_id", "id"):
                if name in holder:
                    return str(holder[name])
    return None


def _named(rows: list[Answer]) -> dict[str, Answer]:
    """The rows by request id; by their place (`#1`) where the id is none of the log's own or
    is that of several attempts."""
    ids = [row["request_id"] for row in rows]
    return {
        f"#{place}" if row["request_id"].startswith("line:") or ids.count(row["request_id"]) > 1
        else row["request_id"]: row
        for place, row in enumerate(sorted(rows, key=lambda row: row["position"]), start=1)
    }  # fmt: skip


def _load_case(store: Store, case: dict[str, Any]) -> None:
    lines = [entry.get("row", entry.get("line")) for entry in case.get("rows", ())]
    name = case["format"] if case.get("by_name") else "auto"
    summary = load(store, case["input"].encode() if "input" in case else lines, format=name)
    assert summary.format == case["format"]


def _rounded(fields: Answer) -> Answer:
    """Numbers with a fraction to six places: seconds are differences of large numbers."""
    return {n: round(v, 6) if isinstance(v, float) else v for n, v in fields.items()}


def _differs(row: Answer, entry: dict[str, Any]) -> dict[str, tuple[object, object]]:
    """Field -> (got, expected) where they differ."""
    expected = {**entry["expect"], "flags": entry.get("flags")}
    if "ts" in expected:
        expected["ts"] = utc(expected["ts"])
    got = _rounded({name: row[name] for name in expected})
    return {n: (got[n], expected[n]) for n in got if got[n] != expected[n]}


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_rows_become_exactly_these_requests(store: Store, file: Path) -> None:
    case = yaml.safe_load(file.read_text(encoding="utf-8"))
    _load_case(store, case)
    stored = _named(requests(store))
    wrong, refused = {}, [list(reject) for reject in case.get("rejects", ())]
    for number, entry in enumerate(case.get("rows", ()), start=1):
        if "reason" in entry:
            refused.append([number, entry["reason"]])
        elif differs := _differs(stored.pop(_id(entry)), entry):
            wrong[entry["what"]] = differs
    for entry in case.get("requests", ()):
        if differs := _differs(stored.pop(str(entry["id"])), entry):
            wrong[entry["what"]] = differs
    assert wrong == {}
    assert stored == {}
    assert [list(reject) for reject in rejects(store)] == refused


def test_a_name_without_end_is_cut(store: Store) -> None:
    load(store, [{"request_id": "long", "prompt_tokens": 1, "ts": 1772452800, "tenant": "é" * 999}])
    (row,) = requests(store)
    assert row["tenant"] == "é" * 256


# --------------------------------------------------------------- the described examples

at_hand = pytest.mark.skipif(not EXAMPLES.is_file(), reason="the formats' examples are not at hand")


def _examples() -> dict[str, dict[str, Any]]:
    lines = EXAMPLES.read_text(encoding="utf-8").splitlines()
    return {entry["format"]: entry for entry in map(json.loads, lines)}


@at_hand
def test_every_example_is_read() -> None:
    assert set(_examples()) == set(READ_AS)
    assert len(_examples()) == EXAMPLE_COUNT


def _moment(described: str | float) -> datetime:
    if isinstance(described, str):
        return datetime.fromisoformat(described)
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=round(described * 1e6))


def _got(field: str, expected: object, rows: list[Answer], began: datetime) -> object:
    """What a described field is in the first row stored."""
    row = rows[0]
    if field == "rows":
        return len(rows)
    if field == "blocks":
        return len(row["block_hashes"])
    if field == "ts":
        return row["ts"].replace(tzinfo=UTC)
    if field == "ts_rel":
        # Laid from the moment the ingest began, which was after `began` and before now.
        assert isinstance(expected, float)
        assert began <= row["ts"].replace(tzinfo=UTC) - timedelta(seconds=expected)
        assert row["ts"].replace(tzinfo=UTC) - timedelta(seconds=expected) <= datetime.now(UTC)
        return expected
    if field == "cache_salt":  # kept only as a keyed hash
        return expected if row["scope"] else None
    if field == "excluded_from_prefix_metrics":
        return row["ineligible_reason"] is not None
    return row[OURS.get(field, field)]


@at_hand
@pytest.mark.parametrize("name", READ_AS)
def test_described_examples_become_the_described_record(store: Store, name: str) -> None:
    example = _examples()[name]
    record = example["record"]
    data = record.encode() if isinstance(record, str) else json.dumps(record).encode() + b"\n"
    began = datetime.now(UTC)
    summary = load(store, data, name, format="auto")
    assert summary.format == READ_AS[name]
    rows = sorted(requests(store, name), key=lambda row: row["position"])
    expected = dict(example["expect"])
    if "ts" in expected:
        expected["ts"] = _moment(expected["ts"])
    got = {field: _got(field, value, rows, began) for field, value in expected.items()}
    assert _rounded(got) == _rounded(expected)
    for same in ("id", "model"):
        if name.startswith("usage.") and same in record:
            assert rows[0]["request_id" if same == "id" else same] == record[same]
