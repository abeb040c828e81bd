"""Seconds a generated token: a median with its coverage, and no figure where times are not told."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queries import registry
from tests import empty_store
from tests.log_path import CAPTURES, needs_captures
from tests.unit_queries.conftest import Ask, Insert, Row


def request(seconds_per_token: float, **more: object) -> Row:
    """A stream of 11 tokens, the first after 2 s, the ten others of so many seconds each."""
    return {"ts": "10:00", "replica": "a", "model": "m", "output_tokens": 11, "ttft_seconds": 2.0,
            "ttft_point": "gateway", "stream": True, "e2e_seconds": 2.0 + 10 * seconds_per_token,
            **more}  # fmt: skip


def test_the_median_is_not_moved_by_what_hung(ask: Ask, insert: Insert) -> None:
    """Of 1 to 20 ms and one that hung, eleven in order is 11 ms; the quartiles are 6 and 16."""
    insert("requests", [request(number / 1000) for number in range(1, 21)] + [request(900.0)])
    insert("requests", [request(0.5, stream=False), request(0.5, ttft_seconds=None),
                        request(0.0001), request(0.5, output_tokens=1)])  # fmt: skip
    (row,) = ask("decode_speed")
    assert row == {
        "replica": "a", "model": "m", "requests": 24, "told_requests": 21,
        "coverage_ratio": pytest.approx(21 / 24), "seconds_per_token": pytest.approx(0.011),
        "low_seconds_per_token": pytest.approx(0.006),
        "high_seconds_per_token": pytest.approx(0.016),
    }  # fmt: skip


def test_nothing_is_told_by_few(ask: Ask, insert: Insert) -> None:
    insert("requests", [request(0.01, repeat=19), request(0.01, ttft_seconds=None, repeat=81)])
    (row,) = ask("decode_speed")
    assert (row["requests"], row["told_requests"], row["coverage_ratio"]) == (100, 19, 0.19)
    assert row["seconds_per_token"] is None
    insert("requests", [request(0.01)])
    assert ask("decode_speed")[0]["seconds_per_token"] == pytest.approx(0.01)


def test_a_clock_that_begins_when_scheduled_leaves_the_queue_out(ask: Ask, insert: Insert) -> None:
    """First token 2 s after it was scheduled and 3 s of queue before: the end is at 5.1 s."""
    late = {"ttft_point": "engine_scheduled", "queue_seconds": 3.0, "e2e_seconds": 5.1}
    insert("requests", [request(0.0, **late, repeat=20)])
    insert("requests", [request(0.0, **late | {"queue_seconds": None}, repeat=5)])
    (row,) = ask("decode_speed")
    assert (row["told_requests"], row["seconds_per_token"]) == (20, pytest.approx(0.01))


def test_every_replica_and_model_has_its_own(ask: Ask, insert: Insert) -> None:
    insert("requests", [request(0.01, repeat=20), request(0.03, replica=None, repeat=20),
                        request(0.05, model="n", replica_role="decode", repeat=20)])  # fmt: skip
    found = [(row["replica"], row["model"], row["seconds_per_token"]) for row in
             ask("decode_speed")]  # fmt: skip
    assert found == [("", "m", pytest.approx(0.03)), ("a", "m", pytest.approx(0.01)),
                     ("a", "n", pytest.approx(0.05))]  # fmt: skip
    assert len(ask("decode_speed", model="m", replica="a")) == 1
    assert ask("decode_speed", since="11:00") == []


@needs_captures
@pytest.mark.parametrize("run", ["vllm-0.32.0/external", "vllm-0.32.0-small/main"])
def test_it_is_what_the_engine_counts(ask: Ask, insert: Insert, run: str) -> None:
    """Client times of real streams, within a tenth of the engine's own time between tokens."""
    folder = CAPTURES / run
    lines = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    insert("requests", [
        {"ts": "10:00", "output_tokens": line["usage"]["completion_tokens"],
         "stream": line["stream"], "ttft_seconds": line["ttft_s"], "ttft_point": "client",
         "e2e_seconds": line["total_s"]}
        for line in lines if line.get("usage")
    ])  # fmt: skip
    page = max((folder / "metrics").glob("*.prom")).read_text()
    whole = r"^vllm:inter_token_latency_seconds_{}{{.*}} (.*)$"
    seconds, tokens = (float(re.findall(whole.format(name), page, re.MULTILINE)[0])
                       for name in ("sum", "count"))  # fmt: skip
    (row,) = ask("decode_speed")
    assert row["seconds_per_token"] == pytest.approx(seconds / tokens, rel=0.1)


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.tuples(st.integers(2, 400), st.integers(80_000, 10**6)), min_size=20, max_size=60)
)
def test_it_is_the_middle_of_all(requests: list[tuple[int, int]]) -> None:
    """Against sorting: the mean of the two in the middle, whatever their lengths."""
    each = sorted(micros / (tokens - 1) / 1e6 for tokens, micros in requests)
    expected = (each[(len(each) - 1) // 2] + each[len(each) // 2]) / 2
    with empty_store.lent() as cursor:
        cursor.execute(
            """INSERT INTO requests (ts, arrived, source, source_format, attempt, status, outcome,
                prompt_basis, batch, position, output_tokens, ttft_seconds, e2e_seconds)
            SELECT '2026-11-30', '2026-11-30', 'log', 'test', 1, 'ok', 'unknown', 'inclusive', 1, 0,
                unnest($tokens), 1, 1 + unnest($micros) / 1e6""",
            {"tokens": [each[0] for each in requests], "micros": [each[1] for each in requests]},
        )
        (row,) = registry.rows(registry.run(cursor, "decode_speed", {}))
    assert row["told_requests"] == len(requests)
    assert row["seconds_per_token"] == pytest.approx(expected, rel=1e-6)
