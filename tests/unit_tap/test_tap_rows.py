"""What the tap writes of an exchange: counts, ids, labels, times, status."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prefixscope.tap.settings import Pick
from tests.unit_tap.scripted import (
    CHAT,
    FINGERPRINT,
    Script,
    ask,
    chat_answer,
    chunk,
    compact,
    event,
    rows_in,
    tapped,
    usage_chunk,
)

MESSAGES = [{"role": "user", "content": "hello"}]
STREAM: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "stream": True}
ASKED = {**STREAM, "stream_options": {"include_usage": True}}
PLAIN = {**STREAM, "stream": False}


def _one_row(
    folder: Path,
    request: object,
    script: Script | None = None,
    path: str = CHAT,
    headers: dict[str, str] | None = None,
    **settings: object,
) -> dict[str, Any]:
    with tapped(script or Script(), folder, **settings) as (port, _):
        ask(port, request, path, headers)
    (row,) = rows_in(folder)
    return row


def test_a_streamed_chat(tmp_path: Path) -> None:
    before = time.time()
    row = _one_row(tmp_path, ASKED)
    assert {name: row[name] for name in ("prompt_tokens", "cached_tokens", "output_tokens")} == {
        "prompt_tokens": 784, "cached_tokens": 768, "output_tokens": 8,
    }  # fmt: skip
    assert row["side"] == "engine"
    assert row["replica"] == "r1"
    assert row["model"] == "tiny"
    assert row["stream"] is True
    assert row["status"] == "ok"
    assert row["ttft_point"] == "engine_arrival"
    assert 0 < row["ttft_seconds"] < row["e2e_seconds"] < 30
    assert row["response_id"] == row["request_id"] == "chatcmpl-1"
    assert row["model_fingerprint"] == FINGERPRINT
    assert "attempt" not in row
    stamp = time.strftime("%Y-%m-%dT%H:%M", time.gmtime(before))
    assert row["ts"].startswith(stamp[:13])
    assert row["ts"].endswith("Z")


def test_an_answer_in_one_document_has_no_first_token(tmp_path: Path) -> None:
    row = _one_row(tmp_path, PLAIN)
    assert (row["prompt_tokens"], row["cached_tokens"], row["output_tokens"]) == (784, 768, 8)
    assert row["stream"] is False
    assert row["response_id"] == "chatcmpl-2"
    assert "ttft_seconds" not in row


@pytest.mark.parametrize("cut", [1, 13, 4096])
def test_a_large_document_is_searched_not_kept(tmp_path: Path, cut: int) -> None:
    # The text quotes a usage object, as JSON does: with its quotes escaped.
    row = _one_row(tmp_path, {**PLAIN, "repeat": 30_000})
    assert (row["prompt_tokens"], row["cached_tokens"]) == (784, 768)
    assert row["response_id"] == "chatcmpl-2"
    assert row["model"] == "tiny"


def test_a_gzipped_answer_is_read(tmp_path: Path) -> None:
    with tapped(Script(), tmp_path) as (port, _):
        ask(port, {**PLAIN, "case": "gzip"}, CHAT, {"Accept-Encoding": "gzip"})
        ask(port, {**ASKED, "case": "gzip"}, CHAT, {"Accept-Encoding": "gzip"})
    assert [row["cached_tokens"] for row in rows_in(tmp_path)] == [768, 768]


def test_t5_what_is_not_stated_is_absent(tmp_path: Path) -> None:
    """A stream whose client did not ask, and a usage without details."""
    row = _one_row(tmp_path / "none", STREAM)
    assert not {"prompt_tokens", "cached_tokens", "output_tokens"} & set(row)
    assert row["status"] == "ok"
    stated = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": None}
    script = Script(lambda _: [usage_chunk(stated), b"data: [DONE]\n\n"])
    row = _one_row(tmp_path / "null", ASKED, script)
    assert row["prompt_tokens"] == 9
    assert "cached_tokens" not in row
    script = Script(lambda _: [usage_chunk({**stated, "prompt_tokens_details": {
        "cached_tokens": 0}}), b"data: [DONE]\n\n"])  # fmt: skip
    assert _one_row(tmp_path / "zero", ASKED, script)["cached_tokens"] == 0


@pytest.mark.parametrize("order", [1, -1])
def test_t6_last_and_most_detailed_usage_counts(tmp_path: Path, order: int) -> None:
    short = chunk({}, "stop", usage={"prompt_tokens": 35227})
    full = {"prompt_tokens": 35227, "prompt_tokens_details": {"cached_tokens": 32512}}
    events = [chunk({"content": "a"}), *[short, usage_chunk(full)][::order], b"data: [DONE]\n\n"]
    row = _one_row(tmp_path, ASKED, Script(lambda _: events))
    assert (row["prompt_tokens"], row["cached_tokens"]) == (35227, 32512)


@pytest.mark.parametrize("bad", [-1, "768", 7.5, True, [768]])
def test_t18_an_impossible_count_is_unknown(tmp_path: Path, bad: object) -> None:
    usage = {"prompt_tokens": 784, "prompt_tokens_details": {"cached_tokens": bad}}
    row = _one_row(tmp_path, ASKED, Script(lambda _: [usage_chunk(usage)]))
    assert row["prompt_tokens"] == 784
    assert "cached_tokens" not in row


def test_t4_several_choices_are_told(tmp_path: Path) -> None:
    row = _one_row(tmp_path, {**ASKED, "n": 2})
    assert row["n"] == 2
    assert row["prompt_tokens"] == 784


def test_several_prompts_in_one_request_have_no_known_cached_count(tmp_path: Path) -> None:
    request = {"model": "tiny", "prompt": ["one", "two"], "stream": False}
    row = _one_row(tmp_path, request, path="/v1/completions")
    assert row["prompt_tokens"] == 784
    assert "cached_tokens" not in row
    assert row["flags"] == ["several_prompts"]


def test_a_tool_call_is_a_first_token(tmp_path: Path) -> None:
    call = {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}
    events = [chunk({"role": "assistant", "content": ""}), chunk(call), chunk({}, "tool_calls")]
    row = _one_row(tmp_path, STREAM, Script(lambda _: events))
    assert row["ttft_seconds"] > 0
    assert row["status"] == "ok"


def test_t43_a_role_is_no_first_token(tmp_path: Path) -> None:
    events = [chunk({"role": "assistant", "content": ""}), chunk({}, "stop"), b"data: [DONE]\n\n"]
    assert "ttft_seconds" not in _one_row(tmp_path, STREAM, Script(lambda _: events))


def test_first_token_is_the_first_that_is_generated(tmp_path: Path) -> None:
    before = [b": ping\n\n", chunk({"role": "assistant"})]
    events = [*before, chunk({"content": "a"}), chunk({}, "stop")]
    row = _one_row(tmp_path, {**STREAM, "pause": 0.15}, Script(lambda _: events))
    # Two pauses before it, two more until the end.
    assert 0.3 <= row["ttft_seconds"] <= row["e2e_seconds"] - 0.3


def _messages(usage: object, delta_usage: object) -> Callable[[dict[str, Any]], list[bytes]]:
    def event_of(document: dict[str, Any]) -> bytes:
        return b"event: " + document["type"].encode() + b"\n" + event(document)

    start = {"id": "msg_1", "model": "claude", "usage": usage}
    return lambda _: [
        event_of({"type": "message_start", "message": start}),
        event_of({"type": "content_block_start", "content_block": {"type": "text", "text": ""}}),
        event_of({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}),
        event_of({"type": "message_delta", "delta": {}, "usage": delta_usage}),
        event_of({"type": "message_stop"}),
    ]


HOSTED = {"input_tokens": 21, "cache_creation_input_tokens": 592, "output_tokens": 1,
          "cache_read_input_tokens": 17920}  # fmt: skip


@pytest.mark.parametrize(
    ("start", "delta"),
    [
        (HOSTED, {"output_tokens": 310}),
        (HOSTED, {"output_tokens": 310, "input_tokens": None, "cache_read_input_tokens": None}),
        # vLLM: the whole prompt first, what stands beside the cache at the end.
        ({"input_tokens": 18533, "output_tokens": 0}, {**HOSTED, "output_tokens": 310}),
    ],
)
def test_t16_messages_count_beside_the_cache(tmp_path: Path, start: object, delta: object) -> None:
    row = _one_row(tmp_path, STREAM, Script(_messages(start, delta)), "/v1/messages")
    assert row["prompt_tokens"] == 18533
    assert row["cached_tokens"] == 17920
    assert row["cache_write_tokens"] == 592
    assert row["output_tokens"] == 310
    assert row["response_id"] == "msg_1"
    assert row["status"] == "ok"
    assert row["ttft_seconds"] > 0


def test_messages_without_cache_counts_state_the_whole_prompt(tmp_path: Path) -> None:
    usage = {"input_tokens": 100, "output_tokens": 5}
    script = Script(answer=lambda _: compact({"id": "msg_2", "type": "message", "usage": usage}))
    row = _one_row(tmp_path, PLAIN, script, "/v1/messages")
    assert row["prompt_tokens"] == 100
    assert "cached_tokens" not in row


@pytest.mark.parametrize(
    ("end", "status"), [("completed", "ok"), ("incomplete", "incomplete"), ("failed", "error")]
)
def test_responses(tmp_path: Path, end: str, status: str) -> None:
    usage = {"input_tokens": 18533, "input_tokens_details": {"cached_tokens": 17920},
             "output_tokens": 310}  # fmt: skip
    whole = {"id": "resp_1", "model": "m", "status": end, "error": None, "usage": usage}
    created = {**whole, "status": "in_progress", "usage": None}
    script = Script(lambda _: [
        event({"type": "response.created", "response": created}),
        event({"type": "response.output_text.delta", "delta": "a"}),
        event({"type": f"response.{end}", "response": whole}),
    ])  # fmt: skip
    row = _one_row(tmp_path, STREAM, script, "/v1/responses")
    assert (row["prompt_tokens"], row["cached_tokens"], row["output_tokens"]) == (18533, 17920, 310)
    assert row["status"] == status
    assert row["response_id"] == "resp_1"
    assert row["ttft_seconds"] > 0


def test_an_event_larger_than_is_kept_is_searched(tmp_path: Path) -> None:
    usage = {"input_tokens": 7, "input_tokens_details": {"cached_tokens": 5}, "output_tokens": 1}
    whole = {"id": "resp_1", "output": "x" * 600_000, "status": "completed", "usage": usage}
    script = Script(lambda _: [event({"type": "response.completed", "response": whole})])
    row = _one_row(tmp_path, {**STREAM, "cut": 50_000}, script, "/v1/responses")
    assert (row["prompt_tokens"], row["cached_tokens"]) == (7, 5)


def test_times_of_the_engine_itself(tmp_path: Path) -> None:
    metrics = {"queue_time_ms": 1500.0, "time_to_first_token_ms": 250.0}
    script = Script(answer=lambda r: compact({**json.loads(chat_answer(r)), "metrics": metrics}))
    row = _one_row(tmp_path, PLAIN, script)
    assert (row["queue_seconds"], row["prefill_seconds"]) == (1.5, 0.25)
    assert "queue_seconds" not in _one_row(tmp_path / "unknown", PLAIN)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"case": "status 400"}, "error"),
        ({"case": "status 503"}, "error"),
        ({"case": "status 499"}, "cancelled"),
        ({"case": "raises"}, "error"),
        ({"case": "breaks"}, "error"),
    ],
)
def test_how_it_ended(tmp_path: Path, change: dict[str, Any], status: str) -> None:
    row = _one_row(tmp_path, {**STREAM, **change})
    assert row["status"] == status
    assert not {"prompt_tokens", "cached_tokens", "output_tokens"} & set(row)


def test_an_error_inside_a_stream_is_one(tmp_path: Path) -> None:
    events = [chunk({"content": "a"}), event({"error": {"message": "x"}}), b"data: [DONE]\n\n"]
    assert _one_row(tmp_path, STREAM, Script(lambda _: events))["status"] == "error"


def test_a_stream_without_an_end_is_incomplete(tmp_path: Path) -> None:
    row = _one_row(tmp_path, STREAM, Script(lambda _: [chunk({"content": "a"})]))
    assert row["status"] == "incomplete"


def test_a_last_event_without_its_empty_line_counts(tmp_path: Path) -> None:
    script = Script(lambda _: [chunk({"content": "a"}), usage_chunk().rstrip()])
    assert _one_row(tmp_path, ASKED, script)["cached_tokens"] == 768


def test_labels_come_from_headers_and_fields(tmp_path: Path) -> None:
    request = {**PLAIN, "user": "u7", "metadata": {"team": "acme", "turns": 3}}
    row = _one_row(
        tmp_path, request,
        headers={
            "X-Request-Id": "abc", "X-Prefixscope-Route": "support", "X-Key": "sk-secret",
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        },
        tenant=(Pick("body", "metadata.missing"), Pick("body", "metadata.team")),
        session=(Pick("header", "x-key", keyed=True),),
        template=(Pick("body", "metadata"), Pick("text", "fixed")),
        template_version=(Pick("body", "metadata.turns"),),
    )  # fmt: skip
    assert row["request_id"] == "abc"
    assert row["attempt"] == 1
    assert (row["route"], row["tenant"], row["template"]) == ("support", "acme", "fixed")
    assert row["template_version"] == "3"
    assert row["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert len(row["session"]) == 16
    assert "sk-secret" not in json.dumps(row)


def test_a_hostile_label_stays_short_and_on_its_line(tmp_path: Path) -> None:
    row = _one_row(tmp_path, {**PLAIN, "user": "a\nb\u2028" * 500}, tenant=(Pick("body", "user"),))
    assert row["tenant"] == ("a\nb\u2028" * 500)[:256]


def test_t40_an_id_used_again_is_another_attempt(tmp_path: Path) -> None:
    with tapped(Script(), tmp_path) as (port, _):
        ask(port, PLAIN, CHAT, {"X-Request-Id": "a"})
        ask(port, PLAIN, CHAT, {"X-Request-Id": "a"})
        ask(port, PLAIN, CHAT, {"X-Request-Id": "b", "x-stainless-retry-count": "2"})
        ask(port, PLAIN, CHAT, {"X-Request-Id": "c", "x-envoy-attempt-count": "4"})
    rows = [(row["request_id"], row["attempt"]) for row in rows_in(tmp_path)]
    assert rows == [("a", 1), ("a", 2), ("b", 3), ("c", 4)]


def test_rows_without_any_id_get_one_of_their_own(tmp_path: Path) -> None:
    with tapped(Script(), tmp_path) as (port, _):
        for _ in range(2):
            ask(port, {**PLAIN, "case": "status 400"})
    ids = {row["request_id"] for row in rows_in(tmp_path)}
    assert len(ids) == 2
    assert all(name.startswith("tap-") for name in ids)


def test_a_sample_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "prefixscope.tap")
    assert _one_row(tmp_path, PLAIN, sample="1 of 4 replicas")["sample"] == "1 of 4 replicas"
    assert "Records what passes this process alone" in caplog.text
    assert "(1 of 4 replicas)" in caplog.text


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"text"', b"\xff", b"[" * 100_000])
def test_a_request_that_cannot_be_read_is_still_recorded(tmp_path: Path, body: bytes) -> None:
    row = _one_row(tmp_path, body)
    # No text at all is an answer to the scripted engine, the others are its end.
    assert row["status"] == ("error" if body else "ok")
    assert row["flags"] == ["body_unreadable"]


def test_a_request_larger_than_is_kept_loses_what_its_body_says(tmp_path: Path) -> None:
    request = {**PLAIN, "user": "u", "messages": [{"role": "user", "content": "x" * 3000}]}
    row = _one_row(tmp_path, request, body_bytes=2000, tenant=(Pick("body", "user"),))
    assert row["flags"] == ["body_too_large"]
    assert "tenant" not in row
    assert row["cached_tokens"] == 768


def test_prompt_logprobs_are_told_because_they_skip_the_cache(tmp_path: Path) -> None:
    assert _one_row(tmp_path, {**PLAIN, "prompt_logprobs": 1})["prompt_logprobs"] == 1
