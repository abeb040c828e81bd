"""Two logs of the same calls, be they one log under two names: told, with both values."""

from typing import Literal

import pytest

from exporter.store.store import Store
from tests.log_path import NOON, Row, ask, by_id, hit_ratio, load

ROWS: list[Row] = [
    {"request_id": f"r-{n}", "ts": f"2026-03-02T12:00:{n:02d}Z", "model": "m", "tenant": "acme",
     "prompt_tokens": 1_000 + n, "cached_tokens": 600, "output_tokens": 10}
    for n in range(20)
]  # fmt: skip
PROMPT = sum(1_000 + n for n in range(20))  # 20,190


@pytest.mark.parametrize("origin", ["file", "http"])
def test_a_log_under_two_names_is_told(store: Store, origin: Literal["file", "http"]) -> None:
    """A source is who its name says, so that both are taken; what counts twice is known exactly."""
    load(store, ROWS, "gateway", origin=origin)
    load(store, [*ROWS[:15], {**ROWS[0], "request_id": "r-new"}], "gw", origin=origin)
    (pair,) = ask(store, "source_pairs")
    assert (pair["kind"], pair["added"]) == ("same_calls", True)
    assert (pair["first_source"], pair["second_source"]) == ("gateway", "gw")
    # The first 15 calls; 15,105 of the 20,190 tokens of all.
    assert (pair["shared"], pair["difference_tokens"]) == (15, 0)
    assert pair["first_prompt_tokens"] == pair["second_prompt_tokens"] == 15_105
    assert pair["first_cached_tokens"] == pair["second_cached_tokens"] == 15 * 600
    assert hit_ratio(store)["prompt_tokens"] == PROMPT + 15_105 + 1_000


def test_rows_without_ids_of_one_file_are_told_too(store: Store) -> None:
    """They are known by the file's first line and their place in it, under whatever name."""
    rows = [{k: v for k, v in row.items() if k != "request_id"} for row in ROWS]
    load(store, rows, "gateway")
    load(store, rows, "gw")
    (pair,) = ask(store, "source_pairs")
    assert (pair["shared"], pair["first_prompt_tokens"]) == (20, PROMPT)


@pytest.mark.parametrize(
    "changed",
    [{"request_id": "r-1"}, {"attempt": 2}, {"ts": "2026-03-02T12:05:01Z"}],
    ids=str,
)
def test_another_id_attempt_or_time_is_another_call(store: Store, changed: Row) -> None:
    """Ids are unique within a log, not among logs."""
    load(store, ROWS[:1], "gateway")
    load(store, [{**ROWS[0], **changed}], "other")
    assert ask(store, "source_pairs") == []


def test_a_call_of_several_rows_counts_once_in_what_is_compared(store: Store) -> None:
    """The other log has the id of the request in one row and that of the answer in another."""
    load(store, [{**ROWS[0], "response_id": "chatcmpl-a"}], "gateway")
    load(store, [ROWS[0], {**ROWS[0], "request_id": "a", "prompt_tokens": 7}], "other")
    (pair,) = ask(store, "source_pairs")
    assert (pair["shared"], pair["first_prompt_tokens"]) == (1, 1_000)
    assert pair["second_prompt_tokens"] == 1_007


def test_two_logs_of_the_same_calls_are_compared(store: Store) -> None:
    """Gateway and engine both log, and nobody said which is which: they could not be joined."""
    load(store, ROWS, "gateway")
    tap = [{**row, "request_id": f"chatcmpl-{row['request_id']}", "tenant": None,
            "prompt_tokens": int(str(row["prompt_tokens"])) + 2, "replica": "gpu-0"}
           for row in ROWS[:15]]  # fmt: skip
    load(store, tap, "tap")
    (pair,) = ask(store, "source_pairs")
    assert (pair["kind"], pair["first_source"], pair["second_source"]) == (
        "same_calls", "gateway", "tap",
    )  # fmt: skip
    # 15 calls: 15,105 tokens by the gateway, two more of each by the tap.
    assert (pair["shared"], pair["added"]) == (15, True)
    assert (pair["first_prompt_tokens"], pair["second_prompt_tokens"]) == (15_105, 15_135)
    assert (pair["difference_tokens"], pair["cached_difference_tokens"]) == (30, 0)
    assert (pair["since"], pair["until"]) == (NOON, "2026-03-02T12:00:14Z")


def test_joined_logs_are_compared_and_count_once(store: Store) -> None:
    load(store, ROWS, "gateway", defaults={"side": "gateway"})
    tap = [{**row, "prompt_tokens": int(str(row["prompt_tokens"])) + 2} for row in ROWS[:15]]
    load(store, tap, "tap", defaults={"side": "engine"})
    (pair,) = ask(store, "source_pairs")
    assert (pair["kind"], pair["first_source"], pair["second_source"]) == (
        "joined_logs", "gateway", "tap",
    )  # fmt: skip
    assert (pair["shared"], pair["added"], pair["difference_tokens"]) == (15, False, 30)
    assert hit_ratio(store)["requests"] == 20
    sources = {row["source"]: row for row in ask(store, "figure_sources")}
    assert (sources["gateway"]["rows"], sources["gateway"]["joined_rows"]) == (20, 15)
    assert (sources["tap"]["rows"], sources["tap"]["joined_rows"]) == (15, 15)
    assert (sources["gateway"]["prompt_tokens"], sources["tap"]["prompt_tokens"]) == (
        PROMPT, 15_135,
    )  # fmt: skip


def test_equal_ids_far_apart_are_different_calls(store: Store) -> None:
    load(store, ROWS[:3], "one")
    late = [{**row, "ts": f"2026-03-02T12:06:{n:02d}Z"} for n, row in enumerate(ROWS[:3])]
    load(store, late, "two")
    assert ask(store, "source_pairs") == []


def test_which_log_every_row_came_from(store: Store) -> None:
    load(store, [{**row, "cached_tokens": None} for row in ROWS[:5]], "other")
    load(store, ROWS, "gateway")
    load(store, [{**ROWS[0], "request_id": "b", "model": "n"}], "gateway")
    found = {row["source"]: row for row in ask(store, "figure_sources")}
    assert [row["basis"] for row in found.values()] == ["ndjson", "ndjson"]
    assert (found["gateway"]["rows"], found["gateway"]["prompt_tokens"]) == (21, PROMPT + 1_000)
    assert (found["gateway"]["reported_ratio"], found["other"]["reported_ratio"]) == (1, 0)
    assert found["other"]["cached_tokens"] is None
    assert (found["gateway"]["first_ts"], found["gateway"]["last_ts"]) == (
        NOON, "2026-03-02T12:00:19Z",
    )  # fmt: skip
    (only,) = ask(store, "figure_sources", model="n")
    assert (only["source"], only["rows"]) == ("gateway", 1)
    assert ask(store, "figure_sources", since="2026-03-02T13:00:00Z") == []
    assert by_id(store, "gateway").keys() >= {"b"}
