"""Public faults of usage accounting, with spans: posted, then asked."""

import json

import pytest

from tests.log_path import requests as stored
from tests.unit_otel.spans import JSON, PROTOBUF, House, Object, as_json, as_protobuf, call, request

INPUT, OUTPUT = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
READ, WRITE = "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_write.input_tokens"
OLD_READ = "gen_ai.usage.cache_read_input_tokens"
OLD_WRITE = "gen_ai.usage.cache_creation.input_tokens"


@pytest.fixture(params=[JSON, PROTOBUF])
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


def post(house: House, kind: str, *spans: Object) -> Object:
    """The answer to `hit_ratio` once the spans are in."""
    found = request(*spans)
    body = as_protobuf(found) if kind == PROTOBUF else as_json(found)
    assert house.post(body, kind).status_code == 200
    (ratio,) = house.ask("hit_ratio")
    return ratio


def bases(house: House) -> list[str]:
    rows = sorted(stored(house.store), key=lambda row: row["ts"])
    return [row["prompt_basis"] for row in rows]


@pytest.mark.parametrize("write", [WRITE, OLD_WRITE])
def test_t31_cached_and_written_tokens_are_not_added_again(
    house: House, kind: str, write: str
) -> None:
    ratio = post(house, kind, call(1, {INPUT: 130213, READ: 128955, write: 1253, OUTPUT: 9}))
    assert (ratio["prompt_tokens"], ratio["cached_tokens"]) == (130213, 128955)
    assert ratio["token_hit_ratio"] == pytest.approx(128955 / 130213)  # 99.0 %
    assert bases(house) == ["inclusive"]
    (row,) = stored(house.store)
    assert row["prompt_tokens"] - row["cached_tokens"] - row["cache_write_tokens"] == 5


@pytest.mark.parametrize("name", [READ, OLD_READ])
def test_t32_more_cached_than_input_proves_an_exclusive_count(
    house: House, kind: str, name: str
) -> None:
    ratio = post(house, kind, call(1, {"gen_ai.provider.name": "openai", INPUT: 25, name: 75}))
    assert (ratio["prompt_tokens"], ratio["cached_tokens"]) == (100, 75)
    assert ratio["token_hit_ratio"] == 0.75
    assert bases(house) == ["exclusive"]


def test_t32_an_ambiguous_count_is_read_by_the_convention_and_says_so(
    house: House, kind: str
) -> None:
    ratio = post(house, kind, call(1, {INPUT: 100, OLD_READ: 20}))
    assert (ratio["prompt_tokens"], ratio["token_hit_ratio"]) == (100, 0.2)
    assert bases(house) == ["assumed"]


def test_t33_no_negative_remainder(house: House, kind: str) -> None:
    ratio = post(house, kind, call(1, {INPUT: 19, READ: 38000, WRITE: 1000}))
    assert (ratio["prompt_tokens"], ratio["cached_tokens"]) == (39019, 38000)
    assert bases(house) == ["exclusive"]


def test_a_total_proves_an_exclusive_count_too(house: House, kind: str) -> None:
    """1000 + 400 cached + 10 answered: the total has room for the cached tokens."""
    total = {"llm.token_count.prompt": 1000, "llm.token_count.prompt_details.cache_read": 400,
             "llm.token_count.completion": 10, "llm.token_count.total": 1410}  # fmt: skip
    ratio = post(house, kind, call(1, total))
    assert (ratio["prompt_tokens"], ratio["cached_tokens"]) == (1400, 400)
    assert bases(house) == ["exclusive"]


def test_t03_a_small_excess_is_capped(house: House, kind: str) -> None:
    ratio = post(house, kind, call(1, {INPUT: 126, READ: 128}))
    assert (ratio["prompt_tokens"], ratio["cached_tokens"]) == (126, 126)
    assert house.ask("ingest_health")[0]["flags"] == {"cached_capped": 1}


def test_t05_not_reported_is_not_zero(house: House, kind: str) -> None:
    rows = [{INPUT: 1000, READ: 512}, {INPUT: 1000}, {INPUT: 1000, READ: 0}]
    ratio = post(house, kind, *(
        call(n, {**usage, "gen_ai.provider.name": "openai"}) for n, usage in enumerate(rows, 1)
    ))  # fmt: skip
    assert (ratio["prompt_tokens"], ratio["reported_prompt_tokens"]) == (3000, 2000)
    assert ratio["token_hit_ratio"] == 512 / 2000
    assert ratio["coverage_ratio"] == pytest.approx(2 / 3)


def test_t04_several_choices_one_prompt(house: House, kind: str) -> None:
    four = call(1, {INPUT: 1000, READ: 3200, "gen_ai.request.choice.count": 4})
    ratio = post(house, kind, four, call(2, {INPUT: 1000, READ: 800}))
    assert (ratio["prompt_tokens"], ratio["cached_tokens"]) == (2000, 1600)


def test_t40_failed_attempts_do_not_dilute_the_ratio(house: House, kind: str) -> None:
    failed = [call(n, {"error.type": "503"}) for n in (1, 2)]
    ratio = post(house, kind, *failed, call(3, {INPUT: 1000, READ: 800}))
    assert (ratio["token_hit_ratio"], ratio["prompt_tokens"]) == (0.8, 1000)


def test_t42_zero_usage_of_an_aborted_call_is_unknown(house: House, kind: str) -> None:
    aborted = call(1, {INPUT: 0, READ: 0, "error.type": "499"})
    ratio = post(house, kind, aborted, call(2, {}), call(3, {INPUT: 1000, READ: 700}))
    assert (ratio["requests"], ratio["token_hit_ratio"]) == (3, 0.7)
    outcomes = sorted(row["outcome"] for row in stored(house.store))
    assert outcomes == ["partial", "unknown", "unknown"]


def test_t43_a_first_token_at_the_end_is_none(house: House, kind: str) -> None:
    first = "gen_ai.response.time_to_first_chunk"
    spans = [call(n, {INPUT: 10, first: seconds}) for n, seconds in enumerate((1.0, 0.4, 0.5), 1)]
    post(house, kind, *spans, call(4, {INPUT: 10, first: 0.9, "gen_ai.request.stream": False}))
    kept = sorted(row["ttft_seconds"] for row in stored(house.store) if row["ttft_seconds"])
    assert kept == [0.4, 0.5]
    assert house.ask("ingest_health")[0]["flags"] == {
        "ttft_equals_end": 1,
        "ttft_not_streamed": 1,
    }


def test_t62_numbers_that_are_none_are_unknown(house: House, kind: str) -> None:
    odd = {INPUT: float("nan"), READ: float("inf"), "gen_ai.response.time_to_first_chunk": -1.0}
    ratio = post(house, kind, call(1, odd), call(2, {INPUT: 1000, READ: 500}))
    assert (ratio["requests"], ratio["token_hit_ratio"]) == (2, 0.5)
    json.loads(json.dumps(house.ask("requests")), parse_constant=pytest.fail)


def test_t18_a_negative_count_is_unknown(house: House, kind: str) -> None:
    post(house, kind, call(1, {INPUT: 3808, READ: -1, "gen_ai.request.model": "m"}))
    (row,) = stored(house.store)
    assert (row["prompt_tokens"], row["cached_tokens"]) == (3808, None)
    assert row["flags"] == ["unusable:cached_tokens"]
