"""`attribute`: every missed token of a log, a trace or a store, by exactly one cause."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporter.store.store import Store
from replay.hashes import chain_hashes, content_hashes
from tests.log_path import CAPTURES, NOON, SHARED, SMALL, ndjson, needs_captures
from tests.log_path import load as load_rows

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out

MOONCAKE = SHARED / "traces" / "mooncake-fast25" / "conversation_trace.jsonl.gz"
VLLM = CAPTURES / "vllm-0.32.0"
GRAIN = 16

needs_traces = pytest.mark.skipif(
    not MOONCAKE.exists(), reason="public traces are not beside the project"
)


def answer(cli: Cli, *arguments: object) -> dict[str, Any]:
    done = cli("attribute", *arguments, "--output", "json")
    assert done.status == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    for each in (found, *found.get("groups", [])):
        assert each["cached_tokens"] + sum(each["causes"].values()) == each["prompt_tokens"]
    return found


def percent(found: dict[str, Any], *names: str) -> float:
    tokens = sum(found["causes"].get(name, found.get(name)) for name in names)
    return float(100 * tokens / found["prompt_tokens"])


@needs_traces
@pytest.mark.parametrize(
    ("capacity_blocks", "cached", "never_seen", "evicted"),
    [(10_000, 21.575, 62.638, 15.788), (50_000, 36.153, 62.638, 1.209)],
)
def test_a_bare_trace_pooled(
    cli: Cli, capacity_blocks: int, cached: float, never_seen: float, evicted: float
) -> None:
    found = answer(cli, MOONCAKE, "--rule", "partial", "--capacity-blocks", capacity_blocks)
    assert found["prompt_tokens"] == 144_793_823
    assert found["cached_tokens_are"] == "modelled"
    assert percent(found, "cached_tokens") == pytest.approx(cached, abs=0.0006)
    assert percent(found, "new", "layout") == pytest.approx(never_seen, abs=0.0006)
    assert percent(found, "evicted") == pytest.approx(evicted, abs=0.0006)


@needs_traces
@pytest.mark.parametrize(
    ("rule", "cached", "evicted", "routed", "never_seen", "rounding"),
    [("partial", 12.39, 7.17, 17.81, 62.64, 0.0), ("full", 12.60, 6.95, 17.79, 60.42, 2.24)],
)
def test_a_bare_trace_on_four_replicas(
    cli: Cli,
    rule: str,
    cached: float,
    evicted: float,
    routed: float,
    never_seen: float,
    rounding: float,
) -> None:
    found = answer(
        cli, MOONCAKE, "--rule", rule, "--replicas", 4, "--capacity-blocks", 5000,
        "--router", "round-robin", "--by", "replica",
    )  # fmt: skip
    names = (("cached_tokens",), ("evicted",), ("routed",), ("new", "layout"), ("rounding",))
    for name, expected in zip(names, (cached, evicted, routed, never_seen, rounding), strict=True):
        assert percent(found, *name) == pytest.approx(expected, abs=0.006), name
    assert {group["replica"] for group in found["groups"]} == {"0", "1", "2", "3"}
    assert sum(group["prompt_tokens"] for group in found["groups"]) == found["prompt_tokens"]


@needs_captures
def test_a_log_with_token_ids_and_what_its_events_add(cli: Cli) -> None:
    log, events = VLLM / "main" / "requests.jsonl", VLLM / "main" / "kv-events.decoded.jsonl"
    alone = answer(cli, log, "--block-tokens", 32, "--capacity-blocks", 511)
    told = answer(cli, log, events, "--by", "tenant")
    assert alone["cached_tokens_are"] == "observed"
    assert (alone["prompt_tokens"], alone["cached_tokens"]) == (43_832, 29_696)
    assert (alone["causes"]["evicted"], alone["causes"]["reset"]) == (768, 0)
    assert (told["causes"]["evicted"], told["causes"]["reset"]) == (0, 768)
    assert alone["causes"]["unexplained"] == told["causes"]["unexplained"] == 0
    assert alone["model"]["differing_requests"] == 1
    assert {group["tenant"] for group in told["groups"]} == {"acme", "birch", "cedar", ""}


@needs_captures
def test_ranks_that_a_log_does_not_name_are_told_by_their_events(cli: Cli) -> None:
    found = answer(
        cli, VLLM / "dp2" / "requests.jsonl", VLLM / "dp2" / "kv-events.decoded.jsonl",
        "--by", "replica",
    )  # fmt: skip
    assert found["causes"]["routed"] == 5344
    assert [group["replica"] for group in found["groups"]] == ["dp2/0", "dp2/1"]


def row(number: int, blocks: list[int], **more: object) -> dict[str, object]:
    tokens = [content * GRAIN + place for content in blocks for place in range(GRAIN)]
    return {
        "ts": f"2026-03-02T12:00:{number:02}Z",
        "request_id": str(number),
        "model": "m",
        "replica": "a",
        "prompt_tokens": len(tokens) + 1,
        "cached_tokens": 0,
        "block_hashes": chain_hashes(tokens, GRAIN),
        "content_hashes": content_hashes(tokens, GRAIN),
        "hash_scope": "global",
        "hash_key_id": "0123abcd",
        "e2e_seconds": 0.5,
    } | more


def test_a_store_answers_with_the_rows_it_has(cli: Cli, tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", SMALL)
    load_rows(
        store,
        [
            row(1, [1, 2, 3]),
            row(2, [1, 2, 3]),
            row(3, [1, 2, 4], replica="b", cached_tokens=None),
            row(4, [1, 2, 4], replica="a", route="chat", cached_tokens=16),
        ],
    )
    store.close()
    found = answer(cli, "--store", tmp_path / "store", "--by", "route")
    # One request of 49 tokens reports nothing; of 147 others 16 were cached.
    assert (found["prompt_tokens"], found["cached_tokens"]) == (147, 16)
    assert (found["unreported_requests"], found["unreported_prompt_tokens"]) == (1, 49)
    causes = {name: tokens for name, tokens in found["causes"].items() if tokens}
    # 48 new; 48 that were there; then 16 of 32 there, and 16 that only b computed.
    assert causes == {"new": 48, "evicted": 64, "routed": 16, "rounding": 3}
    hours = answer(cli, "--store", tmp_path / "store", "--by", "hour")["groups"]
    assert [(hour["hour"], hour["prompt_tokens"]) for hour in hours] == [
        ("2026-03-02T12:00:00Z", 147)
    ]
    later = answer(
        cli, "--store", tmp_path / "store", "--since", "2026-03-02T12:00:04Z", "--by", "replica"
    )
    # The rows before it are history: the last request misses what it missed in the whole.
    causes = {name: tokens for name, tokens in later["causes"].items() if tokens}
    assert causes == {"evicted": 16, "routed": 16, "rounding": 1}
    assert later["unreported_requests"] == 0
    assert [group["replica"] for group in later["groups"]] == ["a"]


def test_a_model_is_compared_within_the_window_only(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(ndjson([row(1, [1, 2]), row(9, [1, 2], cached_tokens=32)]))
    found = answer(cli, log, "--since", "2026-03-02T12:00:05Z", "--capacity-blocks", 10)
    # What the first request left there is known: it is no request that is counted.
    assert (found["requests"], found["cached_tokens"], found["warm_before_log_tokens"]) == (
        1, 32, 0,
    )  # fmt: skip
    compared = found["model"]
    assert (compared["requests"], compared["predicted_tokens"]) == (1, 32)
    assert compared["differing_requests"] == 0


def test_t88_losses_to_routing_and_to_layout_are_told_apart(cli: Cli, tmp_path: Path) -> None:
    """One conversation of nine turns, prompts of 1,000, 1,100, … 1,800 tokens: round robin over
    three replicas loses 26.2 points. Blocks of 20 tokens stand in for single ones."""
    trace = tmp_path / "trace.jsonl"
    turns = [
        row(turn, [], prompt_tokens=1000 + 100 * turn, cached_tokens=None, content_hashes=None,
            block_hashes=list(range(50 + 5 * turn)), block_size=20, hash_key_id=None)
        for turn in range(9)
    ]  # fmt: skip
    trace.write_bytes(ndjson(turns))
    one = answer(cli, trace, "--rule", "partial")
    three = answer(cli, trace, "--rule", "partial", "--replicas", 3)
    assert (one["prompt_tokens"], one["cached_tokens"], one["causes"]["new"]) == (
        12600,
        10800,
        1800,
    )
    assert (three["cached_tokens"], three["causes"]["routed"]) == (7500, 3300)
    assert three["causes"]["new"] == 1800
    lost = percent(one, "cached_tokens") - percent(three, "cached_tokens")
    assert lost == pytest.approx(26.2, abs=0.05)


def test_a_table_for_people_and_rows_for_programs(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(ndjson([row(1, [1, 2]), row(2, [1, 2], cached_tokens=None)]))
    shown = cli("attribute", log).out
    assert "new" in shown
    assert "never seen before" in shown
    assert "1 request tells no cached tokens: of 33 prompt tokens" in shown
    assert "older than they are" in shown
    assert "no chain" not in shown
    (found,) = csv.DictReader(io.StringIO(cli("attribute", log, "--output", "csv").out))
    assert (found["prompt_tokens"], found["new_tokens"], found["rounding_tokens"]) == (
        "33", "32", "1",
    )  # fmt: skip


def test_what_takes_long_says_what_it_does(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(ndjson([row(1, [1, 2]), row(2, [1, 2])]))
    quick = cli("attribute", log, "--output", "json")
    assert "Reading" not in quick.err
    assert "Naming" not in quick.err
    monkeypatch.setattr("prefixscope.file_rows._LONG_BYTES", log.stat().st_size)
    monkeypatch.setattr("prefixscope.commands.attribute._LONG_ROWS", 2)
    long = cli("attribute", log, "--output", "json")
    said = " ".join(long.err.split())
    assert 0 <= said.index(f"Reading {log}") < said.index("Naming the causes of 2 requests")
    assert long.out == quick.out


def test_rows_without_chains_are_named_beside_those_with(cli: Cli, tmp_path: Path) -> None:
    """The same two populations as `waterfall` has: 49 prompt tokens with chains, 33 without."""
    log, bare = tmp_path / "log.jsonl", row(1, [8, 9], cached_tokens=16)
    bare |= {"block_hashes": None, "content_hashes": None, "ts": "2026-02-20T12:00:00Z"}
    log.write_bytes(ndjson([bare, row(2, [1, 2, 3], cached_tokens=32)]))
    shown = " ".join(cli("attribute", log).out.split())
    assert "1 request has no chain: 33 prompt tokens are counted" in shown
    assert "32 cached tokens of requests with a chain were there before the log began" in shown
    assert "16 of the new tokens came within 7 days of the first row with a chain" in shown
    found = answer(cli, log)
    assert (found["chainless_requests"], found["chainless_prompt_tokens"]) == (1, 33)
    assert (found["warm_before_log_tokens"], found["warming"]) == (32, True)
    assert cli("ingest", log, "--store", tmp_path / "store").status == 0
    asked = cli("query", "waterfall", "--store", tmp_path / "store", "--output", "json")
    (kept,) = json.loads(asked.out)
    assert (kept["chainless_prompt_tokens"], kept["prompt_tokens"]) == (33, 49)
    assert (kept["new_tokens"], kept["new_warming_tokens"]) == (16, 16)


def test_wrong_words_and_missing_chains_say_what_to_do(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(ndjson([{"ts": NOON, "prompt_tokens": 10, "cached_tokens": 0}]))
    bare = cli("attribute", log)
    assert bare.status == 1
    assert "no row has a chain" in bare.err
    for option in ("--by", "--rule", "--router", "--format"):
        refused = cli("attribute", log, option, "moon")
        assert refused.status == 2, option
        assert "known:" in refused.err
    assert cli("attribute", log, "--store", tmp_path).status == 2
    chained = tmp_path / "chained.jsonl"
    chained.write_bytes(ndjson([row(1, [1, 2])]))
    unfit = cli("attribute", chained, "--block-tokens", 24)
    assert unfit.status == 1
    assert "--block-tokens" in unfit.err


def test_a_wrong_time_is_wrong_usage_before_anything_is_loaded(cli: Cli, tmp_path: Path) -> None:
    for place in ([tmp_path / "no-such.jsonl"], ["--store", tmp_path / "no-store"]):
        for option in ("--since", "--until"):
            refused = cli("attribute", *place, option, "yesterday")
            assert refused.status == 2, place
            assert "'yesterday' is not a time" in refused.err


def test_what_could_not_be_read_is_said_with_its_reason(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    good = row(1, [1, 2])
    odd = row(2, [1, 2], cached_tokens=99)
    log.write_bytes(ndjson([good, '{"prompt_tokens": 5,', odd, good]))
    shown = cli("attribute", log).err
    assert "ndjson, 2 rows, 1 duplicate, 1 rejected (1 invalid_json)" in shown
    assert "flagged (1 cached_impossible)" in shown
    place = len(ndjson([good]))
    assert f"invalid_json, the latest at byte {place:,}; correct the line" in shown
    assert "prompt_tokens" not in shown


def test_the_reason_why_nothing_is_explained_is_the_true_one(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"

    def refused(rows: list[dict[str, object] | str], *options: str) -> str:
        log.write_bytes(ndjson(rows))
        done = cli("attribute", log, *options, "--format", "ndjson")
        assert done.status == 1
        return str(done.err)

    broken = refused(["{"])
    assert "1 rejected (1 invalid_json)" in broken
    assert "there are no requests" in broken
    assert "none of 1 request lies between --since and --until" in refused(
        [row(1, [1])], "--since", "2026-03-03"
    )
    bare = row(1, [1, 2]) | {"prompt_tokens": None}
    untold = refused([bare])
    assert "none of 1 request tells its prompt tokens" in untold
    assert "--tokenizer" in untold
    assert "no row has a chain" in refused([row(1, [1]) | {"block_hashes": None}])


@needs_captures
def test_options_and_events_that_play_no_part_are_named(cli: Cli, tmp_path: Path) -> None:
    log, bare = tmp_path / "log.jsonl", tmp_path / "bare.jsonl"
    log.write_bytes(ndjson([row(1, [1, 2])]))
    bare.write_bytes(ndjson([row(1, [1, 2], cached_tokens=None)]))
    told = "play no part: rows that tell cached tokens"
    assert told in cli("attribute", log, "--replicas", 2).err
    assert told in cli("attribute", log, "--router", "round-robin").err
    assert "--router plays no part" in cli("attribute", bare, "--router", "round-robin").err
    quiet = cli("attribute", bare, "--replicas", 2, "--router", "round-robin").err
    assert "no part" not in quiet + cli("attribute", log).err
    first = json.loads((VLLM / "main" / "requests.jsonl").read_text().splitlines()[0])
    del first["usage"]["prompt_tokens_details"]
    log.write_text(json.dumps(first) + "\n")
    events = VLLM / "main" / "kv-events.decoded.jsonl"
    assert "The events play no part" in cli("attribute", log, events).err


CANARY = 987_654_321


def test_token_ids_of_a_log_become_names_and_reach_no_disk(tmp_path: Path) -> None:
    ids = [CANARY + place for place in range(64)]
    good = {"sent_unix": 1772452800.0, "id": "r1", "usage": {"prompt_tokens": 64}, "total_s": 1,
            "cache_salt": "s4lt", "prompt_token_ids": ids}  # fmt: skip
    odd = good | {"id": "r2", "prompt_token_ids": [*ids, "x"]}
    folder = tmp_path / "store"
    store = Store.open(folder, SMALL)
    load_rows(store, [good, odd, json.dumps(good)[:-40]], format="capture")
    scope = [hashes for (hashes,) in store.cursor().execute(
        "SELECT block_hashes FROM requests ORDER BY request_id").fetchall()]  # fmt: skip
    assert [hashes and len(hashes) for hashes in scope] == [4, None]
    cursor = store.cursor()
    for (table,) in cursor.execute("SELECT table_name FROM duckdb_tables()").fetchall():
        for stored in cursor.execute(f'SELECT * FROM "{table}"').fetchall():
            assert str(CANARY)[:6] not in str(stored), table
            assert "s4lt" not in str(stored), table
    store.close()
    for file in folder.rglob("*"):
        if file.is_file():
            assert str(CANARY)[:6].encode() not in file.read_bytes(), file


@needs_captures
def test_events_of_other_replicas_or_keys_are_refused(cli: Cli, tmp_path: Path) -> None:
    events = VLLM / "main" / "kv-events.decoded.jsonl"
    log, tapped = tmp_path / "log.jsonl", tmp_path / "tapped.jsonl"
    first = json.loads((VLLM / "main" / "requests.jsonl").read_text().splitlines()[0])
    log.write_text(json.dumps(first | {"replica": "pod-7"}) + "\n")
    tapped.write_bytes(ndjson([row(1, [1, 2])]))
    other = cli("attribute", log, events)
    assert (other.status, "tell of main and the rows of pod-7" in other.err) == (1, True)
    assert "folder named as its replica" in other.err
    assert "another key" in cli("attribute", tapped, events).err
    # Beside rows that tell no cached tokens they play no part, whatever they tell of.
    prompts = enumerate(([1, 2], [1, 2, 3, 4]))
    tapped.write_bytes(ndjson([row(turn, each, cached_tokens=None) for turn, each in prompts]))
    modelled = cli("attribute", tapped, events, "--output", "json")
    assert "The events play no part" in modelled.err
    # Of 33 tokens both blocks are new; of 65 they are there, and two more are new.
    causes = {name: tokens for name, tokens in json.loads(modelled.out)["causes"].items() if tokens}
    assert (modelled.status, causes) == (0, {"new": 64, "rounding": 2})
    assert "events alone" in cli("attribute", events).err


@needs_captures
def test_nothing_shown_holds_token_ids(cli: Cli, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    lines = (VLLM / "main" / "kv-events.decoded.jsonl").read_bytes().splitlines()
    events.write_bytes(b"\n".join([lines[0], lines[1][:-200], lines[2]]))
    done = cli("attribute", VLLM / "main" / "requests.jsonl", events)
    assert "1623, 573" in lines[0].decode()
    assert "no message" in done.err or "no recorded message" in done.err
    assert "1623" not in done.out + done.err
