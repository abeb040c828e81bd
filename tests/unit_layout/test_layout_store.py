"""Layout of the templates in a store: what is looked at, kept and answered."""

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from exporter.layout_found import sample
from exporter.layout_found.judge import judge_layout, judge_newest
from exporter.store.store import Store
from queries import registry
from replay.byte_chunks import text_chain, text_contents
from replay.hashes import chain_hashes, content_hashes

KEY = "a key of these tests"
NOON = datetime(2026, 11, 30, 12)  # noqa: DTZ001 - times of the store are UTC without a zone
NEXT_DAY = NOON + timedelta(hours=20)
Row = dict[str, object]


def text(name: str, tokens: int) -> list[int]:
    draw = random.Random(name)
    return [draw.randrange(10, 50_000) for _ in range(tokens)]


def support(number: int) -> list[int]:
    """A clock of six tokens behind 50, then 430 of instructions: tokens 64 to 480 are whole blocks
    of these; a question."""
    return [*text("support", 50), *text(f"clock {number}", 6), *text("instructions", 430),
            *text(f"question {number}", 70)]  # fmt: skip


def requests(
    template: str | None, prompts: list[list[int]], first: datetime, **columns: object
) -> list[Row]:
    return [
        {
            "ts": first + timedelta(seconds=10 * number), "template": template, "model": "m",
            "prompt_tokens": len(ids), "cached_tokens": 0, "output_tokens": 9, "replica": "r",
            "block_size": 16, "hash_key_id": "k", "hash_scope": "global",
            "block_hashes": chain_hashes(ids, 16, "", KEY),
            "content_hashes": content_hashes(ids, 16, KEY), **columns,
        }
        for number, ids in enumerate(prompts)
    ]  # fmt: skip


def put(store: Store, rows: list[Row]) -> None:
    fixed = {"source": "log", "source_format": "test", "attempt": 1, "status": "ok",
             "outcome": "miss", "prompt_basis": "inclusive", "batch": 1}  # fmt: skip
    full = [
        {**fixed, "arrived": row["ts"], "position": number, **row}
        for number, row in enumerate(rows)
    ]
    hashes = pa.list_(pa.uint64())
    types = {"block_hashes": hashes, "content_hashes": hashes, "text_bytes": pa.int64()}
    names = dict.fromkeys(name for row in full for name in row)
    table = pa.table(
        {name: pa.array([row.get(name) for row in full], types.get(name)) for name in names}
    )
    with store.write() as cursor:
        cursor.register("rows", table)
        cursor.execute("DELETE FROM requests")
        cursor.execute("INSERT INTO requests BY NAME SELECT * FROM rows")
        cursor.unregister("rows")


def ask(store: Store, name: str, **params: object) -> list[Row]:
    return registry.rows(registry.run(store.cursor(), name, params))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    directory: Path = tmp_path_factory.mktemp("layout")
    store = Store.open(directory)
    yield store
    store.close()


@pytest.fixture
def store(opened: Store) -> Store:
    """With 30 requests of a template that has a clock, 20 of one that has none, 12 without a
    template that begin with a clock; and some that are not to be looked at."""
    clean = [text("billing", 400) + text(f"own {number}", 90) for number in range(20)]
    unnamed = [text(f"at {number}", 8) + text("unnamed", 300) for number in range(12)]
    put(
        opened,
        [
            *requests("support", [support(number) for number in range(30)], NOON),
            *requests("billing", clean, NOON),
            *requests(None, unnamed, NOON),
            *requests("support", [support(number) for number in range(100, 105)],
                      NOON - timedelta(days=2)),
        ],
    )  # fmt: skip
    return opened


def test_findings_of_every_template_and_of_requests_without_one(store: Store) -> None:
    judge_layout(store, NEXT_DAY)
    found, unnamed = ask(store, "layout")
    assert (found["template"], found["kind"], found["frequency"]) == (
        "support",
        "unknown",
        "request",
    )
    assert (found["from_token"], found["until_token"], found["segment"]) == (48, 64, "")
    assert (found["requests"], found["template_requests"], found["share_ratio"]) == (30, 30, 1.0)
    # Tokens 64 to 480 of all but the first; of 30 prompts of 556 tokens.
    assert (found["gain_tokens"], found["prompt_tokens"]) == (29 * 416, 30 * 556)
    assert found["gain_ratio"] == pytest.approx(29 * 416 / (30 * 556))
    assert (found["since"], found["warm_again_by"]) == (None, None)
    assert str(found["advice"]).startswith("Something within tokens 48 to 63 changes with every")
    assert found["command"] == (
        "prefixscope lint FILE  # template support, 2026-11-30 12:00:00 to 2026-11-30 12:04:51 UTC"
    )
    assert (unnamed["template"], unnamed["from_token"], unnamed["until_token"]) == ("", 0, 16)
    assert unnamed["template_requests"] == 12


def test_ranges_of_tokens_by_how_many_share_them(store: Store) -> None:
    judge_layout(store, NEXT_DAY)
    ranges = ask(store, "template_ranges", template="support")
    spans = [(row["from_token"], row["until_token"]) for row in ranges]
    assert spans == [(0, 48), (48, 64), (64, 480), (480, 544)]
    assert [row["same_ratio"] for row in ranges] == pytest.approx([1, 1 / 30, 1 / 30, 1 / 30])
    assert [row["content_ratio"] for row in ranges] == [1.0, 0.0, 1.0, 0.0]


def test_chunks_of_text_are_scaled_to_tokens(store: Store) -> None:
    """Bytes of text where tokens were, four to a unit and half a token to a unit: 320 bytes of
    instructions, a number of 8, 3,000 of rules; so the place is within bytes 320 to 383, which are
    units 80 to 95."""
    rules = "".join(f"rule {number:05d}. " for number in range(250))
    prompts = [f"{rules[:320]}{number:08d}{rules[320:]}question {number}" for number in range(20)]
    rows = []
    for row, prompt in enumerate(prompts):
        contents = text_contents(prompt.encode(), KEY)
        (plain,) = requests("text", [[1]], NOON + timedelta(seconds=row))
        names = {"block_hashes": text_chain(contents, "", KEY), "content_hashes": contents,
                 "text_bytes": len(prompt), "prompt_tokens": len(prompt) // 8}  # fmt: skip
        rows.append(plain | names)
    put(store, rows)
    judge_layout(store, NEXT_DAY)
    (found,) = ask(store, "layout")
    assert (found["kind"], found["frequency"]) == ("unknown", "request")
    assert (found["from_token"], found["until_token"]) == (40, 48)
    # Bytes 384 to the last whole chunk of rules, an eighth as many tokens, of all but the first.
    shared_bytes = (8 + len(rules)) // 64 * 64 - 384
    assert found["gain_tokens"] == pytest.approx(19 * shared_bytes / 8, rel=0.01)
    assert "approximate" in str(found["advice"])


def test_what_is_kept_is_replaced_as_a_whole_and_asked_for_by_name(store: Store) -> None:
    judge_layout(store, NEXT_DAY)
    assert len(ask(store, "layout", template="support", model="m")) == 1
    assert ask(store, "layout", template="billing") == []
    judge_layout(store, NEXT_DAY + timedelta(days=3))
    assert ask(store, "layout") == ask(store, "template_ranges") == []
    # Of files without an exporter the newest day is looked at, whenever that was.
    judge_newest(store)
    assert len(ask(store, "layout")) == 2


def test_so_many_requests_are_looked_at_and_sessions_stay_whole(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample, "MOST_REQUESTS", 12)
    judge_layout(store, NEXT_DAY)
    (found,) = ask(store, "layout", template="support")
    assert (found["template_requests"], found["gain_tokens"]) == (12, 11 * 416)
    sessions = [{**row, "session": f"s{number // 3}"} for number, row in enumerate(
        requests("support", [support(number) for number in range(30)], NOON))]  # fmt: skip
    put(store, sessions)
    ((_, table),) = sample.samples(store.cursor(), NOON, NEXT_DAY)
    picked = table["session"].to_pylist()
    assert len(picked) == 12
    assert {picked.count(session) for session in picked} == {3}


def test_templates_are_read_together_as_long_as_they_are_few_hashes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 30 × 34, 20 × 30 and 12 × 19 blocks: none is cut, and the last two go together."""
    whole = [(asked, len(table)) for asked, table in sample.samples(
        store.cursor(), NOON, NEXT_DAY)]  # fmt: skip
    monkeypatch.setattr(sample, "MOST_HASHES", 30 * 34)
    passes = [(asked, len(table)) for asked, table in sample.samples(
        store.cursor(), NOON, NEXT_DAY)]  # fmt: skip
    assert passes == whole
    assert [(asked.template, rows) for asked, rows in passes] == [
        ("support", 30), ("billing", 20), (None, 12),
    ]  # fmt: skip
    monkeypatch.setattr(sample, "MOST_HASHES", 34 * 7)
    rows = [len(table) for _, table in sample.samples(store.cursor(), NOON, NEXT_DAY)]
    assert rows == [7, 7, 12]


def test_a_prompt_too_long_to_be_looked_at_hides_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chains of 34 blocks each, and one of 1,021 among them."""
    (long,) = requests("support", [text("long", 16 * (30 * 34 + 1))], NOON)
    short = requests("support", [support(number) for number in range(30)], NOON)
    put(store, [long, *short])
    monkeypatch.setattr(sample, "MOST_HASHES", 30 * 34)
    ((_, table),) = sample.samples(store.cursor(), NOON, NEXT_DAY)
    assert len(table) == 30
