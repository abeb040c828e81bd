"""Damaged rows of every format by the ordinary way: all accounted for, nothing out of range.

Formats share a store, as they do in life. `make fuzz` takes hundreds of times as many.
"""

import json
from pathlib import Path
from random import Random

import pytest

from exporter.sources.formats import FORMATS
from exporter.sources.formats.mapping import LogFormat
from exporter.store.store import Store
from tests.fuzz import rows, seeds, stored_pages
from tests.log_path import SMALL, by_id, load, shared_store

__all__ = ["shared_store"]

ROWS = 40


@pytest.mark.parametrize("log_format", FORMATS, ids=lambda log_format: log_format.name)
def test_damaged_rows_are_accounted_for_and_within_range(
    shared_store: Store, log_format: LogFormat
) -> None:
    chance = Random(log_format.name)
    way, origin = chance.choice(((log_format.name, "file"), ("auto", "http")))
    rows.check(shared_store, rows.batch(log_format, ROWS, chance), way, log_format.name, origin)


def test_damaged_pages_are_accounted_for_and_within_range(tmp_path: Path) -> None:
    chance, store = Random(5), Store.open(tmp_path / "store", SMALL)
    for number in range(4):
        stored_pages.check(store, tmp_path / f"target-{number}", stored_pages.batch(chance, 8))
    store.close()


def test_figures_of_damaged_rows_are_figures_and_no_prompt_is_kept(tmp_path: Path) -> None:
    chance, store = Random(11), Store.open(tmp_path / "store", SMALL)
    for log_format in FORMATS[2::9]:
        rows.check(store, rows.batch(log_format, ROWS, chance), log_format.name, "s", "file")
    rows.check_tables(store)
    rows.check_figures(store)
    store.close()
    rows.check_secrets(tmp_path / "store")


# --------------------------------------------------- the checks themselves can fail


def test_prompts_are_put_into_rows_and_found_where_they_must_not_be(tmp_path: Path) -> None:
    known = next(entry for entry in FORMATS if entry.name == "ndjson")
    row = json.loads(seeds.with_prompts(b'{"request_id": "r", "prompt_tokens": 1}', known))
    assert row["messages"][0]["content"] == seeds.CANARY
    store = Store.open(tmp_path / "store", SMALL)
    load(store, [{**row, "tenant": seeds.CANARY}])
    with pytest.raises(AssertionError):
        rows.check_tables(store)
    with pytest.raises(AssertionError):
        rows.check_rows(store, 0)
    store.close()
    with pytest.raises(AssertionError):
        rows.check_secrets(tmp_path / "store")


def test_a_row_that_is_lost_is_noticed(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", SMALL)
    data = b'{"request_id": "r", "prompt_tokens": 1}\n\n{"request_id": "r"\n' + b" " * 20
    summary = rows.ingest(store, data, "ndjson", "s")
    assert summary is not None
    assert (summary.accepted, summary.rejected) == (1, 2)
    rows.check_accounts(summary, data)
    assert list(by_id(store)) == ["r"]
    store.close()
    for odd in (data + b"\n{}", data[:40]):
        with pytest.raises(AssertionError):
            rows.check_accounts(summary, odd)
