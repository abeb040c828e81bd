"""`explain` in the terminal: the change, its parts in words, and the rows for programs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dashboard.explained import NOTHING_TO_COMPARE, change_words, part_words
from dashboard.figures.safe import plain

Cli = Callable[..., Any]
DAYS = ("--since", "2026-03-02", "--until", "2026-03-03", "--baseline", "2026-03-01")


@pytest.fixture
def store(cli: Cli, tmp_path: Path) -> Path:
    """The day before: a 800 of 1000, b 100 of 1000. The day: a 1500 of 3000, b and c 100 of 500."""
    log = tmp_path / "log.jsonl"
    counts = [
        ("2026-03-01", "a", 1000, 800), ("2026-03-01", "b", 1000, 100),
        ("2026-03-02", "a", 3000, 1500), ("2026-03-02", "b", 500, 100),
        ("2026-03-02", "c", 500, 100),
    ]  # fmt: skip
    rows = [
        {"request_id": f"r{place}", "ts": f"{day}T12:00:00Z", "tenant": tenant,
         "prompt_tokens": prompt, "cached_tokens": cached}
        for place, (day, tenant, prompt, cached) in enumerate(counts)
    ]  # fmt: skip
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = cli("ingest", log, "--store", tmp_path / "store", "--format", "ndjson")
    assert done.status == 0, done.err
    return tmp_path / "store"


def test_says_the_change_once_and_its_parts_along_every_dimension(cli: Cli, store: Path) -> None:
    """575, -550 and -125 of 4000 tokens: by hand in unit_queries/cases/explain_mix_and_within."""
    done = cli("explain", *DAYS, "--store", store)
    assert done.status == 0, done.err
    change, *parts = done.out.splitlines()
    assert change == (
        "Token hit ratio 42.5 %, 45.0 % before: -2.5 points, 100 tokens more computed than at the "
        "earlier ratio."
    )
    assert parts[2] == (
        "By tenant: b +14.4 points (its share of the traffic 50.0 % → 12.5 %, at 10.0 %); "
        "a -13.8 points (its ratio 80.0 % → 50.0 %); "
        "c -3.1 points (new: 12.5 % of the traffic at 20.0 %)."
    )
    assert parts[0] == "By template: (not given) -2.5 points (its ratio 45.0 % → 42.5 %)."
    assert len(parts) == 5


def test_rows_for_programs_need_one_dimension(cli: Cli, store: Path) -> None:
    done = cli("explain", *DAYS, "--by", "tenant", "--output", "json", "--store", store)
    rows = {row["tenant"]: row for row in json.loads(done.out)}
    assert sum(row["change_tokens"] for row in rows.values()) == -100
    assert rows["a"]["within_tokens"] == -900
    refused = cli("explain", *DAYS, "--output", "json", "--store", store)
    assert refused.status == 2
    assert "give --by" in refused.err


def test_unknown_dimension_names_the_known_ones(cli: Cli, store: Path) -> None:
    refused = cli("explain", "--by", "moon", "--store", store)
    assert refused.status == 2
    assert "template_version" in refused.err


def test_nothing_before_is_said(cli: Cli, store: Path) -> None:
    done = cli("explain", "--since", "2026-03-01", "--until", "2026-03-02", "--store", store)
    assert done.out == f"{NOTHING_TO_COMPARE}\n"
    assert change_words([]) == NOTHING_TO_COMPARE


def test_gone_segments_and_the_rest_are_told() -> None:
    rows = [
        {"t": "x", "change_tokens": -300, "within_tokens": 0, "mix_tokens": -300,
         "seen": "vanished", "change_ratio": -0.3, "traffic_share_ratio_before": 0.4,
         "token_hit_ratio_before": 0.9},
        {"t": "y", "change_tokens": -20, "within_tokens": -20, "mix_tokens": 0, "seen": "both",
         "change_ratio": -0.02, "token_hit_ratio": 0.1, "token_hit_ratio_before": 0.2},
        {"t": "z", "change_tokens": 0, "change_ratio": 0.0, "seen": "both"},
        {"t": "q", "change_tokens": 0, "change_ratio": 0.0004, "seen": "both"},
    ]  # fmt: skip
    assert part_words("t", rows, plain) == (
        "By t: x -30.0 points (gone: was 40.0 % of the traffic at 90.0 %); "
        "y -2.0 points (its ratio 20.0 % → 10.0 %); 2 more together 0.0 points."
    )
    assert part_words("t", rows[2:], plain) == ""
