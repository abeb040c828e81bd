"""Logs that look alike, or quote each other, are read as what they are."""

import json

import pytest

from exporter.sources.formats.detect import detect
from tests.log_path import NOON, Row, ndjson

QUOTED = (
    "Why? [2026-03-02 09:15:04,121] INFO: Routing request q-1 to http://10.0.0.7:8000 at 1.5, "
    'process time = 0.1 and {"event": "request.finished", "rid": "r"} and '
    '{"timestamp": "t", "type": "event_msg", "payload": {}} and {"benchmarks": [], "guidellm": 1} '
    'and {"input_lens": [1], "ttfts": [1]} and {"hash_id_scope": "local", "block_size": 64}\n'
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
)
USAGE = {"prompt_tokens": 10, "completion_tokens": 2}


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"id": "c", "created": 1772452800, "usage": USAGE, "prompt": QUOTED}, "openai"),
        ({"prompt": QUOTED, "id": "c", "created": 1772452800, "usage": USAGE}, "openai"),
        ({"message": QUOTED, "request_id": "r", "prompt_tokens": 10}, "ndjson"),
        ({"timestamp": NOON, "input": "a", "output": "b", "session_id": "s", "prompt_tokens": 5},
         "ndjson"),
        ({"timestamp": NOON, "input": "a", "output": "b", "session_id": "s"}, "lmcache_agent"),
        ({"sessionId": "s", "message": {"id": "m", "usage": {"input_tokens": 1}},
          "type": "assistant"}, "anthropic"),
        ({"timestamp": 0, "session_id": "s", "input_length": 5, "hash_ids": [1]},
         "mooncake_sessions"),
        ({"timestamp": 0, "chat_id": 1, "input_length": 5, "hash_ids": [1]}, "bailian"),
    ],
)  # fmt: skip
def test_rows_are_what_they_are(row: Row, name: str) -> None:
    assert detect(ndjson([row] * 3), "log").log_format.name == name


def test_a_transcript_that_begins_with_other_lines_is_told() -> None:
    entries: list[Row] = [{"type": "summary", "summary": "x", "leafUuid": "u"}]
    entries += [{"type": "user", "sessionId": "s", "uuid": f"{n}", "message": {}} for n in range(3)]
    assert detect(ndjson(entries), "log").log_format.name == "claude_code"


def test_a_rollout_without_usage_yet_is_told() -> None:
    meta = {"timestamp": NOON, "type": "session_meta", "payload": {"id": "c"}}
    decision = detect(json.dumps(meta).encode() + b"\n", "log")
    assert decision.log_format.name == "codex"
    assert decision.because == "lines are events of a Codex session"
