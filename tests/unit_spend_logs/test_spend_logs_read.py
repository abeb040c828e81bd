"""What is read of LiteLLM's database: the same rows as a file of them brings, and no more."""

import json
from datetime import timedelta
from typing import Any

import pytest

from exporter.sources.names import SourceNames
from exporter.sources.spend_logs.database import Database
from exporter.sources.spend_logs.intake import SpendLogReader
from exporter.sources.spend_logs.place import Address, SpendLogSettings
from exporter.sources.spend_logs.table import spend_log_table, statements
from exporter.store.store import Store
from tests.log_path import by_id, hit_ratio, load, rejects, requests
from tests.unit_spend_logs.conftest import TABLE, Owner, ReaderOf, make_tables
from tests.unit_spend_logs.litellm_tables import ERAS
from tests.unit_spend_logs.spend_rows import (
    CANARY,
    minutes_ago,
    prompts,
    recorded,
    row,
    to_milliseconds,
)

# How a row came, which differs by way.
_OF_THE_WAY = ("source", "arrived", "batch", "position")


def same(store: Store, one: str, other: str) -> bool:
    """Whether the rows of two sources differ in nothing but the way they came."""
    first, second = (
        [{name: value for name, value in found.items() if name not in _OF_THE_WAY}
         for found in requests(store, source)]
        for source in (one, other)
    )  # fmt: skip
    assert first == second
    return bool(first)


def test_t31_recorded_rows_count_as_the_providers_did(
    owner: Owner, reader_of: ReaderOf, store: Store
) -> None:
    """Seven calls of 2,100 prompt tokens, 1,536 cached; six of Anthropic's 21 + 17,920 cached +
    592 written. Beside them a hit of the response cache, and a failure (8, counted by LiteLLM)."""
    owner.add(recorded("spend_log"))
    summary = reader_of(owner).run()
    assert (summary.accepted, summary.rejected) == (15, 0)
    ratio = hit_ratio(store)
    assert ratio["reported_prompt_tokens"] == 7 * 2100 + 6 * (21 + 17920 + 592)
    assert ratio["cached_tokens"] == 7 * 1536 + 6 * 17920
    assert ratio["prompt_tokens"] == ratio["reported_prompt_tokens"] + 8
    assert ratio["ineligible_requests"] == 1
    anthropic = [found for found in requests(store) if found["provider"] == "anthropic"]
    assert [found["cache_write_tokens"] for found in anthropic] == [592] * 6


def test_recorded_rows_are_those_a_file_brings(
    owner: Owner, reader_of: ReaderOf, store: Store
) -> None:
    rows = to_milliseconds(recorded("spend_log"))
    owner.add(rows)
    reader_of(owner).run()
    load(store, rows, "file", format="litellm_spend_logs")
    assert same(store, "litellm", "file")


def test_recorded_rows_have_the_tokens_of_the_payloads_of_the_same_calls(
    owner: Owner, reader_of: ReaderOf, store: Store
) -> None:
    owner.add(recorded("spend_log"))
    reader_of(owner).run()
    load(store, recorded("payload"), "payloads", format="litellm")
    columns = (
        "prompt_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "model",
        "provider", "route", "replica", "outcome", "ineligible_reason",
    )  # fmt: skip
    ours, theirs = by_id(store, "litellm"), by_id(store, "payloads")
    served = [one for one, found in ours.items() if found["status"] == "ok"]
    assert len(served) == 14
    assert ours.keys() == theirs.keys()
    for one in served:
        assert [ours[one][name] for name in columns] == [theirs[one][name] for name in columns]
    # The payload does not name the user, so there a call without a team is the key's.
    assert {found["tenant"] for found in ours.values()} == {"acme", "birch", "user-alone"}


@pytest.mark.parametrize("era", ERAS)
def test_every_era_of_the_table_is_read(
    empty: Owner, reader_of: ReaderOf, store: Store, era: str
) -> None:
    make_tables(empty, ERAS[era])
    rows = to_milliseconds(recorded("spend_log"))
    empty.add(rows)
    assert reader_of(empty).run().accepted == 15
    columns = ERAS[era].spend_logs
    older = [{name: value for name, value in one.items() if name in columns} for one in rows]
    load(store, older, "file", format="litellm_spend_logs")
    assert same(store, "litellm", "file")


def test_other_types_of_column_say_the_same(
    empty: Owner, reader_of: ReaderOf, store: Store
) -> None:
    """Times with a zone, JSON that is not binary, and a view in place of the table."""
    columns = ERAS["2026-11"].spend_logs | {
        "startTime": "TIMESTAMPTZ NOT NULL", "endTime": "TIMESTAMPTZ", "metadata": "JSON",
    }  # fmt: skip
    listed = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
    empty.run(
        f"CREATE TABLE kept ({listed}); CREATE VIEW {TABLE} AS SELECT * FROM kept; "
        f"GRANT SELECT ON {TABLE} TO reader; "
        f"ALTER DATABASE {empty.database} SET timezone = 'Asia/Tokyo'"
    )
    rows = to_milliseconds(recorded("spend_log"))
    empty.add(rows, "kept")
    reader = reader_of(empty)
    assert reader.run().accepted == 15
    load(store, rows, "file", format="litellm_spend_logs")
    assert same(store, "litellm", "file")
    empty.add([row(1, minutes_ago(2))], "kept")
    assert [reader.run().accepted for _ in range(2)] == [1, 0]
    assert reader.known_rows == 1


def test_a_partitioned_table_is_read(empty: Owner, reader_of: ReaderOf, store: Store) -> None:
    """As LiteLLM's script for large tables makes it: its key has the time too."""
    columns = ERAS["2026-11"].spend_logs | {"request_id": "TEXT NOT NULL"}
    listed = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
    border = minutes_ago(12 * 60).replace(tzinfo=None)
    empty.run(
        f'CREATE TABLE {TABLE} ({listed}, PRIMARY KEY (request_id, "startTime")) '
        f'PARTITION BY RANGE ("startTime"); '
        f"CREATE TABLE older PARTITION OF {TABLE} FOR VALUES FROM (MINVALUE) TO ('{border}'); "
        f"CREATE TABLE newer PARTITION OF {TABLE} FOR VALUES FROM ('{border}') TO (MAXVALUE); "
        f"GRANT SELECT ON {TABLE} TO reader"
    )
    again = row(5, minutes_ago(30)) | {"prompt_tokens": 999, "litellm_call_id": "another"}
    empty.add([*map(row, range(8)), again])
    reader = reader_of(empty)
    assert reader.run().accepted == 9
    assert prompts(store) == [*range(100, 108), 999]
    empty.run("DROP TABLE older")  # how such a table forgets
    assert reader.run().accepted == 0


def test_metadata_that_is_a_text_is_opened(owner: Owner, reader_of: ReaderOf, store: Store) -> None:
    """A writer that made JSON of JSON: the column holds one long text."""
    metadata = json.dumps({"usage_object": {"prompt_tokens_details": {"cached_tokens": 77}}})
    owner.add([row(1)])
    owner.run(f"UPDATE {TABLE} SET metadata = to_jsonb($1::text) RETURNING 1", metadata)
    reader_of(owner).run()
    assert [found["cached_tokens"] for found in requests(store)] == [77]


@pytest.mark.parametrize("metadata", [None, [], 7, {}, {"usage_object": None}, {"usage_object": 3}])
def test_t5_metadata_without_counts_leaves_them_unknown(
    owner: Owner, reader_of: ReaderOf, store: Store, metadata: object
) -> None:
    owner.add([row(1, metadata=metadata)])
    assert reader_of(owner).run().accepted == 1
    assert [(f["prompt_tokens"], f["cached_tokens"]) for f in requests(store)] == [(101, None)]


# ---------------------------------------------------------------- no more than is needed


def lines_of(owner: Owner, names: SourceNames | None = None) -> list[dict[str, Any]]:
    """What leaves the database of every row."""
    address = Address.of(owner.server.address(owner.database))
    with Database(address, SpendLogSettings()) as database:
        asked = statements(spend_log_table(database), names)
        return [json.loads(found["line"]) for found in database.rows(asked.newest, 100)]


def test_nothing_that_people_wrote_leaves_the_database(owner: Owner, password: str) -> None:
    owner.add([row(1)])
    (line,) = lines_of(owner)
    assert CANARY not in json.dumps(line)
    assert line["metadata"]["usage_object"] == {"prompt_tokens_details": {"cached_tokens": 1}}
    assert not {"messages", "response", "proxy_server_request", "request_tags"} & line.keys()


def test_heavy_columns_stand_in_no_statement(owner: Owner, reader_of: ReaderOf) -> None:
    owner.add([row(1)])
    before = len(owner.server.log.read_text())
    reader_of(owner).run()
    said = owner.server.log.read_text()[before:]
    assert said.count(f'FROM "public".{TABLE}') >= 2
    for column in ("messages", "response", "proxy_server_request"):
        assert f'"{column}"' not in said


def test_a_role_that_may_read_only_the_needed_columns_is_enough(
    owner: Owner, reader_of: ReaderOf, store: Store
) -> None:
    """Then not even a mistake of ours could read a prompt."""
    columns = (
        'request_id, litellm_call_id, "startTime", "endTime", "completionStartTime", metadata, '
        "prompt_tokens, completion_tokens, model, status, cache_hit, call_type"
    )
    owner.run(f"REVOKE SELECT ON {TABLE} FROM reader")
    owner.run(f"GRANT SELECT ({columns}) ON {TABLE} TO reader")
    owner.add([row(1)])
    assert reader_of(owner).run().accepted == 1
    assert prompts(store) == [101]


def test_naming_rules_get_what_they_read(owner: Owner, store: Store, password: str) -> None:
    metadata = {
        "usage_object": {"prompt_tokens_details": {"cached_tokens": 4}},
        "spend_logs_metadata": {"app": {"name": "desk"}, "text": CANARY},
        "requester_custom_headers": {"X-Tenant": "north", "X-Session": CANARY},
    }
    owner.add([row(1, metadata=metadata, request_tags=["blue", "tenant:x"])])
    names = SourceNames.model_validate(
        {
            "tenant": [{"header": "x-tenant"}],
            "route": [{"field": "metadata.spend_logs_metadata.app.name"}],
            "template": [{"field": "request_tags[*]", "pattern": "^tenant:(.+)$"}],
        }
    )
    (line,) = lines_of(owner, names)
    assert CANARY not in json.dumps(line)
    address = owner.server.address(owner.database)
    SpendLogReader(store, address, source="litellm", names=names).run()
    (found,) = requests(store)
    assert (found["tenant"], found["route"], found["template"]) == ("north", "desk", "x")
    assert found["cached_tokens"] == 4


def test_a_rule_for_a_column_with_prompts_is_not_followed(
    owner: Owner, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    owner.add([row(1)])
    names = SourceNames.model_validate({"tenant": [{"field": "proxy_server_request.user"}]})
    (line,) = lines_of(owner, names)
    assert "proxy_server_request" not in line
    assert "proxy_server_request.user is not read from a database" in caplog.text


def test_names_of_rules_are_text_to_the_database(owner: Owner, store: Store, password: str) -> None:
    """Quotes, dollars and comments are part of a name like any letter."""
    keys = ["it's", "$1", "x') --", "ünïcode", "a b; DROP TABLE t"]
    owner.add([row(1, metadata={key: {"team": f"of {key}"} for key in keys})])
    for number, key in enumerate(keys):
        names = SourceNames.model_validate({"tenant": [{"field": f'metadata."{key}".team'}]})
        address, source = owner.server.address(owner.database), f"rule {number}"
        SpendLogReader(store, address, source=source, names=names).run()
        assert [found["tenant"] for found in requests(store, source)] == [f"of {key}"]


def test_many_rules_fit_into_a_statement(owner: Owner, password: str) -> None:
    owner.add([row(1, metadata={f"k{n}": n for n in range(150)})])
    rules = [{"field": f"metadata.k{number}"} for number in range(150)]
    (line,) = lines_of(owner, SourceNames.model_validate({"tenant": rules}))
    assert {line["metadata"][f"k{n}"] for n in range(150)} == set(range(150))


def test_a_value_of_absurd_size_is_one_reject_and_stays_one(
    owner: Owner, reader_of: ReaderOf, store: Store
) -> None:
    huge = {"usage_object": {"prompt_tokens_details": {"cached_tokens": 1}, "x": "y" * 100_000}}
    owner.add([row(1, minutes_ago(3)), row(2, minutes_ago(2), metadata=huge)])
    reader = reader_of(owner)
    summary = reader.run()
    assert (summary.accepted, summary.reasons) == (1, {"too_long": 1})
    for _ in range(2):
        reader.run()
    assert [reason for _, reason in rejects(store)] == ["too_long"]


def test_odd_names_are_quoted(empty: Owner, store: Store, password: str) -> None:
    empty.run('CREATE SCHEMA "Lite""LLM"; GRANT USAGE ON SCHEMA "Lite""LLM" TO reader')
    columns = ", ".join(f'"{n}" {k}' for n, k in ERAS["2026-11"].spend_logs.items())
    empty.run(f'CREATE TABLE "Lite""LLM".{TABLE} ({columns})')
    empty.run(f'GRANT SELECT ON "Lite""LLM".{TABLE} TO reader')
    empty.run(
        f'INSERT INTO "Lite""LLM".{TABLE} (request_id, call_type, prompt_tokens, "startTime", '
        "\"endTime\") VALUES ('it''s', 'acompletion', 7, now(), now())"
    )
    address = f"{empty.server.address(empty.database)}?schema=Lite%22LLM&connection_limit=5"
    assert SpendLogReader(store, address, source="litellm").run().accepted == 1
    assert prompts(store) == [7]


def test_rows_of_one_moment_are_paged_through(
    owner: Owner, reader_of: ReaderOf, store: Store
) -> None:
    moment = minutes_ago(30)
    owner.add([row(number, moment) for number in range(20)])
    assert reader_of(owner, page_rows=3).run().accepted == 20
    assert prompts(store) == list(range(100, 120))


def test_page_size_changes_nothing(owner: Owner, password: str, store: Store) -> None:
    owner.add(map(row, range(23)))
    for rows in (1, 7, 1000):
        address = owner.server.address(owner.database)
        settings = SpendLogSettings(page_rows=rows)
        SpendLogReader(store, address, source=f"by {rows}", settings=settings).run()
        assert prompts(store, f"by {rows}") == list(range(100, 123))


def test_of_the_newest_rows_a_sample_notes_nothing(
    owner: Owner, reader_of: ReaderOf, store: Store
) -> None:
    owner.add(map(row, range(9)))
    reader = reader_of(owner)
    assert reader.sample(4).accepted == 4
    assert prompts(store) == [105, 106, 107, 108]
    assert reader.run().duplicate == 4
    assert prompts(store) == list(range(100, 109))


def test_history_older_than_the_window_is_not_noted_row_by_row(
    owner: Owner, reader_of: ReaderOf, store: Store
) -> None:
    """The bookmark stays as small as the overlap window, whatever the table holds."""
    owner.add(map(row, range(12)))
    owner.add([row(100 + n, minutes_ago(n)) for n in range(3)])
    reader_of(owner).run()
    (kept,) = store.cursor().execute("SELECT count(*) FROM objects_read").fetchall()
    assert kept == (3,)
    assert timedelta(seconds=SpendLogSettings().overlap_seconds) == timedelta(hours=1)
