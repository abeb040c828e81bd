"""Which format a log is read as, and what is said about it.

That every format is told by its own rows is shown by the case files, read with `auto`.
"""

import json
from pathlib import Path

import pytest

from exporter.errors import PrefixscopeError
from exporter.sources.formats import FORMATS, format_named
from exporter.sources.formats.detect import detect
from exporter.store.store import Store
from tests.log_path import Row, load, ndjson, requests

USAGE = {"prompt_tokens": 10, "completion_tokens": 2}
ROWS: dict[str, dict[str, object]] = {
    "capture": {"sent_unix": 1772452800, "total_s": 1.0, "usage": USAGE},
    "anthropic": {"id": "m", "type": "message", "usage": {"input_tokens": 1}},
    "openai": {"id": "c", "created": 1772452800, "usage": USAGE},
    "ndjson": {"request_id": "r", "prompt_tokens": 10},
}


@pytest.mark.parametrize("name", ROWS)
def test_format_is_told_by_the_rows_and_the_reason_is_said(name: str) -> None:
    decision = detect(ndjson([ROWS[name]] * 3), "log")
    assert decision.log_format.name == name
    assert decision.because.startswith("3 of 3 sampled rows have ")


def test_majority_decides_and_noise_does_not() -> None:
    noise: list[Row | str | bytes]
    noise = [b"\xff\xfe", "not json", "[]", "null", '"text"', "{}", {"event": "started"}]
    decision = detect(ndjson([*noise, ROWS["openai"], ROWS["openai"], ROWS["ndjson"]]), "log")
    assert decision.log_format.name == "openai"
    assert decision.because == "2 of 5 sampled rows have usage.prompt_tokens"


def test_unknown_rows_are_an_error_that_names_their_keys_and_the_known_formats() -> None:
    with pytest.raises(PrefixscopeError) as caught:
        detect(ndjson([{"level": "info", "msg": "hello"}]), "app.log")
    names = ", ".join(log_format.name for log_format in FORMATS)
    assert str(caught.value) == (
        "app.log: not a request log prefixscope knows. Its rows have the keys: level, msg. "
        f"Known formats: {names}; choose one: --format, format: in the settings, ?format= in the "
        "address"
    )


def test_unknown_name_is_an_error_that_lists_the_known_ones(store: Store) -> None:
    known = ", ".join(["auto", *(log_format.name for log_format in FORMATS)])
    with pytest.raises(PrefixscopeError, match=f"'csv'; known formats: {known}$"):
        load(store, [ROWS["ndjson"]], format="csv")
    assert requests(store) == []
    assert format_named("ndjson").name == "ndjson"


def test_lines_without_any_object_are_rejected_one_by_one(store: Store) -> None:
    summary = load(store, ["plain text", "more of it"], format="auto")
    assert (summary.format, summary.accepted) == ("ndjson", 0)
    assert summary.reasons == {"invalid_json": 2}


def test_deep_nesting_breaks_neither_the_choice_nor_the_reading(store: Store) -> None:
    deep = "[" * 200_000
    summary = load(store, [deep, '{"a":' * 50_000, ROWS["ndjson"]], format="auto")
    assert (summary.format, summary.accepted, summary.rejected) == ("ndjson", 1, 2)


def test_empty_input_is_no_error(store: Store) -> None:
    summary = load(store, b"", format="auto")
    assert (summary.accepted, summary.rejected) == (0, 0)
    assert summary.token_hit_ratio is summary.coverage_ratio is None


def test_chosen_format_is_believed(store: Store) -> None:
    summary = load(store, [ROWS["openai"]], format="ndjson")
    assert (summary.format, summary.decided_because) == ("ndjson", "chosen by name")


def test_a_first_row_longer_than_the_sample_does_not_hide_the_format(
    store: Store, tmp_path: Path
) -> None:
    long = {**ROWS["openai"], "choices": [{"text": "x" * (3 << 18)}]}
    path = tmp_path / "long.jsonl"
    path.write_text("".join(json.dumps({**long, "id": f"c{n}"}) + "\n" for n in range(2)))
    summary = load(store, path.read_bytes(), format="auto")
    assert (summary.format, summary.accepted, summary.prompt_tokens) == ("openai", 2, 20)
