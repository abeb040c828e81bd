"""What chunks of text make of prompts whose tokens are known: how far off they are."""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.store.store import Store
from prefixscope.waterfall.attribution import Assumed, Sums, waterfall
from queries import registry
from replay.causes import CAUSES
from tests.log_path import CAPTURES, SHARED, load

WORKLOAD = SHARED / "engine" / "workload.py"
REQUESTS = CAPTURES / "vllm-0.32.0" / "main" / "requests.jsonl"
pytestmark = pytest.mark.skipif(
    not (WORKLOAD.exists() and REQUESTS.exists()), reason="captures and what was sent are not here"
)


def recorded() -> Iterator[dict[str, Any]]:
    """The requests of a capture with their messages: the script sends the same every time."""
    spec = importlib.util.spec_from_file_location("workload", WORKLOAD)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    sent = [each for _, requests, _ in script.PLANS["mixed"]() for each in requests]
    for line in Path(REQUESTS).read_text().splitlines():
        row = json.loads(line)
        if row["index"] < len(sent):
            yield row | {"request": {"messages": sent[row["index"]]["messages"]}}


def explained(store: Store, rows: list[dict[str, Any]], source: str) -> tuple[Sums, int]:
    store.cursor().execute("DELETE FROM requests")
    load(store, rows, source, format="capture")
    table = registry.run(store.cursor(), "request_chains", {})
    found = waterfall(table, Assumed(block_tokens=32))
    return found.total, found.approximate_requests


def test_causes_by_text_are_near_those_by_token_ids(store: Store) -> None:
    rows = list(recorded())
    texts = [{**row, "prompt_token_ids": None} for row in rows]
    exact, none = explained(store, rows, "ids")
    about, all_of_them = explained(store, texts, "texts")
    assert (none, all_of_them) == (0, len(rows))
    assert about.prompt_tokens == exact.prompt_tokens == 42_264
    assert about.cached_tokens == exact.cached_tokens
    assert sum(about.causes.values()) == sum(exact.causes.values())
    for cause in CAUSES:
        apart = abs(about.causes[cause] - exact.causes[cause])
        assert apart <= 0.012 * exact.prompt_tokens, cause
    # No reset, no other replica, nothing lost: whatever is off, these causes cannot appear.
    assert {about.causes[name] for name in ("reset", "routed", "concurrent", "redeployed")} == {0}
