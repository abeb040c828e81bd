"""Spans a real vLLM 0.32.0 exported, against what its client counted."""

import json
from pathlib import Path

from exporter.sources.log_settings import LogSettings
from exporter.sources.tail import Tailer
from exporter.store.store import Store
from tests.log_path import CAPTURES, Answer, by_id, hit_ratio, load, needs_captures, rejects
from tests.unit_otel.spans import House

pytestmark = needs_captures
SPANS = CAPTURES / "vllm-0.32.0" / "otel" / "otlp-traces.jsonl"
CLIENT = CAPTURES / "vllm-0.32.0" / "otel" / "requests.jsonl"
# From facts.json and by counting the spans of the file.
PROMPT_TOKENS, CALLS, OTHER_SPANS = 4712, 6, 12


def client() -> dict[str, Answer]:
    """The client's own record of each request by the id of the reply."""
    lines = CLIENT.read_text(encoding="utf-8").splitlines()
    return {row["id"]: row for row in map(json.loads, lines)}


def agrees_with_client(store: Store) -> None:
    sent, spans = client(), by_id(store)
    assert set(spans) == set(sent)
    for identity, row in spans.items():
        assert row["prompt_tokens"] == sent[identity]["usage"]["prompt_tokens"]
        assert row["output_tokens"] == sent[identity]["usage"]["completion_tokens"]
        # Inside the engine less time passes than the client waits.
        assert 0 < row["queue_seconds"] + row["prefill_seconds"] < row["ttft_seconds"]
        assert row["ttft_seconds"] < sent[identity]["ttft_s"]
        assert row["e2e_seconds"] < sent[identity]["total_s"]
        assert (row["ttft_point"], row["prompt_basis"]) == ("engine_arrival", "inclusive")
    assert sum(row["prompt_tokens"] for row in spans.values()) == PROMPT_TOKENS
    assert {row["replica"] for row in spans.values()} == {"fa3ceda0-5535-412c-8a6d-d2a6c286d990"}


def test_the_spans_agree_with_the_client(store: Store) -> None:
    summary = load(store, SPANS.read_bytes(), format="auto")
    assert (summary.format, summary.accepted) == ("otlp", CALLS)
    assert summary.flags == {"not_an_llm_call": OTHER_SPANS}
    assert rejects(store) == []
    agrees_with_client(store)
    ratio = hit_ratio(store)
    # These spans do not state cached tokens: unknown, not 0.
    assert (ratio["prompt_tokens"], ratio["reported_prompt_tokens"]) == (PROMPT_TOKENS, 0)
    assert (ratio["token_hit_ratio"], ratio["coverage_ratio"]) == (None, 0)


def test_posted_one_by_one_as_vllm_does(house: House) -> None:
    for _ in range(2):
        for line in SPANS.read_bytes().splitlines():
            assert house.post(line).json() == {}
    agrees_with_client(house.store)
    (health,) = house.ask("ingest_health")
    assert (health["accepted"], health["duplicate"]) == (CALLS, CALLS)


def test_followed_while_a_collector_writes(store: Store, tmp_path: Path) -> None:
    data, log = SPANS.read_bytes(), tmp_path / "traces.jsonl"
    follower = Tailer(store, LogSettings(source="collector", path=str(log)))
    for end in (len(data) // 3, len(data) // 2, len(data)):
        log.write_bytes(data[:end])
        follower.poll_once()
    assert follower.errors == {}
    follower.stop()
    agrees_with_client(store)
