"""Found templates in a store: their names in rows, roll-ups and counters, and who names them."""

import hashlib
import io
import json
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import typer
from duckdb import DuckDBPyConnection
from starlette.applications import Starlette
from starlette.testclient import TestClient

from exporter.endpoints import templates as templates_http
from exporter.errors import PrefixscopeError
from exporter.sources.intake import Intake
from exporter.store.store import KEY_NAME, Store
from exporter.templates_found import find, keep, watch
from exporter.templates_found.find import find_templates
from exporter.templates_found.keep import give_name
from exporter.templates_found.sample import Sample, read_sample
from prefixscope.client import OpenStore
from prefixscope.commands import templates as command
from prefixscope.loading import load
from queries import registry
from replay.byte_chunks import text_key_id
from replay.hashes import chain_hashes, content_hashes, hash_key_id
from tests.unit_templates.known_templates import Kind, World, adjusted_rand_index, days, made

MONDAY = datetime(2026, 11, 23, tzinfo=UTC)
KEY = "the key of these tests"
Row = dict[str, object]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = _open(tmp_path / "store")
    yield opened
    opened.close()


def _open(folder: Path) -> Store:
    folder.mkdir(exist_ok=True)
    (folder / KEY_NAME).write_text(KEY)
    return Store.open(folder)


def _load(store: Store, rows: list[Row], source: str = "log") -> None:
    lines = "\n".join(json.dumps(row) for row in rows).encode()
    summary = Intake(store).ingest(io.BytesIO(lines), source=source, format="ndjson")
    assert summary.accepted == len(rows), summary


def _rows_of(world: World, day: datetime) -> list[Row]:
    """What a tap writes: names of blocks of another key, so that they are taken as they are."""
    starts, names = world.chains.starts.tolist(), world.chains.names.tolist()
    assert world.chains.contents is not None
    contents = world.chains.contents.tolist()
    return [
        {
            "ts": (day + timedelta(seconds=float(world.started[i]))).isoformat(),
            "request_id": f"{day:%d}-{i}", "session": f"s{world.session[i]}",
            "tenant": f"t{world.tenant[i]}", "route": f"r{world.route[i]}",
            "adapter": f"{world.known[i]}", "prompt_tokens": int(world.prompt_tokens[i]),
            "cached_tokens": 16, "block_size": 16, "hash_scope": "global", "hash_key_id": "tap",
            "block_hashes": names[starts[i] : starts[i + 1]],
            "content_hashes": contents[starts[i] : starts[i + 1]],
        }
        for i in range(len(world.started))
    ]  # fmt: skip


def _calls(
    prefix: list[int], count: int, at: datetime = MONDAY, salt: str = "", **given: object
) -> list[Row]:
    """Calls that begin alike, a minute apart, each asking something else."""
    rows = []
    for number in range(count):
        asked = 1_000 * number + 100_000 * sum(salt.encode())
        ids = [*prefix, *range(asked, asked + 40)]
        scope = f"{salt:0>16}" if salt else None
        contents = content_hashes(ids, 16, KEY)
        rows.append(
            {
                "ts": (at + timedelta(minutes=number)).isoformat(),
                "request_id": f"{salt}{prefix[0]}-{at:%d%H%M}-{number}",
                "prompt_tokens": len(ids), "cached_tokens": 0, "block_size": 16,
                "block_hashes": chain_hashes(ids, 16, scope or "", KEY),
                "content_hashes": contents, "hash_scope": "global",
                "hash_key_id": hash_key_id(KEY), "scope": scope, "session": f"{number}{at}{salt}",
                **given,
            }
        )  # fmt: skip
    return rows


CHECKOUT = [7_000 + place for place in range(70)]
SEARCH = [8_000 + place for place in range(100)]


def _ask(store: Store, sql: str) -> list[tuple[object, ...]]:
    return store.cursor().execute(sql).fetchall()


def _templates(store: Store) -> Counter[object]:
    return Counter(
        {name: int(str(count)) for name, count in _ask(
            store, "SELECT template, count(*) FROM requests GROUP BY template")}
    )  # fmt: skip


def _found(store: Store) -> list[dict[str, object]]:
    return registry.rows(registry.run(store.cursor(), "found_templates", {}))


def test_rows_of_known_templates_are_told_apart(store: Store) -> None:
    world = made(Kind(requests=1_500, longest_tokens=1_500, turns=3, families=2, scopes=8), 1)
    _load(store, _rows_of(world, MONDAY))
    assert find_templates(store) > 0.9 * len(world.started)
    rows = _ask(store, "SELECT adapter, coalesce(template, ''), prompt_tokens FROM requests")
    known, found = (np.unique([row[i] for row in rows], return_inverse=True)[1] for i in (0, 1))
    assert adjusted_rand_index(known, found) >= 0.95
    _sums_agree(store)
    heirs = {row["name"]: row["heir_of"] for row in _found(store) if row["heir_of"]}
    of = dict(_ask(store, "SELECT found_template, mode(adapter) FROM requests GROUP BY ALL"))
    assert len(heirs) >= 4
    for new, old in heirs.items():
        assert int(str(of[new])) - 1 == int(str(of[old])), "version 1 takes over from version 0"
    assert find_templates(store) == 0, "nothing new"


def _sums_agree(store: Store) -> None:
    """Roll-ups have of every template what its rows have."""
    store.fold()
    sums: defaultdict[object, list[int]] = defaultdict(lambda: [0, 0, 0])
    for template, prompt, cached in _ask(
        store, "SELECT template, prompt_tokens, cached_tokens FROM requests"
    ):
        sums[template] = [
            a + int(str(b)) for a, b in zip(sums[template], (1, prompt, cached), strict=True)
        ]
    rolled = {
        template: [int(str(value)) for value in values]
        for template, *values in _ask(
            store,
            """SELECT template, sum(requests), sum(prompt_tokens), sum(cached_tokens)
            FROM hour_rollup GROUP BY template HAVING sum(requests) <> 0""",
        )
    }
    assert rolled == sums


def test_names_are_the_same_after_a_restart_and_on_another_day(tmp_path: Path) -> None:
    first, second = days(Kind(templates=8, requests=900, longest_tokens=1_000, turns=3), 5, 2)
    one, other = _open(tmp_path / "one"), _open(tmp_path / "other")
    _load(one, _rows_of(first, MONDAY))
    find_templates(one)
    names = {row["name"] for row in _found(one)}
    one.close()
    one = _open(tmp_path / "one")
    assert {row["name"] for row in _found(one)} == names
    _load(one, _rows_of(second, MONDAY + timedelta(days=1)))
    on_arrival = _templates(one)
    assert on_arrival[None] < 0.1 * on_arrival.total(), "rows get their names as they come"
    find_templates(one)
    _load(other, _rows_of(second, MONDAY + timedelta(days=1)))
    find_templates(other)
    anew = _templates(other)
    again = Counter(
        dict(
            _ask(
                one, "SELECT template, count(*) FROM requests WHERE ts >= '2026-11-24' GROUP BY ALL"
            )
        )
    )
    shared = {name for name in anew if name} & {name for name in again if name}
    assert sum(anew[name] for name in shared) > 0.9 * anew.total()
    one.close()
    other.close()


def test_one_template_in_many_scopes_has_one_name(store: Store) -> None:
    for salt in "abc":
        _load(store, _calls(CHECKOUT, 4, salt=salt))
    find_templates(store)
    (found,) = _found(store)
    assert _templates(store) == {found["name"]: 12}
    _load(store, _calls(CHECKOUT, 1, MONDAY + timedelta(hours=1)))
    assert _templates(store)[None] == 1, "a scope that was not met yet"
    _load(store, _calls(CHECKOUT, 9, MONDAY + timedelta(hours=2)))
    find_templates(store)
    assert _templates(store) == {found["name"]: 22}
    assert found["prefix_tokens"] == 64, "70 tokens are four whole blocks"


def test_the_name_gives_no_prompt_away(store: Store) -> None:
    _load(store, _calls(CHECKOUT, 9))
    find_templates(store)
    chain = chain_hashes(CHECKOUT, 16, "", KEY)[-1]
    assert _ask(store, "SELECT prefix, hash_key_id FROM found_templates") == [
        (chain, hash_key_id(KEY))
    ]
    # BLAKE2b of the chain hash, its key id and no place, keyed with the SHA-256 of the key.
    secret = hashlib.sha256(KEY.encode()).digest()
    text = struct.pack("<Q", chain) + f"{hash_key_id(KEY)}/".encode()
    digest = hashlib.blake2b(text, digest_size=4, key=secret, person=b"template").hexdigest()
    assert [row["name"] for row in _found(store)] == [f"auto:{digest}"]


def test_names_of_another_key_replica_or_trace_are_other_names(store: Store) -> None:
    _load(store, _calls(CHECKOUT, 9))
    find_templates(store)
    later = MONDAY + timedelta(hours=1)
    other_key = _calls(CHECKOUT, 9, later, hash_key_id="other")
    _load(store, other_key)
    of_engine = [
        row | {"hash_scope": "engine", "replica": f"gpu-{n}",
               "request_id": f"{n}{row['request_id']}",
               "session": f"{n}{row['session']}"}
        for n in range(2)
        for row in _calls(CHECKOUT, 9, later + timedelta(hours=1))
    ]  # fmt: skip
    _load(store, of_engine)
    _load(store, _calls(CHECKOUT, 30, later + timedelta(hours=3), hash_scope="trace"))
    assert _templates(store)[None] == 9 + 18 + 30
    find_templates(store)
    counts = _templates(store)
    assert counts.pop(None) == 30, "names of blocks of one trace name no template"
    assert list(counts.values()) == [9, 9, 9, 9]


def test_a_label_wins(store: Store) -> None:
    _load(store, _calls(CHECKOUT, 9))
    find_templates(store)
    _load(store, _calls(CHECKOUT, 3, MONDAY + timedelta(hours=1), template="shop"))
    _load(store, _calls(SEARCH, 20, template="search"))
    find_templates(store)
    (found,) = _found(store)
    assert _templates(store) == {found["name"]: 9, "shop": 3, "search": 20}


def test_the_same_row_again_is_a_duplicate_still(store: Store) -> None:
    rows = _calls(CHECKOUT, 9)
    _load(store, rows)
    find_templates(store)
    lines = "\n".join(json.dumps(row) for row in rows).encode()
    again = Intake(store).ingest(io.BytesIO(lines), source="log", format="ndjson", origin="http")
    assert (again.duplicate, again.conflicting, again.accepted) == (9, 0, 0)


def test_a_gateway_s_label_wins_over_what_was_found_for_the_engine(store: Store) -> None:
    engine = _calls(CHECKOUT, 9, side="engine")
    _load(store, engine, "engine")
    find_templates(store)
    gateway: list[Row] = [
        {"ts": row["ts"], "request_id": row["request_id"], "side": "gateway",
         "prompt_tokens": row["prompt_tokens"], **({"template": "shop"} if number else {})}
        for number, row in enumerate(engine[:3])
    ]  # fmt: skip
    _load(store, gateway, "gateway")
    (found,) = _found(store)
    assert _templates(store) == {"shop": 2, found["name"]: 7}
    _sums_agree(store)


def test_live_counters_have_the_name_from_then_on_and_never_fall(store: Store) -> None:
    now = datetime.now(UTC)
    _load(store, _calls(CHECKOUT, 9, now - timedelta(minutes=8)))
    before = _live(store)
    assert before == {"": 9 * (70 + 40)}
    find_templates(store)
    assert _live(store) == before, "what was counted cannot be taken back"
    _sums_agree(store)
    _load(store, _calls(CHECKOUT, 2, now - timedelta(minutes=3), session="again"))
    (found,) = _found(store)
    assert _live(store) == before | {found["name"]: 2 * 110}


def _live(store: Store) -> dict[object, int]:
    store.fold()
    tokens: Counter[object] = Counter()
    for (_, _, template, _), row in store.counters.snapshot().requests.items():
        tokens[template] += row.prompt_tokens
    return dict(tokens)


def test_a_given_name_stands_in_rows_and_roll_ups_and_on_arrival(store: Store) -> None:
    _load(store, _calls(CHECKOUT, 9) + _calls(SEARCH, 12))
    find_templates(store)
    names = {row["prefix_tokens"]: row for row in _found(store)}
    checkout, search = names[64], names[96]
    # Of rows that are no longer hot only the roll-ups speak.
    with store.write() as cursor:
        cursor.execute("DELETE FROM requests WHERE ts >= '2026-11-23 00:08:00'")
        cursor.execute(
            "INSERT INTO cause_hours BY NAME"
            " SELECT TIMESTAMP '2026-11-23' AS hour, name AS template FROM found_templates"
        )
    assert give_name(store, str(checkout["name"]), " checkout ") == 8
    causes = [template for (template,) in _ask(store, "SELECT template FROM cause_hours")]
    assert sorted(causes, key=str) == [search["name"], "checkout"]
    _load(store, _calls(CHECKOUT, 1, MONDAY + timedelta(hours=1)))
    assert _templates(store) == {"checkout": 9, search["name"]: 8}
    rolled = "SELECT template, sum(requests)::INT FROM hour_rollup GROUP BY ALL"
    assert dict(_ask(store, f"{rolled} HAVING sum(requests) <> 0")) == {
        "checkout": 10,
        search["name"]: 12,
    }
    # Both versions may have one name, and a name may be taken back.
    give_name(store, str(search["name"]), "checkout")
    assert _templates(store) == {"checkout": 17}
    assert [row["requests"] for row in _found(store)] == [8, 9]
    give_name(store, str(checkout["name"]), str(checkout["name"]))
    assert _templates(store) == {"checkout": 8, checkout["name"]: 9}


def test_a_name_that_cannot_be_given_is_refused(store: Store) -> None:
    _load(store, _calls(CHECKOUT, 9))
    find_templates(store)
    (found,) = _found(store)
    for name, given, reason in (
        ("auto:00000000", "shop", "no template found is called auto:00000000"),
        (str(found["name"]), " ", "printable"),
        (str(found["name"]), "a\nb", "printable"),
        (str(found["name"]), "auto:12345678", "choose another"),
    ):
        with pytest.raises(PrefixscopeError, match=reason):
            give_name(store, name, given)
    assert _templates(store) == {found["name"]: 9}


def test_an_exporter_takes_a_name_over_http(store: Store) -> None:
    _load(store, _calls(CHECKOUT, 9))
    find_templates(store)
    client = TestClient(Starlette(routes=templates_http.routes(store)))
    asked = {"name": str(_found(store)[0]["name"]), "given_name": "shop"}
    answer = client.post(templates_http.TEMPLATES_PATH, params=asked)
    assert answer.json() == {"requests": 9}
    assert _templates(store) == {"shop": 9}


def test_a_version_that_comes_back_is_no_heir(store: Store) -> None:
    edited = [*CHECKOUT[:40], 1, *CHECKOUT[40:]]
    for number, template in enumerate((CHECKOUT, edited, CHECKOUT)):
        _load(store, _calls(template, 30, MONDAY + timedelta(minutes=31 * number)))
        find_templates(store)
    first, second = sorted(_found(store), key=lambda row: str(row["first_seen"]))
    assert (first["heir_of"], second["heir_of"]) == ("", first["name"])
    assert (first["requests"], second["requests"]) == (60, 30)


def test_what_is_kept_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keep, "MOST_KEPT", 1)
    _load(store, _calls(CHECKOUT, 9))
    _load(store, _calls(SEARCH, 9, MONDAY + timedelta(hours=1)))
    find_templates(store)
    (kept,) = _found(store)
    assert kept["prefix_tokens"] == 96, "the one seen last"
    assert _ask(store, "SELECT count(DISTINCT name) FROM found_prefixes") == [(1,)]


def test_a_sample_is_bounded_and_the_same_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.templates_found.sample.MOST_HASHES", 300)
    monkeypatch.setattr("exporter.templates_found.sample.MOST_BLOCKS", 5)
    _load(store, _calls(SEARCH, 200))
    window = (MONDAY.replace(tzinfo=None), (MONDAY + timedelta(days=1)).replace(tzinfo=None))
    sample, again = (read_sample(store.cursor(), *window) for _ in range(2))
    assert 100 < len(sample.names) < 600
    assert sample.chains.lengths.max() == 5
    assert (sample.prompt_tokens == -1).all(), "all are cut"
    assert sorted(sample.names.tolist()) == sorted(again.names.tolist())
    find_templates(store)
    assert _found(store) == [], "a chain that is cut ends nowhere"


def test_a_sample_does_not_depend_on_where_rows_lie(store: Store) -> None:
    _load(store, _calls(SEARCH, 40))
    window = (MONDAY.replace(tzinfo=None), (MONDAY + timedelta(days=1)).replace(tzinfo=None))
    sample = read_sample(store.cursor(), *window)
    with store.write() as writer:
        writer.execute("CREATE TEMP TABLE moved AS FROM requests ORDER BY request_id DESC")
        writer.execute("DELETE FROM requests")
        writer.execute("INSERT INTO requests FROM moved")
    again = read_sample(store.cursor(), *window)
    assert len(sample) == 40
    assert sample.names.tolist() == again.names.tolist()


def test_chunks_of_text_stand_for_the_tokens_reported(store: Store) -> None:
    rows = _calls(SEARCH, 9, hash_key_id=text_key_id(KEY))
    for row in rows:  # eight chunks, 160 tokens: 20 each
        row["prompt_tokens"] = 160
    _load(store, rows)
    find_templates(store)
    (found,) = _found(store)
    assert found["prefix_tokens"] == 6 * 20
    assert found["shared_ratio"] == pytest.approx(120 / 160)


def test_the_command_lists_and_names_them(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _load(store, _calls(CHECKOUT, 9))
    find_templates(store)
    name = str(_found(store)[0]["name"])
    monkeypatch.setattr(command, "connect", lambda place: nullcontext(OpenStore(store)))
    command.templates(name, "shop")
    assert capsys.readouterr().out.strip() == f"{name} is now shop: 9 requests renamed"
    command.templates()
    listed = capsys.readouterr().out
    assert [word in listed for word in (name, "shop", "100.00%")] == [True] * 3
    with pytest.raises(typer.BadParameter, match="FOUND and NAME"):
        command.templates(name)


def test_an_ingested_file_is_looked_through_at_its_end(tmp_path: Path, store: Store) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in _calls(CHECKOUT, 9)))
    load([file], OpenStore(store), source="log", log_format="ndjson")
    assert _templates(store) == {_found(store)[0]["name"]: 9}


def test_a_long_file_is_looked_through_day_by_day(store: Store) -> None:
    """Templates of its first day too, and the change of version in the middle of another."""
    edited = [*SEARCH[:50], 1, *SEARCH[50:]]
    _load(store, _calls(CHECKOUT, 9))
    _load(store, _calls(SEARCH, 30, MONDAY + timedelta(days=5)))
    _load(store, _calls(edited, 30, MONDAY + timedelta(days=5, minutes=31)))
    find_templates(store)
    names = {row["prefix_tokens"]: row for row in _found(store) if row["requests"]}
    assert len(_found(store)) == 3
    assert _templates(store)[None] == 0
    assert [row["heir_of"] != "" for row in _found(store)].count(True) == 1
    assert names[64]["requests"] == 9


def test_rows_that_come_while_templates_are_looked_for_get_them_the_next_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    _load(store, _calls(CHECKOUT, 9))
    look = find.read_sample

    def meanwhile(*asked: object) -> Sample:
        sample = look(*asked)  # type: ignore[arg-type]
        _load(store, _calls(CHECKOUT, 6, MONDAY + timedelta(hours=1)))
        return sample

    monkeypatch.setattr(find, "read_sample", meanwhile)
    monkeypatch.setattr(find, "_ROWS_AT_ONCE", 4)
    find_templates(store)
    monkeypatch.setattr(find, "read_sample", look)
    with store.write() as cursor:  # as if they had come after the last look into the store
        cursor.execute("UPDATE requests SET template = NULL, found_template = NULL WHERE batch = 2")
        cursor.execute("UPDATE hour_rollup SET template = NULL WHERE hour = '2026-11-23 01:00'")
    find_templates(store)
    assert _templates(store) == {_found(store)[0]["name"]: 15}
    _sums_agree(store)


def test_rows_that_came_meanwhile_get_them_a_part_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, count in enumerate((9, 3, 4)):
        _load(store, _calls(CHECKOUT, count, MONDAY + timedelta(minutes=10 * number)))
    find_templates(store)
    with store.write() as cursor:
        cursor.execute("UPDATE requests SET template = NULL, found_template = NULL")
        cursor.execute("UPDATE hour_rollup SET template = NULL")
    parts = []
    assign = find.assign_later

    def counted(cursor: DuckDBPyConnection, after: int, until: int, blocks: list[int]) -> int:
        parts.append(assign(cursor, after, until, blocks))
        return parts[-1]

    monkeypatch.setattr(find, "assign_later", counted)
    monkeypatch.setattr(find, "_ROWS_AT_ONCE", 12)
    assert find._assign_later(store, store.cursor(), 0) == 16
    assert parts == [12, 4], "whole batches"
    _sums_agree(store)


def test_the_watch_looks_again_after_a_failure(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def too_large(_: Store) -> int:
        raise PrefixscopeError("the store's memory limit is too small")

    worker = watch.TemplateWatch(store)
    assert worker.pause_seconds() == watch.FIRST_SECONDS
    monkeypatch.setattr(watch, "find_templates", too_large)
    worker.do_once()
    assert "memory limit" in caplog.text
    assert worker.pause_seconds() == watch.EVERY_SECONDS
    monkeypatch.undo()
    _load(store, _calls(CHECKOUT, 9))
    worker.do_once()
    assert len(_found(store)) == 1
