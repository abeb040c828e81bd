"""Faults that usage objects and gateway logs invite, each with its tiny input and right answer.

Every test loads a source and route of its own into one store and asks for that route only.
"""

import json
from collections.abc import Sequence

import pytest

from exporter.sources.intake import IngestSummary
from exporter.store.store import Store
from tests.log_path import NOON, Answer, Row, ask, by_id, hit_ratio, load, rejects, requests, utc

NOON_SECONDS = 1772452800.0


def into(store: Store, route: str, rows: Sequence[Row | str], format: str) -> IngestSummary:
    """Loads rows as a source and route of that name."""
    return load(store, rows, route, format=format, defaults={"route": route})


def health(store: Store, source: str) -> Answer:
    (found,) = [row for row in ask(store, "ingest_health") if row["source"] == source]
    return found


def anthropic(name: str, **usage: object) -> Row:
    return {"id": name, "type": "message", "created_at": NOON, "usage": usage}


def openai(name: str, **usage: object) -> Row:
    return {"id": name, "created": NOON_SECONDS, "model": "m", "usage": usage}


def spend(name: str, prompt: object, **more: object) -> dict[str, object]:
    """A row of LiteLLM's spend logs without a model group, so that the route is the source's."""
    return {"request_id": name, "litellm_call_id": name, "call_type": "acompletion", "spend": 0.01,
            "startTime": NOON, "model": "m", "prompt_tokens": prompt, **more}  # fmt: skip


def cached(tokens: int, **more: object) -> dict[str, object]:
    return {
        "metadata": {**more, "usage_object": {"prompt_tokens_details": {"cached_tokens": tokens}}}
    }


def test_t30_written_tokens_are_prompt_tokens_once(shared_store: Store) -> None:
    usage = {"input_tokens": 3, "cache_creation_input_tokens": 12304, "cache_read_input_tokens": 0,
             "output_tokens": 550}  # fmt: skip
    into(shared_store, "t30", [anthropic("t30", **usage)], "anthropic")
    figures = hit_ratio(shared_store, route="t30")
    assert (figures["prompt_tokens"], figures["cached_tokens"]) == (12307, 0)
    (row,) = requests(shared_store, "t30")
    uncached = row["prompt_tokens"] - row["cached_tokens"] - row["cache_write_tokens"]
    assert (uncached, row["cache_write_tokens"], row["output_tokens"]) == (3, 12304, 550)
    # Dollars per million tokens: 3 plain, 3.75 written, 15 generated.
    assert pytest.approx(0.054399) == (3 * 3 + 12304 * 3.75 + 550 * 15) / 1e6


def test_t31_an_inclusive_input_is_not_added_up_again(shared_store: Store) -> None:
    usage = {"prompt_tokens": 130213, "completion_tokens": 100, "total_tokens": 130313,
             "prompt_tokens_details": {"cached_tokens": 128955,
                                       "cache_write_tokens": 1253}}  # fmt: skip
    into(shared_store, "t31", [openai("t31", **usage)], "openai")
    langfuse = {"id": "t31 langfuse", "traceId": "t", "type": "GENERATION", "startTime": NOON,
                "usageDetails": {"input": 130213, "cache_read_input_tokens": 128955,
                                 "cache_creation_input_tokens": 1253, "output": 100,
                                 "total": 130313}}  # fmt: skip
    into(shared_store, "t31", [langfuse], "langfuse")
    figures = hit_ratio(shared_store, route="t31")
    assert (figures["prompt_tokens"], figures["cached_tokens"]) == (2 * 130213, 2 * 128955)
    assert figures["token_hit_ratio"] == pytest.approx(0.990, abs=5e-4)
    for row in requests(shared_store, "t31"):
        assert row["prompt_basis"] == "inclusive"
        assert row["prompt_tokens"] - row["cached_tokens"] - row["cache_write_tokens"] == 5


def test_t32_impossible_readings_are_found_and_assumptions_recorded(shared_store: Store) -> None:
    into(shared_store, "t32 impossible", [
        openai("a", prompt_tokens=25, prompt_tokens_details={"cached_tokens": 75}),
    ], "openai")  # fmt: skip
    into(shared_store, "t32 ambiguous", [
        openai("b", prompt_tokens=100, prompt_tokens_details={"cached_tokens": 20}),
    ], "openai")  # fmt: skip
    first = hit_ratio(shared_store, route="t32 impossible")
    assert (first["prompt_tokens"], first["token_hit_ratio"]) == (100, 0.75)
    second = hit_ratio(shared_store, route="t32 ambiguous")
    assert (second["prompt_tokens"], second["token_hit_ratio"]) == (100, 0.2)
    bases = [requests(shared_store, f"t32 {name}")[0]["prompt_basis"]
             for name in ("impossible", "ambiguous")]  # fmt: skip
    assert bases == ["exclusive", "assumed"]


@pytest.mark.parametrize("shape", ["anthropic", "openai", "portkey", "helicone"])
def test_t33_a_negative_remainder_is_a_mapping_error(shared_store: Store, shape: str) -> None:
    own = {"input_tokens": 19, "cache_read_input_tokens": 38000,
           "cache_creation_input_tokens": 1000, "output_tokens": 1}  # fmt: skip
    as_openai = {"prompt_tokens": 19, "completion_tokens": 1,
                 "prompt_tokens_details": {"cached_tokens": 38000},
                 "cache_creation_input_tokens": 1000}  # fmt: skip
    rows: dict[str, Row] = {
        "anthropic": anthropic("a", **own),
        "openai": openai("a", **as_openai),
        "portkey": {"id": "a", "created_at": NOON, "ai_model": "claude", "response_time": 10,
                    "response": {"usage": as_openai}},
        "helicone": {"request_id": "a", "request_created_at": NOON, "delay_ms": 10,
                     "prompt_tokens": 19, "prompt_cache_read_tokens": 38000,
                     "prompt_cache_write_tokens": 1000},
    }  # fmt: skip
    route = f"t33 {shape}"
    load(shared_store, [rows[shape]], route, format=shape)
    (row,) = requests(shared_store, route)
    assert (row["prompt_tokens"], row["cached_tokens"], row["cache_write_tokens"]) == (
        39019, 38000, 1000,
    )  # fmt: skip
    assert (row["prompt_basis"], row["flags"]) == ("exclusive", None)


def test_t35_bedrock_counts_exclusively(shared_store: Store) -> None:
    usage = {"inputTokens": 12, "cacheReadInputTokens": 4000, "cacheWriteInputTokens": 0,
             "outputTokens": 40}  # fmt: skip
    into(shared_store, "t35", [{"requestId": "a", "timestamp": NOON, "usage": usage}], "bedrock")
    figures = hit_ratio(shared_store, route="t35")
    assert (figures["prompt_tokens"], figures["computed_tokens"]) == (4012, 12)
    assert figures["token_hit_ratio"] == pytest.approx(0.997, abs=5e-4)


def test_t36_gemini_cached_tokens_are_part_of_the_prompt(shared_store: Store) -> None:
    usage = {"promptTokenCount": 10000, "cachedContentTokenCount": 8000}
    row = {"responseId": "a", "createTime": NOON, "usageMetadata": usage}
    into(shared_store, "t36", [row], "gemini")
    figures = hit_ratio(shared_store, route="t36")
    assert (figures["prompt_tokens"], figures["computed_tokens"]) == (10000, 2000)
    assert figures["token_hit_ratio"] == 0.8


def test_t37_deepseek_misses_are_no_writes(shared_store: Store) -> None:
    usage = {"prompt_tokens": 100, "prompt_cache_hit_tokens": 20, "prompt_cache_miss_tokens": 80}
    into(shared_store, "t37", [openai("a", **usage)], "openai")
    figures = hit_ratio(shared_store, route="t37")
    assert (figures["prompt_tokens"], figures["token_hit_ratio"]) == (100, 0.2)
    assert requests(shared_store, "t37")[0]["cache_write_tokens"] is None


def test_t38_writes_are_kept_by_lifetime(shared_store: Store) -> None:
    split = {"ephemeral_5m_input_tokens": 600_000, "ephemeral_1h_input_tokens": 400_000}
    rows = [
        anthropic("split", input_tokens=0, cache_creation_input_tokens=1_000_000,
                  cache_read_input_tokens=0, cache_creation=split),
        anthropic("unsaid", input_tokens=0, cache_creation_input_tokens=1_000_000,
                  cache_read_input_tokens=0),
    ]  # fmt: skip
    into(shared_store, "t38", rows, "anthropic")
    stored = by_id(shared_store, "t38")
    lifetimes = ("cache_write_tokens", "cache_write_5m", "cache_write_1h")
    assert [stored["split"][name] for name in lifetimes] == [1_000_000, 600_000, 400_000]
    assert [stored["unsaid"][name] for name in lifetimes] == [1_000_000, None, None]
    # $5 a million, 1.25 times that for five minutes, twice for an hour.
    assert (600_000 * 1.25 + 400_000 * 2) * 5 / 1e6 == 7.75


def test_t39_a_response_cache_is_no_prefix_cache(shared_store: Store) -> None:
    rows = [
        spend("engine", 2000, cache_hit="False", completion_tokens=10, **cached(0)),
        spend("engine_cache_hit177", 2000, cache_hit="True", completion_tokens=10, **cached(1500)),
    ]
    rows[1]["spend"] = 0.0
    summary = into(shared_store, "t39", rows, "litellm_spend_logs")
    figures = hit_ratio(shared_store, route="t39")
    assert (figures["cached_tokens"], figures["reported_prompt_tokens"]) == (0, 2000)
    assert (figures["token_hit_ratio"], figures["coverage_ratio"]) == (0.0, 1.0)
    assert (figures["requests"], figures["ineligible_requests"]) == (2, 1)
    assert (figures["prompt_tokens"], figures["output_tokens"]) == (2000, 10), "processed"
    assert summary.flags == health(shared_store, "t39")["flags"] == {"response_cache_hit": 1}


@pytest.mark.parametrize("word", ["True", "true", True])
def test_t39_cache_hit_in_every_spelling(shared_store: Store, word: object) -> None:
    route = f"t39 {word!r}"
    payload = {"litellm_call_id": "a", "call_type": "acompletion", "startTime": NOON_SECONDS,
               "hidden_params": {}, "prompt_tokens": 10, "cache_hit": word}  # fmt: skip
    into(shared_store, route, [payload], "litellm")
    into(shared_store, f"{route} row", [spend("a", 10, cache_hit=word)], "litellm_spend_logs")
    for source in (route, f"{route} row"):
        assert requests(shared_store, source)[0]["ineligible_reason"] == "response_cache"


@pytest.mark.parametrize("word", ["False", "false", "None", False, None, ""])
def test_t39_no_cache_hit_in_every_spelling(shared_store: Store, word: object) -> None:
    route = f"t39 not {word!r}"
    into(shared_store, route, [spend("a", 10, cache_hit=word)], "litellm_spend_logs")
    (row,) = requests(shared_store, route)
    assert (row["ineligible_reason"], row["prompt_tokens"]) == (None, 10)


def _attempt(number: int, *, served: bool) -> dict[str, object]:
    usage = cached(800, attempted_retries=number - 1) if served else {
        "metadata": {"attempted_retries": number - 1}
    }  # fmt: skip
    status = "success" if served else "failure"
    return spend("call", 1000 if served else 0, status=status, endTime=NOON, **usage)


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
def test_t40_requests_and_attempts_are_counted_apart(
    shared_store: Store, order: tuple[int, ...]
) -> None:
    route = f"t40 {order}"
    for number in order:
        into(shared_store, route, [_attempt(number, served=number == 3)], "litellm_spend_logs")
    found = health(shared_store, route)
    assert (found["requests"], found["attempts"]) == (1, 3)
    figures = hit_ratio(shared_store, route=route)
    assert (figures["token_hit_ratio"], figures["prompt_tokens"]) == (0.8, 1000)
    assert figures["coverage_ratio"] == 1.0, "failures do not dilute it"


def test_t40_a_failed_attempt_of_the_same_number_does_not_hide_the_served_one(
    shared_store: Store,
) -> None:
    into(shared_store, "t40 unnumbered", [
        spend("call", 0, status="failure"), spend("call", 0, status="failure"),
        spend("call", 1000, status="success", completion_tokens=5, **cached(800)),
    ], "litellm_spend_logs")  # fmt: skip
    figures = hit_ratio(shared_store, route="t40 unnumbered")
    assert (figures["requests"], figures["token_hit_ratio"]) == (1, 0.8)


@pytest.mark.parametrize("together", [True, False])
def test_t41_bridged_calls_are_a_suspected_pair(shared_store: Store, together: bool) -> None:
    route = f"t41 {together}"
    rows = [
        {**spend(f"{call} {together}", 5000, api_key="k", completion_tokens=7, **cached(4000)),
         "call_type": call, "startTime": "2026-03-02T12:00:00.125Z"}
        for call in ("responses", "completion")
    ]  # fmt: skip
    for batch in [rows] if together else [[row] for row in rows]:
        summary = into(shared_store, route, batch, "litellm_spend_logs")
    assert summary.flags == health(shared_store, route)["flags"] == {"suspected_duplicate": 1}
    flags = [row["flags"] for row in requests(shared_store, route)]
    assert sorted(flags, key=str) == [None, ["suspected_duplicate"]] or sorted(flags, key=str) == [
        ["suspected_duplicate"],
        None,
    ]


def test_t41_calls_that_differ_are_no_pair(shared_store: Store) -> None:
    alike = {"api_key": "k", "completion_tokens": 7, **cached(4000)}
    rows = [
        spend("first", 5000, **alike),
        spend("another key", 5000, **{**alike, "api_key": "j"}),
        spend("another prompt", 5001, **alike),
        {**spend("another time", 5000, **alike), "startTime": "2026-03-02T12:00:00.001Z"},
        spend("first", 5000, **alike),  # the same row delivered again
    ]
    summary = into(shared_store, "t41 apart", rows, "litellm_spend_logs")
    assert (summary.accepted, summary.duplicate, summary.flags) == (4, 1, {})


def test_t42_aborted_streams_have_unknown_usage(shared_store: Store) -> None:
    rows = [
        openai("aborted", prompt_tokens=0, prompt_tokens_details={"cached_tokens": 0}),
        {"id": "silent", "created": NOON_SECONDS, "model": "m", "stream": True, "usage": None},
        openai("served", prompt_tokens=1000, prompt_tokens_details={"cached_tokens": 700}),
    ]
    into(shared_store, "t42 gateway", rows, "openai")
    figures = hit_ratio(shared_store, route="t42 gateway")
    assert (figures["token_hit_ratio"], figures["request_coverage_ratio"]) == (0.7, 1 / 3)
    stored = by_id(shared_store, "t42 gateway")
    assert [stored[name]["outcome"] for name in ("aborted", "silent")] == ["unknown", "unknown"]


def test_t43_first_token_times_of_litellm(shared_store: Store) -> None:
    times = {"captured never": (9.0, 9.0, True), "first": (0.4, 8.0, True),
             "second": (0.5, 8.2, True), "not streamed": (6.0, 6.0, False)}  # fmt: skip
    rows = [
        {"litellm_call_id": name, "call_type": "acompletion", "hidden_params": {}, "stream": stream,
         "startTime": NOON_SECONDS, "completionStartTime": NOON_SECONDS + first,
         "endTime": NOON_SECONDS + end, "prompt_tokens": 100 + len(name), **cached(0)}
        for name, (first, end, stream) in times.items()
    ]  # fmt: skip
    summary = into(shared_store, "t43 litellm", rows, "litellm")
    (figures,) = ask(shared_store, "ttft_by_outcome", route="t43 litellm")
    assert figures["requests"] == 2
    assert figures["mean_seconds"] == pytest.approx(0.45)
    assert summary.flags == {"ttft_equals_end": 1, "ttft_not_streamed": 1}


def test_t44_reads_writes_and_plain_tokens_stand_apart(shared_store: Store) -> None:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 100_000,
             "cache_creation_input_tokens": 5000}  # fmt: skip
    into(shared_store, "t44", [anthropic("a", **usage)], "anthropic")
    (row,) = requests(shared_store, "t44")
    read, written = row["cached_tokens"], row["cache_write_tokens"]
    plain = row["prompt_tokens"] - read - written
    assert (plain, read, written) == (3, 100_000, 5000)
    # $3 a million, reads a tenth, writes a quarter more.
    assert (plain + read * 0.1 + written * 1.25) * 3 / 1e6 == pytest.approx(0.048759)


# ------------------------------------------------- what holds for the rows of every gateway

# A good row of each gateway, 1000 prompt tokens of which 640 were cached; `#` stands for its id.
GATEWAYS: dict[str, str] = {
    "litellm": json.dumps({
        "litellm_call_id": "#", "call_type": "acompletion", "hidden_params": {},
        "startTime": NOON_SECONDS, "prompt_tokens": 1000, **cached(640)}),
    "litellm_spend_logs": json.dumps(spend("#", 1000, **cached(640))),
    "kong": json.dumps({
        "started_at": 1772452800000, "request": {"id": "#"}, "ai": {"proxy": {
            "usage": {"prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": 640}}}}}),
    "portkey": json.dumps({
        "id": "#", "created_at": NOON, "ai_model": "m", "response_time": 0, "response": {
            "usage": {"prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": 640}}}}),
    "helicone": json.dumps({
        "request_id": "#", "request_created_at": NOON, "delay_ms": 1, "prompt_tokens": 360,
        "prompt_cache_read_tokens": 640}),
    "langfuse": json.dumps({
        "id": "#", "traceId": "t", "type": "GENERATION", "startTime": NOON,
        "usageDetails": {"input": 360, "input_cached_tokens": 640}}),
    "envoy_ai_gateway": json.dumps({
        "x-request-id": "#", "start_time": NOON, "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.cached_input_tokens": 640}),
    "openrouter": json.dumps({"data": {
        "id": "#", "created_at": NOON, "native_tokens_prompt": 1000, "native_tokens_cached": 640}}),
    "bedrock": json.dumps({
        "requestId": "#", "timestamp": NOON,
        "usage": {"inputTokens": 360, "cacheReadInputTokens": 640}}),
    "gemini": json.dumps({
        "responseId": "#", "createTime": NOON,
        "usageMetadata": {"promptTokenCount": 1000, "cachedContentTokenCount": 640}}),
}  # fmt: skip
every_gateway = pytest.mark.parametrize("name", GATEWAYS)


def _rows(name: str, *ids: str) -> list[str]:
    return [GATEWAYS[name].replace("#", request) for request in ids]


@every_gateway
def test_t61_one_bad_line_costs_one_line(shared_store: Store, name: str) -> None:
    route = f"t61 {name}"
    good = _rows(name, f"{route} first", f"{route} last")
    lines: list[str | bytes] = [good[0], b"\xff\xfe", "[]", "42", '"text"', "null", good[1]]
    load(shared_store, lines, route, format=name)
    assert {row["request_id"] for row in requests(shared_store, route)} == {
        f"{route} first", f"{route} last",
    }  # fmt: skip
    assert [line for line, _ in rejects(shared_store, route)] == [2, 3, 4, 5, 6]


@every_gateway
def test_t62_numbers_that_are_none_are_unknown(shared_store: Store, name: str) -> None:
    route = f"t62 {name}"
    (row,) = _rows(name, route)
    load(shared_store, [row.replace("640", word) for word in ("NaN", "Infinity", "-1")],
         route, format=name, origin="http")  # fmt: skip
    for stored in requests(shared_store, route):
        assert stored["cached_tokens"] is None
    for question in ("hit_ratio", "requests"):
        json.dumps(ask(shared_store, question), allow_nan=False)


@every_gateway
def test_t63_counts_are_coerced_field_by_field(shared_store: Store, name: str) -> None:
    route = f"t63 {name}"
    as_text, with_point = _rows(name, f"{route} text", f"{route} point")
    load(shared_store, [as_text.replace("640", '"640"'), with_point.replace("640", "640.0")],
         route, format=name)  # fmt: skip
    rows = by_id(shared_store, route)
    assert (rows[f"{route} point"]["prompt_tokens"], rows[f"{route} point"]["cached_tokens"]) == (
        1000, 640,
    )  # fmt: skip
    assert rows[f"{route} text"]["cached_tokens"] == 640


@every_gateway
def test_t67_reading_twice_changes_nothing_and_conflicts_are_told(
    shared_store: Store, name: str
) -> None:
    route = f"t67 {name}"
    rows = _rows(name, f"{route} a", f"{route} b")
    first = load(shared_store, rows, route, format=name)
    again = load(shared_store, rows, route, format=name)
    assert (first.accepted, again.accepted, again.duplicate) == (2, 0, 2)
    changed = rows[0].replace("640", "700")
    conflict = load(shared_store, [changed], route, format=name)
    told = conflict.conflicting + conflict.duplicate + conflict.corrected
    assert (conflict.accepted, told) == (0, 1)
    assert sum(row["cached_tokens"] for row in requests(shared_store, route)) == 1280


@every_gateway
def test_t65_the_start_is_the_moment_the_row_says(shared_store: Store, name: str) -> None:
    route = f"t65 {name}"
    load(shared_store, _rows(name, route), route, format=name)
    (row,) = requests(shared_store, route)
    assert row["ts"] == utc("2026-03-02 12:00")
    assert row["flags"] is None


def test_t66_chunks_of_one_answer_are_merged(shared_store: Store) -> None:
    usages = [{"promptTokenCount": 1000, "cachedContentTokenCount": 800, "candidatesTokenCount": n}
              for n in (1, 9, 40)]  # fmt: skip
    rows = [{"responseId": "a", "createTime": NOON, "usageMetadata": usage} for usage in usages]
    into(shared_store, "t66 gemini", rows, "gemini")
    figures = hit_ratio(shared_store, route="t66 gemini")
    assert (figures["requests"], figures["prompt_tokens"], figures["output_tokens"]) == (
        1, 1000, 40,
    )  # fmt: skip


def test_parents_that_repeat_their_children_are_set_aside(shared_store: Store) -> None:
    usage = {"input": 200, "input_cached_tokens": 800, "output": 5}
    rows = [{"id": kind, "traceId": "t", "type": kind, "startTime": NOON, "usageDetails": usage}
            for kind in ("SPAN", "AGENT", "CHAIN", "GENERATION", "TOOL")]  # fmt: skip
    summary = into(shared_store, "parents", rows, "langfuse")
    assert (summary.accepted, summary.reasons) == (1, {"not_a_generation": 4})
    assert hit_ratio(shared_store, route="parents")["prompt_tokens"] == 1000
