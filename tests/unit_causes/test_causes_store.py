"""Causes kept by the store: every minute named once, two minutes late, whatever happens between."""

import io
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from exporter.causes import sealing, spans, state
from exporter.causes.packed import packed, unpacked
from exporter.causes.sealing import Sealer
from exporter.causes.settings import CauseSettings
from exporter.collector import Collector, Inputs
from exporter.sources.formats import ndjson
from exporter.sources.lines import LineReader
from exporter.store.append import Stream, append
from exporter.store.retention import retain, run_maintenance
from exporter.store.store import Store
from prefixscope.waterfall.attribution import Assumed, waterfall
from queries import registry
from replay.causes import CAUSES, DETAILS
from replay.hashes import content_hashes
from tests.log_path import CAPTURES, SMALL, Answer, ask, load, needs_captures
from tests.unit_causes.worlds import GRAIN, chain_of, tokens_of

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
TABLES = ("cause_minutes", "cause_hours")
Row = dict[str, object]


def at(minute: float) -> datetime:
    return NOON + timedelta(minutes=minute)


def row(minute: float, blocks: list[int], replica: str = "a", **more: object) -> Row:
    """A prompt of whole blocks and one token more, nothing of it cached."""
    named = {
        "block_hashes": chain_of(blocks, 0),
        "content_hashes": content_hashes(tokens_of(blocks), GRAIN),
        "hash_scope": "global",
        "hash_key_id": "0123abcd",
        "block_size": GRAIN,
    }
    return (
        {
            "ts": at(minute).isoformat(),
            "request_id": f"{minute}/{replica}",
            "model": "m",
            "replica": replica,
            "template": "t",
            "prompt_tokens": len(blocks) * GRAIN + 1,
            "cached_tokens": 0,
            "e2e_seconds": 0.5,
        }
        | (named if blocks else {})
        | more
    )


def put(store: Store, rows: list[Row], arrived: datetime | None = None) -> None:
    """As one batch that arrives when its last row has begun, or then."""
    lines = b"".join(json.dumps(each).encode() + b"\n" for each in rows)
    last = max(datetime.fromisoformat(str(each["ts"])) for each in rows)
    (batch,) = LineReader(io.BytesIO(lines))
    append(store, batch, Stream("log", ndjson.FORMAT), arrived or last)


def told(store: Store, **params: object) -> dict[str, int]:
    """Tokens by cause."""
    return {str(each["cause"]): each["tokens"] for each in ask(store, "missed_tokens", **params)}


def whole(store: Store) -> Answer:
    """The waterfall, of which the parts are the whole."""
    (found,) = ask(store, "waterfall")
    causes = sum(found[f"{name}_tokens"] for name in CAUSES)
    assert found["prompt_tokens"] == found["cached_tokens"] + causes
    return found


def sums(store: Store) -> list[list[tuple[object, ...]]]:
    """All that is kept of causes, whatever its order and however many rows share a key."""
    cursor = store.cursor()
    found = []
    for table in TABLES:
        columns = [name for (name,) in cursor.execute(
            "SELECT column_name FROM duckdb_columns() WHERE table_name = $table"
            " AND data_type = 'BIGINT' AND column_name <> 'remembered_seconds'", {"table": table}
        ).fetchall()]  # fmt: skip
        keys = "minute, model, replica, route" if table == "cause_minutes" else (
            "hour, model, route, template, tenant")  # fmt: skip
        measures = ", ".join(f"coalesce(sum({name}), 0)::BIGINT" for name in columns)
        found.append(cursor.execute(
            f"SELECT {keys}, {measures}, min(remembered_seconds) FROM {table}"
            " GROUP BY ALL ORDER BY ALL"
        ).fetchall())  # fmt: skip
    found.append(cursor.execute(
        "SELECT model, route, template, tenant, cause, sum(tokens)::BIGINT FROM live_missed"
        " GROUP BY ALL ORDER BY ALL"
    ).fetchall())  # fmt: skip
    return found


def test_a_minute_is_sealed_once_and_two_minutes_late(store: Store) -> None:
    put(store, [row(0.1, [1, 2, 3]), row(1.1, [1, 2, 3]), row(1.2, [1, 2, 3], "b")])
    sealer = Sealer(store)
    sealer.seal(at(2.99))
    assert told(store) == {}
    sealer.seal(at(3))
    assert told(store) == {"new": 48, "rounding": 1}
    sealer.seal(at(3.5))
    assert told(store) == {"new": 48, "rounding": 1}
    sealer.seal(at(4))
    assert told(store) == {"new": 48, "evicted": 48, "routed": 48, "rounding": 3}
    assert told(store, by="replica", replica="b") == {"routed": 48, "rounding": 1}
    assert told(store, template="t") == told(store, model="m") == told(store)
    assert told(store, since=at(1), until=at(2)) == {"evicted": 48, "routed": 48, "rounding": 2}
    over = ask(store, "missed_tokens_over_time", step_seconds=60)
    assert [
        (each["bucket"], each["cause"], each["tokens"], each["prompt_tokens"]) for each in over
    ] == [
        ("2026-03-02T12:00:00Z", "new", 48, 49),
        ("2026-03-02T12:00:00Z", "rounding", 1, 49),
        ("2026-03-02T12:01:00Z", "evicted", 48, 98),
        ("2026-03-02T12:01:00Z", "routed", 48, 98),
        ("2026-03-02T12:01:00Z", "rounding", 2, 98),
    ]
    # At first nothing was remembered, then the minute before.
    assert whole(store)["horizon_seconds"] == 0
    (later,) = ask(store, "waterfall", since=at(1))
    assert later["horizon_seconds"] == 60


def test_replicas_that_were_replaced_are_forgotten_and_that_is_said(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nine pods, one after the other, where two may have been met or four times those that serve:
    while all of them served within the hour nothing is forgotten. Two hours later one serves. What
    the others had is forgotten before the minute after that: its tokens are new and marked as
    warming, after a restart too; the sums before stay."""
    monkeypatch.setattr(sealing, "MOST_REPLICAS", 2)
    put(store, [row(minute, [1, 2], name) for minute, name in enumerate("abcdefgh")])
    sealer = Sealer(store)
    sealer.seal(at(10))
    put(store, [row(120, [1, 2], "i")], at(120))
    sealer.seal(at(123))
    before = told(store)
    assert before == {"new": 32, "routed": 8 * 32, "rounding": 9}
    assert "serve" not in caplog.text
    put(store, [row(124, [1, 2], "i")], at(124))
    sealer.seal(at(127))
    assert "9 replicas were met since what was seen is remembered, and 1 serve" in caplog.text
    assert told(store, since=at(124)) == {"new": 32, "rounding": 1}
    assert whole(store)["new_warming_tokens"] == 64
    assert told(store, until=at(124)) == before
    put(store, [row(130, [1, 2], "i")], at(130))
    Sealer(store).seal(at(133))
    assert told(store, since=at(130)) == {"evicted": 32, "rounding": 1}


def test_a_row_that_comes_late_is_counted_as_late_once_and_known_from_then_on(store: Store) -> None:
    put(store, [row(0, [9])])
    sealer = Sealer(store)
    sealer.seal(at(6))
    put(store, [row(0.5, [1, 2])], at(6.1))
    sealer.seal(at(6.2))
    sealer.seal(at(6.3))
    found = whole(store)
    assert (found["requests"], found["late_requests"], found["late_prompt_tokens"]) == (1, 1, 33)
    assert found["explained_ratio"] == pytest.approx(17 / (17 + 33))
    put(store, [row(7, [1, 2])])
    Sealer(store).seal(at(10))
    assert told(store, since=at(7)) == {"evicted": 32, "rounding": 1}
    assert whole(store)["late_requests"] == 1


def test_what_has_no_causes_is_told_with_its_reason(store: Store) -> None:
    put(store, [
        row(0, [1, 2], cached_tokens=16),
        row(0.1, [1, 2], cached_tokens=None),
        row(0.2, [], prompt_tokens=100, cached_tokens=None),
        row(0.3, [], prompt_tokens=40, cached_tokens=30),
        row(0.4, [], prompt_tokens=20, ineligible_reason="caching_off"),
    ])  # fmt: skip
    Sealer(store).seal(at(9))
    found = whole(store)
    assert (found["requests"], found["prompt_tokens"], found["cached_tokens"]) == (2, 53, 16)
    assert (found["unreported_requests"], found["unreported_prompt_tokens"]) == (2, 133)
    assert (found["chainless_requests"], found["chainless_prompt_tokens"]) == (1, 40)
    assert told(store) == {"ineligible": 20, "new": 16, "rounding": 1}
    assert found["warm_before_log_tokens"] == 16
    # They are late only where a chain could have told.
    put(store, [row(0.6, [], prompt_tokens=8), row(0.7, [3], cached_tokens=None)], at(9.1))
    Sealer(store).seal(at(9.2))
    found = whole(store)
    assert (found["late_requests"], found["chainless_requests"]) == (0, 2)
    assert found["unreported_requests"] == 3


def test_rows_whose_chains_do_not_fit_their_blocks_count_as_chainless(store: Store) -> None:
    """A hash of 24 tokens tells nothing of the blocks of 128 by which a provider counts."""
    hosted: Row = {"provider": "azure", "replica": None, "block_size": 24, "hash_key_id": None}
    put(store, [
        row(0, [1, 2], **hosted),
        row(0.1, [1, 2], **hosted, cached_tokens=None, request_id="unreported"),
        row(0.2, [1, 2]),
    ])  # fmt: skip
    Sealer(store).seal(at(9))
    found = whole(store)
    assert (found["requests"], found["chainless_requests"], found["unreported_requests"]) == (
        1, 1, 1)  # fmt: skip
    assert (found["chainless_prompt_tokens"], found["unreported_prompt_tokens"]) == (33, 33)
    assert found["horizon_seconds"] == 0
    assert told(store) == {"new": 32, "rounding": 1}


def test_t94_resets_that_the_store_knows_are_told_from_evictions(store: Store) -> None:
    put(store, [row(0, [1, 2]), row(0.1, [5]), row(2, [1, 2]), row(2.1, [5], "b")])
    insert = """INSERT INTO block_resets BY NAME SELECT ? AS ts, 'kv' AS source, 'a' AS replica,
        'device' AS tier, ? AS reason, 1 AS blocks"""
    for moment, reason in ((0.5, "restart"), (1.5, "lost_events")):
        store.cursor().execute(insert, [at(moment).replace(tzinfo=None), reason])
    sealer = Sealer(store)
    for minute in range(3, 7):
        sealer.seal(at(minute))
    # What only replica b wants was lost with replica a.
    assert told(store, since=at(1)) == {"reset": 48, "rounding": 2}
    (found,) = ask(store, "waterfall", since=at(1))
    assert found["reset_replica_gone_tokens"] == 16


def test_a_load_that_goes_on_is_waited_for(store: Store) -> None:
    """Rows much older than they come: what follows them is not sealed before all are there."""
    put(store, [row(0, [1]), row(30, [2])], at(1000))
    sealer = Sealer(store)
    sealer.seal(at(1001))
    assert told(store) == {}
    put(store, [row(10, [1])], at(1001.5))
    sealer.seal(at(1003))
    assert told(store) == {"new": 16, "rounding": 1}  # up to what came last, as before it all came
    sealer.seal(at(1004))
    assert told(store) == {"new": 32, "evicted": 16, "rounding": 3}
    assert whole(store)["late_requests"] == 0


def traffic(seed: int, minutes: int) -> list[Row]:
    """Prompts that grow and part, on two replicas, of two models and scopes, some in flight."""
    random, before, rows = Random(seed), list[list[int]](), list[Row]()
    for number in range(8 * minutes):
        blocks = list(random.choice(before)) if before and random.random() < 0.7 else []
        blocks = blocks[: random.randint(0, len(blocks))] if random.random() < 0.3 else blocks
        blocks = [*blocks, *(random.randint(0, 3) for _ in range(random.randint(1, 3)))]
        before.append(blocks)
        scope = random.randrange(2)
        rows.append(row(
            number / 8, blocks, random.choice("ab"), request_id=str(number),
            model=random.choice("mmn"), template=random.choice("tu"),
            cached_tokens=random.choice([0, 0, GRAIN * random.randint(0, len(blocks)), None]),
            block_hashes=chain_of(blocks, scope), scope=f"scope {scope}" if scope else None,
            e2e_seconds=random.choice([0.5, 30.0, 200.0]), ttft_seconds=random.choice([0.2, 20.0]),
        ))  # fmt: skip
    return rows


def same_as_attribute(store: Store) -> None:
    found = whole(store)
    total = waterfall(registry.run(store.cursor(), "request_chains", {}), Assumed()).total
    batch = {f"{name}_tokens": total.causes[name] for name in CAUSES}
    batch |= {f"{name}_tokens": total.details[name] for name in (*DETAILS, "new_warming")}
    batch["warm_before_log_tokens"] = total.warm_before_log_tokens
    batch |= {"requests": total.requests, "prompt_tokens": total.prompt_tokens,
              "cached_tokens": total.cached_tokens,
              "unreported_prompt_tokens": total.unreported_prompt_tokens}  # fmt: skip
    assert {name: found[name] for name in batch} == batch


def test_minute_by_minute_is_what_attribute_says(store: Store) -> None:
    put(store, traffic(1, 6))
    sealer = Sealer(store)
    assert sum(sealer.seal(at(minute), wait_for_older=False) for minute in range(3, 9)) == 6
    same_as_attribute(store)


@needs_captures
@pytest.mark.parametrize("capture", ["main", "evict"])
def test_a_real_engine_minute_by_minute_is_what_attribute_says(store: Store, capture: str) -> None:
    load(store, (CAPTURES / "vllm-0.32.0" / capture / "requests.jsonl").read_bytes(), format="auto")
    # A recording lasts some seconds: each of them becomes half a minute.
    store.cursor().execute(
        """UPDATE requests SET ts = $noon + (ts - (SELECT min(ts) FROM requests)) * 30,
            ttft_seconds = ttft_seconds * 30, e2e_seconds = e2e_seconds * 30""",
        {"noon": NOON.replace(tzinfo=None)},
    )
    sealer = Sealer(store)
    spans = sum(sealer.seal(at(minute), wait_for_older=False) for minute in (3, 4, 5, 9, 30))
    assert spans >= 3
    same_as_attribute(store)


class Course:
    """Rows that come in while minutes are sealed, the same at every run."""

    def __init__(self) -> None:
        rows = traffic(3, 5)
        late = row(1.5, [1, 2, 3], request_id="late")
        self._coming = {3: rows[:-12], 5: [late], 6: rows[-12:]}

    def run(self, store: Store, sealer: Sealer, minutes: range) -> None:
        for minute in minutes:
            if minute in self._coming:
                put(store, self._coming[minute], at(minute))
            sealer.seal(at(minute), wait_for_older=False)


def test_whoever_is_killed_at_any_moment_goes_on_as_if_never_stopped(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of the files as a killed process leaves them, between two seals and in the middle of
    one, go on to the same sums."""
    between, amid = tmp_path / "between", tmp_path / "amid"
    keep, course, settings = state.keep, Course(), CauseSettings(most_blocks=1_000)
    sealer = Sealer(store, settings)
    course.run(store, sealer, range(3, 5))
    shutil.copytree(store.directory, between)

    def keep_and_die(*told: Any) -> None:  # noqa: ANN401 - as it is called
        keep(*told)
        shutil.copytree(store.directory, amid)  # all is written but the commit

    with monkeypatch.context() as patched:
        patched.setattr(state, "keep", keep_and_die)
        course.run(store, sealer, range(5, 6))
    course.run(store, sealer, range(6, 9))
    wanted = sums(store)
    assert all(wanted[:2])
    for copy in (between, amid):
        again = Store.open(copy, SMALL)
        sealer = Sealer(again, settings)
        if copy is amid:  # what came in before the kill is there
            sealer.seal(at(5), wait_for_older=False)
        course.run(again, sealer, range(5 if copy is between else 6, 9))
        assert sums(again) == wanted, copy
        again.close()


def test_a_seal_that_fails_leaves_nothing_behind(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, [row(0, [1]), row(1, [1])])
    sealer = Sealer(store)

    def full_disk(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(state, "keep", full_disk)
        with pytest.raises(OSError, match="no space"):
            sealer.seal(at(9))
    assert told(store) == {}
    sealer.seal(at(9))
    assert told(store) == {"new": 16, "evicted": 16, "rounding": 2}


@pytest.mark.parametrize(
    "lost", [{"format": 0}, {"format": None}, {"lasting": {}}, {"parts": None}]
)
def test_what_another_version_kept_is_begun_anew(
    store: Store, caplog: pytest.LogCaptureFixture, lost: dict[str, object]
) -> None:
    put(store, [row(0, [1, 2])])
    Sealer(store).seal(at(5))
    cursor = store.cursor()
    [(kept,)] = cursor.execute("SELECT state FROM cause_state").fetchall()
    arrays = unpacked(kept)
    told_json = json.loads(arrays["json"].tobytes()) | lost
    told_json = {name: value for name, value in told_json.items() if value is not None}
    arrays["json"] = np.frombuffer(json.dumps(told_json).encode(), np.uint8)
    cursor.execute("UPDATE cause_state SET state = ?", [packed(arrays)])
    put(store, [row(6, [1, 2]), row(7, [1, 2])])
    sealer = Sealer(store)
    sealer.seal(at(9))
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    assert told(store, since=at(6)) == {"new": 32, "rounding": 1}
    caplog.clear()
    Sealer(store).seal(at(10))
    assert told(store, since=at(6)) == {"new": 32, "evicted": 32, "rounding": 2}
    assert whole(store)["requests"] == 3
    assert not caplog.records


def test_a_long_backlog_is_sealed_in_parts_and_can_be_stopped_between(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "_SPAN_ROWS", 2)
    put(store, [row(minute, [1, 2]) for minute in range(5)])
    sealer = Sealer(store)
    answers = iter([False, True])
    assert sealer.seal(at(9), is_stopped=lambda: next(answers)) == 1
    assert told(store) == {"new": 32, "evicted": 32, "rounding": 2}
    assert sealer.seal(at(9)) == 2
    assert told(store) == {"new": 32, "evicted": 128, "rounding": 5}


def test_older_rows_are_not_late_before_anything_is_sealed(store: Store) -> None:
    put(store, [row(600, [1])])
    sealer = Sealer(store)
    assert sealer.seal(at(600.6)) == 0
    put(store, [row(0, [1]), row(1, [2])], at(600.7))
    sealer.seal(at(620))
    assert whole(store)["late_requests"] == 0
    assert told(store) == {"new": 32, "evicted": 16, "rounding": 3}


def test_many_late_rows_are_taken_in_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "_SPAN_ROWS", 2)
    put(store, [row(0, [9])])
    sealer = Sealer(store)
    sealer.seal(at(9))
    for batch in range(5):
        put(store, [row(0.1 + batch / 100, [batch])], at(9))
    put(store, [row(10, [0]), row(10.1, [4])])
    # Two and two late ones; the fifth is too many beside the two of the minute.
    sizes, named = list[int](), sealing.named_parts
    monkeypatch.setattr(
        sealing, "named_parts", lambda *given: sizes.append(len(given[1].table)) or named(*given)
    )
    assert sealer.seal(at(20)) == 4
    assert sizes == [2, 2, 1, 2]
    assert whole(store)["late_requests"] == 5
    assert told(store, since=at(10)) == {"evicted": 32, "rounding": 2}


def test_a_row_joined_after_its_seal_is_not_counted_once_more(store: Store) -> None:
    def take(side: str, minute: float, more: Row) -> None:
        given = row(minute, [1, 2]) | {"request_id": "call"} | more
        load(store, [given], side, defaults={"side": side})

    put(store, [row(0, [9])])
    take("engine", 0.1, {})
    Sealer(store).seal(at(5), wait_for_older=False)
    before = whole(store)
    assert before["requests"] == 2
    take("gateway", 0.11, {"tenant": "acme", "block_hashes": None, "content_hashes": None})
    Sealer(store).seal(at(6), wait_for_older=False)
    assert store.cursor().execute("SELECT count(*) FROM requests").fetchall() == [(2,)]
    assert whole(store) == before


@pytest.mark.parametrize("side", ["gateway", "engine"])
def test_a_row_joined_while_it_is_named_is_counted_once_and_stops_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    """A pair in every minute, whose second half always comes in the middle of a seal."""
    other = {"gateway": "engine", "engine": "gateway"}[side]
    put(store, [row(0, [9]), row(0.1, [8], request_id="w", side="engine")])
    sealer = Sealer(store)
    sealer.seal(at(4))
    named = sealing.named_parts
    for minute in range(5, 8):
        put(store, [row(minute, [minute], request_id=f"call {minute}", side=side)], at(minute))

        def joined_amid(*given: Any, minute: int = minute) -> Any:  # noqa: ANN401 - as it is called
            found = list(named(*given))
            half = row(minute, [minute], request_id=f"call {minute}", side=other)
            put(store, [half], at(minute + 0.5))
            return found

        with monkeypatch.context() as patched:
            patched.setattr(sealing, "named_parts", joined_amid)
            assert sealer.seal(at(minute + 3)) == 1
    sealer.seal(at(12))
    found = whole(store)
    assert (found["requests"], found["late_requests"]) == (5, 0)
    assert told(store) == {"new": 80, "rounding": 5}


def test_a_late_pair_beside_a_half_that_was_counted_is_late(store: Store) -> None:
    def half(minute: float, name: str, side: str) -> Row:
        named = [1] if side == "engine" else []
        return row(minute, named, request_id=name, side=side, prompt_tokens=17)

    put(store, [half(0, "counted", "engine"), half(0, "gateway", "gateway")])
    sealer = Sealer(store)
    sealer.seal(at(9))
    put(store, [half(0.1, "counted", "gateway"), half(0.2, "pair", "gateway"),
                half(0.2, "pair", "engine")], at(10))  # fmt: skip
    sealer.seal(at(20))
    found = whole(store)
    assert (found["requests"], found["chainless_requests"], found["late_requests"]) == (1, 1, 1)


def exposed(store: Store) -> dict[str, float]:
    """Series of missed tokens, by labels."""
    inputs = Inputs(store.counters.snapshot, dict, tuple, store.path, "0")
    page = Collector(inputs).render(openmetrics=False).decode()
    lines = [line for line in page.splitlines() if line.startswith("prefixcache_missed_tokens")]
    return {line.split("{")[1].split("}")[0]: float(line.split()[-1]) for line in lines}


def test_counters_take_live_rows_and_survive_restart_and_retention(store_folder: Path) -> None:
    settings = SMALL.model_copy(update={"top_tenants": 1})
    store = Store.open(store_folder, settings)
    put(store, [row(0, [1, 2], tenant="x"), row(0.1, [1, 2], tenant="y")])
    put(store, [row(0.2, [7], tenant="x")], at(11))  # not live
    sealer = Sealer(store, CauseSettings())
    sealer.seal(at(20))
    run_maintenance(store, at(21))
    common = 'model="m",route="",template="t"'
    wanted = {
        f'{common},tenant="x",cause="new"': 32.0,
        f'{common},tenant="x",cause="rounding"': 1.0,
        f'{common},tenant="other",cause="evicted"': 32.0,
        f'{common},tenant="other",cause="rounding"': 1.0,
    }
    assert exposed(store) == wanted
    assert told(store, tenant="x") == {"new": 48, "rounding": 2}
    assert told(store, tenant="other") == {"evicted": 32, "rounding": 1}
    retain(store, at(0) + timedelta(days=5000))
    assert told(store) == {}
    store.close()
    store = Store.open(store_folder, settings)
    assert exposed(store) == wanted
    # A horizon without traffic later nothing of it is known.
    later = 5000 * 24 * 60
    put(store, [row(later, [1, 2], tenant="x"), row(later + 1, [1, 2], tenant="x")])
    Sealer(store).seal(at(later + 9))
    assert exposed(store) == wanted | {
        f'{common},tenant="x",cause="new"': 64.0,
        f'{common},tenant="x",cause="evicted"': 32.0,
        f'{common},tenant="x",cause="rounding"': 3.0,
    }
    store.close()


def test_rows_that_are_due_to_be_forgotten_are_sealed_first(store: Store) -> None:
    """An old log that is loaded while the exporter runs, which forgets before it seals."""
    later = 60 * 24 * 60
    put(store, [row(0, [1]), row(1, [1])], at(later))
    hot_rows = "SELECT count(*) FROM requests"
    run_maintenance(store, at(later + 1), waits_for_seal=True)
    assert store.cursor().execute(hot_rows).fetchall() == [(2,)]
    Sealer(store).seal(at(later + 5))
    put(store, [row(0.5, [1])], at(later + 6))  # late, and not counted yet
    run_maintenance(store, at(later + 7), waits_for_seal=True)
    assert store.cursor().execute(hot_rows).fetchall() == [(1,)]
    assert told(store) == {"new": 16, "evicted": 16, "rounding": 2}
    # Nobody sealed it for a day.
    run_maintenance(store, at(later + 7 + 24 * 60), waits_for_seal=True)
    assert store.cursor().execute(hot_rows).fetchall() == [(0,)]


def test_merging_rows_of_a_key_changes_no_sum(store: Store) -> None:
    put(store, traffic(5, 2))
    sealer = Sealer(store)
    for minute in range(3, 5):
        sealer.seal(at(minute), wait_for_older=False)
        put(store, [row(0.3, [minute], request_id=f"late {minute}")], at(minute))
    sealer.seal(at(7), wait_for_older=False)
    before = sums(store)
    run_maintenance(store, at(9))
    assert sums(store) == before
    for table, keys in (("cause_minutes", "minute, model, replica, route"),
                        ("cause_hours", "hour, model, route, template, tenant")):  # fmt: skip
        repeated = f"SELECT 1 FROM {table} GROUP BY {keys} HAVING count(*) > 1"
        assert store.cursor().execute(repeated).fetchall() == []


def test_no_token_id_and_no_salt_is_kept_with_causes(store: Store) -> None:
    canary = 987_654_321
    folder = store.directory
    lines = [
        {"sent_unix": NOON.timestamp() + number, "id": str(number), "total_s": 1,
         "usage": {"prompt_tokens": 64, "prompt_tokens_details": {"cached_tokens": 0}},
         "cache_salt": "s4lt", "prompt_token_ids": [canary + place for place in range(64)]}
        for number in range(3)
    ]  # fmt: skip
    load(store, lines, format="capture")
    Sealer(store).seal(at(9), wait_for_older=False)
    assert told(store)["new"] == 48
    cursor = store.cursor()
    for (table,) in cursor.execute("SELECT table_name FROM duckdb_tables()").fetchall():
        for stored in cursor.execute(f'SELECT * FROM "{table}"').fetchall():
            assert str(canary)[:6] not in str(stored), table
            assert "s4lt" not in str(stored), table
    cursor.execute("CHECKPOINT")
    for file in folder.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            for place in (0, 20, 63):
                assert (canary + place).to_bytes(8, "little") not in data, file
            assert str(canary)[:6].encode() not in data, file
