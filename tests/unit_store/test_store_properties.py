"""However the same input arrives, the store ends up the same, and no token is lost on the way."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.sources.lines import LineReader
from exporter.store import rollup
from exporter.store.store import Store
from tests import strategies
from tests.log_path import Answer, load, ndjson, requests

FEW = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
_tags = itertools.count()

_SUMS = (
    "requests", "reported_requests", "ineligible_requests", "reuse_requests", "miss_requests",
    "partial_requests", "hit_requests", "unknown_requests", "prompt_tokens",
    "reported_prompt_tokens", "ineligible_prompt_tokens", "cached_tokens", "cached_device",
    "cached_host", "cached_disk", "cached_remote", "output_tokens",
)  # fmt: skip
_HISTOGRAMS = ("ttft_miss", "ttft_partial", "ttft_hit", "ttft_unknown")
_KEYS = {
    "minute_rollup": "minute, replica, route, ttft_point",
    "hour_rollup": "hour, route, template, tenant, ttft_point",
}


class Interruption(Exception):
    """The process is stopped just before it could commit."""


@contextmanager
def interrupted(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every transaction inside is undone at its very end."""
    write = store.write

    @contextmanager
    def write_and_stop() -> Iterator[duckdb.DuckDBPyConnection]:
        with write() as cursor:
            yield cursor
            raise Interruption

    with monkeypatch.context() as patch:
        patch.setattr(store, "write", write_and_stop)
        with pytest.raises(Interruption):
            yield


def tag() -> str:
    """A model of its own for each input, to tell inputs apart in one store."""
    return f"model-{next(_tags)}"


def rows(store: Store, model: str) -> list[Answer]:
    apart = ("arrived", "source", "model", "batch", "position")
    found = [{k: v for k, v in r.items() if k not in apart}
             for r in requests(store) if r["model"] == model]  # fmt: skip
    return sorted(found, key=repr)


def rolled(store: Store, table: str, model: str) -> list[Answer]:
    """The summed roll-up of one model, keys whose sums are all zero left out."""
    store.fold()
    sums = ", ".join(f"sum({name})::BIGINT AS {name}" for name in _SUMS)
    maps = ", ".join(
        f"coalesce(sum_histograms(list({name}) FILTER ({name} IS NOT NULL)), MAP {{}}) AS {name}"
        for name in _HISTOGRAMS
    )
    cursor = store.cursor()
    cursor.execute(
        f"""SELECT {_KEYS[table]}, {sums}, {maps} FROM {table} WHERE model = ?
        GROUP BY ALL HAVING sum(requests) <> 0 ORDER BY ALL""",
        [model],
    )
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def state(store: Store, model: str) -> tuple[list[Answer], ...]:
    return rows(store, model), *(rolled(store, table, model) for table in _KEYS)


@FEW
@given(data=st.data())
def test_any_split_order_repeat_and_interruption_gives_the_same_store(
    shared_store: Store, data: st.DataObject
) -> None:
    world = data.draw(strategies.worlds())
    plan = data.draw(strategies.deliveries(len(world.rows)))
    once, arrived = tag(), tag()
    load(shared_store, world.rows, once, format=world.format, defaults={"model": once})
    monkeypatch = pytest.MonkeyPatch()
    for delivery in plan:
        batch = [world.rows[index] for index in delivery.indexes]
        if delivery.interrupted:
            with interrupted(shared_store, monkeypatch):
                load(shared_store, batch, arrived, format=world.format, origin="http",
                     defaults={"model": arrived})  # fmt: skip
        load(shared_store, batch, arrived, format=world.format, origin="http",
             defaults={"model": arrived})  # fmt: skip
    assert state(shared_store, arrived) == state(shared_store, once)


@FEW
@given(data=st.data())
def test_any_size_of_batch_gives_the_same_store(shared_store: Store, data: st.DataObject) -> None:
    world = data.draw(strategies.worlds())
    repeated = [*world.rows, *data.draw(st.lists(st.sampled_from(world.rows), max_size=6))]
    lines = [*data.draw(st.permutations(repeated)), "no JSON", b"\xff"]
    once, cut = tag(), tag()
    load(shared_store, lines, once, format=world.format, defaults={"model": once})
    with pytest.MonkeyPatch.context() as patch:
        size = data.draw(st.integers(10, 600))
        defaults = LineReader.__init__.__kwdefaults__ or {}
        assert "batch_bytes" in defaults
        patch.setitem(defaults, "batch_bytes", size)
        summary = load(shared_store, lines, cut, format=world.format, defaults={"model": cut})
    assert state(shared_store, cut) == state(shared_store, once)
    assert summary.accepted == len(rows(shared_store, cut))
    assert summary.reasons == {"invalid_json": 1, "invalid_utf8": 1}
    assert summary.conflicting == 0
    told = summary.accepted + summary.duplicate + summary.corrected
    assert told == len(repeated), "every row is accounted for"


@FEW
@given(data=st.data())
def test_growing_file_without_ids_gives_the_same_store(
    shared_store: Store, data: st.DataObject
) -> None:
    drawn = data.draw(st.lists(strategies.ndjson_rows(), min_size=1, max_size=8))
    lines = [ndjson([row]) for row in drawn]
    sizes = data.draw(st.lists(st.integers(1, len(lines)), max_size=3))
    once, grown = tag(), tag()
    load(shared_store, b"".join(lines), once, defaults={"model": once})
    monkeypatch = pytest.MonkeyPatch()
    for size in [*sizes, len(lines)]:
        if data.draw(st.booleans()):
            with interrupted(shared_store, monkeypatch):
                load(shared_store, b"".join(lines), grown, defaults={"model": grown})
        load(shared_store, b"".join(lines[:size]), grown, defaults={"model": grown})
    assert len(rows(shared_store, grown)) == len(lines)
    assert state(shared_store, grown) == state(shared_store, once)
    position = shared_store.cursor().execute(
        "SELECT position, lines FROM offsets WHERE source = ?", [grown]
    ).fetchall()  # fmt: skip
    assert position == [(len(b"".join(lines)), len(lines))]


def expected_sums(found: list[Answer]) -> Answer:
    """The measures of rows, added up in plain Python from their definitions."""
    sums = dict.fromkeys(_SUMS, 0)
    for row in found:
        prompt, cached = row["prompt_tokens"], row["cached_tokens"]
        known = prompt is not None and cached is not None
        reported = known and row["ineligible_reason"] is None
        sums["requests"] += 1
        sums[f"{row['outcome']}_requests"] += 1
        sums["prompt_tokens"] += prompt or 0
        sums["output_tokens"] += row["output_tokens"] or 0
        if row["ineligible_reason"] is not None:
            sums["ineligible_requests"] += 1
            sums["ineligible_prompt_tokens"] += prompt or 0
        if reported:
            sums["reported_requests"] += 1
            sums["reported_prompt_tokens"] += prompt
            sums["reuse_requests"] += cached > 0
            for name in ("cached_tokens", "cached_device", "cached_host", "cached_disk",
                         "cached_remote"):  # fmt: skip
                sums[name] += row[name] or 0
    return sums


def rolled_sums(store: Store, table: str, where: str, value: object) -> Answer:
    cursor = store.cursor()
    sums = ", ".join(f"coalesce(sum({name}), 0)::BIGINT" for name in _SUMS)
    row = cursor.execute(
        f"SELECT {sums} FROM {table} WHERE {where} IS NOT DISTINCT FROM ?", [value]
    ).fetchone()
    assert row is not None
    return dict(zip(_SUMS, row, strict=True))


def test_sums_are_conserved_through_both_roll_ups_and_their_compaction(store: Store) -> None:
    drawn: list[Answer] = []

    @settings(max_examples=20, deadline=None, database=None)
    @given(st.lists(strategies.ndjson_rows(), min_size=5, max_size=12))
    def draw(some: list[Answer]) -> None:
        drawn.extend(some)

    draw()
    for start in range(0, len(drawn), 40):
        batch = [{"request_id": str(start + n), **row}
                 for n, row in enumerate(drawn[start : start + 40])]  # fmt: skip
        load(store, batch, defaults={"model": "m"})
    kept = [row for row in requests(store) if row["replica_role"] != "decode"]
    assert 0 < len(kept) < len(drawn), "rows of decode replicas stay out of roll-ups"

    def conserved() -> None:
        dimensions = {"minute_rollup": ("model", "replica", "route"),
                      "hour_rollup": ("model", "route", "template", "tenant")}  # fmt: skip
        for table, names in dimensions.items():
            for name in names:
                for value in {row[name] for row in kept}:
                    own = [row for row in kept if row[name] == value]
                    assert rolled_sums(store, table, name, value) == expected_sums(own)

    conserved()
    before = [rolled(store, table, "m") for table in _KEYS]
    with store.write() as cursor:
        rollup.compact(cursor)
    conserved()
    assert [rolled(store, table, "m") for table in _KEYS] == before
    for table, keys in _KEYS.items():
        twice = store.cursor().execute(
            f"SELECT {keys} FROM {table} GROUP BY model, {keys} HAVING count(*) > 1"
        ).fetchall()  # fmt: skip
        assert twice == [], "one row a key after compaction"


def test_histograms_hold_every_first_token_time_in_its_bucket(store: Store) -> None:
    times = [0.001, 0.05, 0.5, 0.5, 0.539, 0.541, 7.0, 60.0]
    load(store, [
        {"request_id": str(n), "ts": strategies.BASE_SECONDS, "prompt_tokens": 10,
         "cached_tokens": 0, "ttft_s": seconds, "ttft_point": "client"}
        for n, seconds in enumerate(times)
    ])  # fmt: skip
    (histogram,) = store.cursor().execute("SELECT ttft_miss FROM minute_rollup").fetchone() or ()
    assert sum(histogram.values()) == len(times)
    for bucket, count in histogram.items():
        inside = [t for t in times if 1.08**bucket <= t < 1.08 ** (bucket + 1)]
        assert len(inside) == count
        middle = 1.08 ** (bucket + 0.5)
        assert all(abs(middle - t) / t <= 0.04 for t in inside)
