"""Saved answers of both usage APIs: what is read of them, and how a fault is named."""

import json
from collections import Counter
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.usage_reports.report import Gathered, open_buckets, read_saved
from exporter.sources.usage_reports.rows import UsageRow
from exporter.sources.usage_reports.table import ReportProblem

SAVED = Path(__file__).parent / "saved"
NOV_3 = datetime(2026, 11, 3, tzinfo=UTC)
NOON = NOV_3 + timedelta(days=10, hours=12)


def documents(name: str) -> list[Any]:
    text = (SAVED / name).read_text()
    return [json.loads(line) for line in text.splitlines()] if name.endswith("ndjson") else (
        json.loads(text)
    )  # fmt: skip


def read(*pages: object) -> Gathered:
    (found,) = read_saved("\n".join(map(json.dumps, pages)).encode(), "usage.json")
    return found


def rows(found: Gathered) -> tuple[UsageRow, ...]:
    return found.report(NOON).rows


def saved(name: str) -> Gathered:
    (found,) = read_saved((SAVED / name).read_bytes(), name)
    return found


def sums(found: Gathered) -> dict[str, tuple[int, int, int, int]]:
    """Prompt, cached, written and output tokens by model, over all days."""
    totals: dict[str, Counter[str]] = {}
    for row in rows(found):
        if row.model:
            totals.setdefault(row.model, Counter()).update(
                p=row.prompt_tokens, c=row.cached_tokens or 0, w=row.cache_write_tokens or 0,
                o=row.output_tokens or 0,
            )  # fmt: skip
    return {model: (t["p"], t["c"], t["w"], t["o"]) for model, t in totals.items()}


def test_openai_prompt_tokens_include_cached_and_written_ones() -> None:
    found = saved("openai-pages.json")
    assert sums(found) == {
        "gpt-4o-2024-08-06": (120_000 + 30_000 + 60_000, 64_000 + 32_000, 0, 15_500),
        "gpt-5.6-terra": (27_444, 8_448, 4_096, 1_200),
    }
    assert {row.provider for row in rows(found)} == {"openai"}
    assert [row.tenant for row in rows(found)] == ["proj_a", "proj_b", "proj_a", None, "proj_a"]
    assert [row.requests for row in rows(found)] == [100, 20, 9, 0, 50]
    assert not found.unfinished


def test_anthropic_prompt_tokens_are_the_sum_of_their_exclusive_parts() -> None:
    found = saved("anthropic-pages.ndjson")
    sonnet = (2_100 + 179_200 + 5_920 + 1_000) + (1_000 + 80_000)
    assert sums(found) == {
        "claude-sonnet-4-5-20250929": (sonnet, 259_200, 6_920, 4_000),
        "claude-haiku-4-5-20251001": (500, 0, 0, 80),
    }
    assert {row.requests for row in rows(found) if row.model} == {None}, "it does not say"
    assert [row.tenant for row in rows(found)] == ["wrkspc_01A", None, "wrkspc_01A", None]


@pytest.mark.parametrize("name", ["openai-pages.json", "anthropic-pages.ndjson"])
def test_buckets_are_days_of_utc_and_an_empty_one_is_kept_as_zeros(name: str) -> None:
    found = rows(saved(name))
    assert sorted({row.day for row in found}) == [NOV_3 + timedelta(days=n) for n in range(3)]
    assert {row.bucket_seconds for row in found} == {86_400}
    (empty,) = [row for row in found if row.model is None]
    assert (empty.prompt_tokens, empty.cached_tokens, empty.requests) == (0, 0, 0)


@pytest.mark.parametrize("shape", ["list", "lines", "pretty"])
def test_pages_may_be_a_list_or_stand_one_after_another(shape: str) -> None:
    pages = documents("openai-pages.json")
    text = {
        "list": json.dumps(pages),
        "lines": "\n".join(map(json.dumps, pages)),
        "pretty": "".join(json.dumps(page, indent=2) for page in pages) + "\n\n",
    }[shape]
    (found,) = read_saved(b"\xef\xbb\xbf" + text.encode(), "usage.json")
    assert rows(found) == rows(saved("openai-pages.json"))
    assert found.pages == 2


def test_one_file_may_hold_reports_of_both() -> None:
    both = (SAVED / "openai-pages.json").read_bytes()
    both += (SAVED / "anthropic-pages.ndjson").read_bytes()
    assert [found.table.provider for found in read_saved(both, "all")] == ["openai", "anthropic"]


def test_a_page_saved_twice_counts_once() -> None:
    pages = documents("openai-pages.json")
    found = read(*pages, pages[0])
    assert rows(found) == rows(saved("openai-pages.json"))
    assert found.repeated == 2


def test_the_later_of_two_answers_for_a_day_stands() -> None:
    first = documents("anthropic-pages.ndjson")[0]
    later = deepcopy(first)
    later["data"][0]["results"][0]["cache_read_input_tokens"] += 1_000
    assert sums(read(first, later))["claude-sonnet-4-5-20250929"][1] == 180_200


def test_an_answer_with_more_to_come_is_known_as_unfinished() -> None:
    assert read(documents("openai-pages.json")[0]).unfinished


def test_hours_and_fields_not_reported() -> None:
    """Old answers have neither cached nor written counts: they are unknown, not 0."""
    page = documents("openai-pages.json")[1]
    bucket = page["data"][0]
    bucket["end_time"] = bucket["start_time"] + 3_600
    for name in ("input_cached_tokens", "input_cache_write_tokens", "num_model_requests"):
        bucket["results"][0].pop(name)
    (row,) = rows(read(page))
    assert (row.bucket_seconds, row.cached_tokens, row.cache_write_tokens) == (3_600, None, None)
    assert row.requests is None


def test_a_lifetime_of_writes_we_do_not_know_counts() -> None:
    page = documents("anthropic-pages.ndjson")[1]
    page["data"][0]["results"][0]["cache_creation"]["ephemeral_24h_input_tokens"] = 7
    assert sums(read(page))["claude-sonnet-4-5-20250929"][:3] == (81_007, 80_000, 7)


def test_a_bucket_that_had_not_ended_is_known() -> None:
    found = rows(saved("openai-pages.json"))
    assert open_buckets(found, NOV_3 + timedelta(days=2, hours=15)) == 1
    assert open_buckets(found, NOV_3 + timedelta(days=3)) == 0


def test_more_cached_than_prompt_tokens_is_said() -> None:
    page = documents("openai-pages.json")[1]
    page["data"][0]["results"][0]["input_cached_tokens"] = 60_001
    (odd,) = read(page).odd
    assert odd == (
        "usage.json: page 1, bucket 1 (2026-11-05T00:00:00Z): more cached and written than prompt"
        " tokens"
    )


OPENAI, ANTHROPIC = "openai-pages.json", "anthropic-pages.ndjson"
PLACE = "usage.json: page 1, bucket 1 (2026-11-03T00:00:00Z), result 1: "


@pytest.mark.parametrize(("name", "path", "value", "said"), [
    (OPENAI, "data", {}, "usage.json: page 1: is no usage report: its data has no buckets"),
    (OPENAI, "data.0", {"start_time": "x"}, "bucket 1: start_time: is missing or no time"),
    (OPENAI, "data.0.end_time", 1, "bucket 1: end_time: must be whole seconds after start_time"),
    (OPENAI, "data.0.start_time", 10**30, "bucket 1: start_time: is missing or no time"),
    (OPENAI, "data.0.results", None, "results: must be a list, not nothing"),
    (OPENAI, "data.0.results.0", "SECRET", PLACE + "must be an object, not text"),
    (OPENAI, "data.0.results.0.input_tokens", None, PLACE + "input_tokens: is missing"),
    (OPENAI, "data.0.results.0.input_tokens", "SECRET",
     PLACE + "input_tokens: must be a whole number, not text"),
    (OPENAI, "data.0.results.0.input_tokens", 1.5,
     PLACE + "input_tokens: must be a whole number, not another number"),
    (OPENAI, "data.0.results.0.input_tokens", -1, "input_tokens: must be between 0 and"),
    (OPENAI, "data.0.results.0.input_cached_tokens", True,
     PLACE + "input_cached_tokens: must be a whole number, not true or false"),
    (OPENAI, "data.0.results.0.model", 5, PLACE + "model: must be text or null"),
    (OPENAI, "data.0.results.0.model", "m" * 300, PLACE + "model: String should have at most"),
    (OPENAI, "next_page", 5, "usage.json: page 1: next_page: must be text or null"),
    (ANTHROPIC, "data.0.starting_at", "2026-11-03T00:00:00", "starting_at: is missing or no time"),
    (ANTHROPIC, "data.0.results.0.cache_read_input_tokens", None,
     PLACE + "cache_read_input_tokens: is missing"),
    (ANTHROPIC, "data.0.results.0.cache_creation", 3,
     PLACE + "cache_creation: must be an object, not another number"),
    (ANTHROPIC, "data.0.results.0.cache_creation.ephemeral_1h_input_tokens", "SECRET",
     PLACE + "cache_creation.ephemeral_1h_input_tokens: must be a whole number, not text"),
])  # fmt: skip
def test_a_fault_is_named_by_its_place(name: str, path: str, value: object, said: str) -> None:
    page: Any = documents(name)[0]
    *way, last = [int(step) if step.isdecimal() else step for step in path.split(".")]
    spot = page
    for step in way:
        spot = spot[step]
    spot[last] = value
    with pytest.raises(ReportProblem) as raised:
        read(page)
    assert said in str(raised.value)
    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize(("text", "said"), [
    (b"", "usage.json: is empty: save the answer of a usage API"),
    (b"[]", "usage.json: is empty"),
    (b"\xff\xfe", "is no JSON: it is not UTF-8 text"),
    (b'{"data": []}\n{"data": [', "usage.json: line 2: no JSON value can be read there"),
    (b"[" * 100_000, "usage.json: line 1: no JSON value"),
    (b'{"prompt": "SECRET"}', "page 1: is no usage report: its data has no buckets with"),
    (b"5", "page 1: is no usage report"),
    (b'{"data": [{"SECRET": 1}]}', "is no usage report"),
    (b'{"error": {"message": "Incorrect API key: sk-SECRET", "code": "invalid_api_key"}}',
     "page 1: is a refusal of the API (invalid_api_key), not a report: ask again with an admin"),
    (b'{"type": "error", "error": {"type": "authentication_error", "message": "SECRET"}}',
     "(authentication_error)"),
    (b'{"error": {"code": "sk-SECRET KEY"}}', "is a refusal of the API (an error)"),
])  # fmt: skip
def test_what_is_no_report_is_refused_without_repeating_it(text: bytes, said: str) -> None:
    with pytest.raises(ReportProblem) as raised:
        read_saved(text, "usage.json")
    assert said in str(raised.value)
    assert "SECRET" not in str(raised.value)


def test_an_answer_without_any_bucket_is_an_empty_report() -> None:
    assert rows(read({"object": "page", "data": [], "has_more": False, "next_page": None})) == ()


def read_or_refused(text: bytes, where: str) -> tuple[UsageRow, ...] | None:
    """Its rows, or None for a refusal that says where."""
    try:
        found = read_saved(text, "usage.json")
    except ReportProblem as problem:
        if not str(problem).startswith(where):
            raise
        return None
    return tuple(row for one in found for row in rows(one))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from([
            "data", "results", "start_time", "end_time", "starting_at", "ending_at", "model",
            "input_tokens", "uncached_input_tokens", "cache_creation", "cache_read_input_tokens",
            "output_tokens", "next_page", "has_more", "error", "code", "project_id",
        ]), inner, max_size=6),
    max_leaves=20,
)  # fmt: skip


@given(json_values)
def test_any_json_is_read_or_refused_by_name(value: object) -> None:
    found = read_or_refused(json.dumps(value).encode(), "usage.json: ")
    assert found is None or all(row.prompt_tokens >= 0 for row in found)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_by_name(text: bytes) -> None:
    assert read_or_refused(text, "usage.json: ") in (None, ())


@given(st.data())
def test_a_real_page_with_one_value_changed(data: st.DataObject) -> None:
    """Close to the truth, where a reader is most likely to trip."""
    name = data.draw(st.sampled_from([OPENAI, ANTHROPIC]))
    page = documents(name)[0]
    spot = data.draw(st.sampled_from([page, page["data"][0], page["data"][0]["results"][0]]))
    spot[data.draw(st.sampled_from(sorted(spot)))] = data.draw(json_values)
    found = read_or_refused(json.dumps(page).encode(), "usage.json: page 1")
    assert found is None or all(row.prompt_tokens >= 0 for row in found)


counts = st.integers(0, 10**9)


@given(st.lists(st.tuples(st.integers(0, 9), counts, counts, counts, counts), max_size=12))
def test_anthropic_sums_are_those_of_plain_addition(
    used: list[tuple[int, int, int, int, int]],
) -> None:
    by_day: dict[int, list[dict[str, object]]] = {}
    for day, fresh, cached, short, long in used:
        by_day.setdefault(day, []).append({
            "model": "m", "uncached_input_tokens": fresh, "cache_read_input_tokens": cached,
            "cache_creation": {
                "ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long
            },
        })  # fmt: skip
    buckets = [{
        "starting_at": (NOV_3 + timedelta(days=day)).isoformat(),
        "ending_at": (NOV_3 + timedelta(days=day + 1)).isoformat(), "results": results,
    } for day, results in by_day.items()]  # fmt: skip
    found = read({"data": buckets, "has_more": False, "next_page": None})
    assert sum(row.prompt_tokens for row in rows(found)) == sum(sum(u[1:]) for u in used)
    assert sum(row.cached_tokens or 0 for row in rows(found)) == sum(u[2] for u in used)
    assert sum(row.cache_write_tokens or 0 for row in rows(found)) == sum(u[3] + u[4] for u in used)
