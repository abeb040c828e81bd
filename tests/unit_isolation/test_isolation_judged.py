"""What scopes cost, told every hour from the latest rows of a store."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from exporter.isolation.judge import IsolationWatch, judge_isolation, judge_newest_scopes
from exporter.isolation.settings import IsolationSettings
from exporter.store.store import Store
from tests.log_path import CAPTURES, SMALL, ask, load, needs_captures

RECORDING = Path(__file__).parent / "llama_two_tenants" / "tap.ndjson"
UNTIL = datetime(2026, 3, 2, 13)  # noqa: DTZ001 - times of the store are UTC without a zone


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "store", SMALL)
    yield opened
    opened.close()


def recorded(start: datetime = UNTIL - timedelta(hours=1)) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in RECORDING.read_text().splitlines()]
    moments = [start.replace(tzinfo=UTC) + timedelta(seconds=number) for number in range(len(rows))]
    return [row | {"ts": ts.isoformat()} for row, ts in zip(rows, moments, strict=True)]


def test_who_shares_with_whom_and_what_is_public(store: Store) -> None:
    load(store, recorded())
    judge_isolation(store, UNTIL, IsolationSettings(least_tenants=4))
    rows = ask(store, "isolation")
    # 31 whole blocks of a prompt of 500 tokens, which acme sent first. llama.cpp served them, so
    # that no token was lost.
    told = {row["tenants"]: (row["other_tenants"], row["merged_tokens"]) for row in rows}
    assert told == dict.fromkeys(("birch", "cedar", "no salt"), ("acme", 496))
    assert {row["isolated_tokens"] for row in rows} == {0}
    longest, shorter = ask(store, "public_prefixes")
    assert (longest["tokens"], longest["callers"], longest["requests"]) == (496, 4, 5)
    assert longest["won_tokens"] == 3 * 496
    assert (shorter["tokens"], shorter["requests"]) == (192, 1)
    assert longest["first_ts"] == "2026-03-02T12:00:00Z"
    # The next audit is told instead: of a day without rows there is nothing to tell.
    judge_isolation(store, UNTIL + timedelta(days=3), IsolationSettings())
    assert ask(store, "isolation") == ask(store, "public_prefixes") == []


def test_of_files_without_an_exporter_the_newest_day_is_looked_at(store: Store) -> None:
    judge_newest_scopes(store, IsolationSettings())
    assert ask(store, "isolation") == [], "a store without rows has nothing to look at"
    load(store, recorded())
    judge_newest_scopes(store, IsolationSettings())
    assert [row["merged_tokens"] for row in ask(store, "isolation")] == [496] * 3


def test_no_more_than_the_latest_rows_are_looked_at(store: Store) -> None:
    """The last request has 36 blocks and as many contents, the one before 31."""
    load(store, recorded())
    for hashes, others in ((71, 0), (1_000_000, 3)):
        judge_isolation(store, UNTIL, IsolationSettings.model_construct(most_hashes=hashes))
        assert len(ask(store, "isolation")) == others


def test_a_prompt_too_long_to_be_looked_at_hides_no_other(store: Store) -> None:
    rows = recorded()
    hashes = sum(len(row["block_hashes"]) + len(row["content_hashes"]) for row in rows)
    long = {"block_hashes": [*range(1, hashes + 2)], "content_hashes": None}
    load(store, [*rows, rows[0] | long | {"ts": "2026-03-02T12:30:00Z", "request_id": "long"}])
    judge_isolation(store, UNTIL, IsolationSettings.model_construct(most_hashes=hashes))
    assert [row["merged_tokens"] for row in ask(store, "isolation")] == [496] * 3


def test_rows_without_chains_are_not_read(store: Store) -> None:
    rows = recorded()
    bare = {"block_hashes": None, "content_hashes": None, "tenant": "chainless"}
    load(store, [*rows, rows[0] | bare | {"ts": "2026-03-02T12:30:00Z", "request_id": "bare"}])
    audit = judge_isolation(store, UNTIL, IsolationSettings())
    assert audit is not None
    assert len(audit.table) == len(rows)
    assert [row["merged_tokens"] for row in ask(store, "isolation")] == [496] * 3


def test_one_scope_has_nothing_to_tell(store: Store) -> None:
    load(store, [row | {"scope": "a" * 16} for row in recorded()])
    assert judge_isolation(store, UNTIL, IsolationSettings()) is None


@needs_captures
def test_what_vllm_kept_apart(store: Store) -> None:
    rows = (CAPTURES / "vllm-0.32.0" / "main" / "requests.jsonl").read_bytes()
    load(store, rows, format="capture")
    (last,) = store.cursor().execute("SELECT max(ts) FROM requests").fetchone() or (None,)
    judge_isolation(store, last + timedelta(seconds=1), IsolationSettings())
    found = ask(store, "isolation")
    # 3,520 by the engine's blocks of 32, of which the log tells nothing; by 16, one more of the
    # template of 722 tokens, in two scopes.
    assert sum(row["isolated_tokens"] for row in found) == 3_520 + 2 * 16
    assert sum(row["merged_tokens"] for row in found) == 3_520 + 2 * 16


def test_the_watch_looks_and_goes_on(store: Store) -> None:
    watch = IsolationWatch(store, IsolationSettings())
    assert watch.pause_seconds() == 600
    load(store, recorded(datetime.now(UTC).replace(tzinfo=None) - timedelta(minutes=5)))
    watch.do_once()
    assert watch.pause_seconds() == 3_600
    assert len(ask(store, "isolation")) == 3
