"""Rules of every kind, from a row to its name in the store."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.sources.formats import FORMATS, format_named
from exporter.sources.formats.careful import compile_careful
from exporter.sources.formats.mapping import LogFormat
from exporter.sources.formats.names import with_names
from exporter.sources.formats.quick import compile_quick
from exporter.sources.log_settings import LogSettings
from exporter.sources.tail import Tailer
from exporter.store.store import Store
from tests import strategies
from tests.log_path import NOON, ask, by_id, hit_ratio, load, ndjson, requests
from tests.unit_formats.test_two_readings import comparable, reading
from tests.unit_names.naming import expected, named, rules, values

HEADER = [{"header": "X-Tenant"}]


# ------------------------------------------------------------- one kind at a time


@pytest.mark.parametrize(
    "row",
    [
        {"headers": {"x-tenant": "acme"}},
        {"request": {"headers": {"X-TENANT": "acme"}}},
        {"request_headers": {"X-Tenant": ["acme", "other"]}},
        {"http": {"request": {"headers": {"accept": "*/*", "x-Tenant": " acme\n"}}}},
        {"metadata": {"requester_custom_headers": {"x-tenant": "acme"}}},
        {"metadata": {"requester_metadata": {"headers": {"X-Tenant": "acme"}}}},
        {"proxy_server_request": {"headers": {"x-tenant": "acme"}}},
    ],
    ids=lambda row: next(iter(row)),
)
def test_a_header_is_found_wherever_rows_keep_headers(store: Store, row: dict[str, Any]) -> None:
    assert values(store, [row], tenant=HEADER) == ["acme"]


def test_what_is_no_header_names_nobody(store: Store) -> None:
    rows: list[dict[str, Any]] = [
        {"headers": "x-tenant: acme"},
        {"headers": ["x-tenant"]},
        {"headers": {"x-tenant": {"id": "acme"}}},
        {"headers": {"x-tenant": ""}},
        {"headers": {"x-tenant": "-"}},
        {"headers": {"x-tenant": None}},
        {"headers": {"x-tenant-id": "acme"}},
        {"x-tenant": "acme"},
    ]
    assert values(store, rows, tenant=HEADER) == [None] * len(rows)


def test_a_path_leads_through_objects_and_keys_with_dots(store: Store) -> None:
    row = {"a": {"b": {"c": "deep"}}, "x": {"y.z": {"w": 42}}, "list": [{"n": "first"}, {"n": 2}]}
    found = named(
        store,
        [row],
        tenant=[{"field": "a.b.c"}],
        route=[{"field": 'x."y.z".w'}],
        template=[{"field": "list[1].n"}],
        session=[{"field": "list[*].n"}],
    )["r0"]
    assert (found["tenant"], found["route"]) == ("deep", "42")
    assert (found["template"], found["session"]) == ("2", "first")


def test_objects_and_lists_are_no_names(store: Store) -> None:
    rows: list[dict[str, Any]] = [
        {"team": {"id": "a"}}, {"team": ["a"]}, {"team": None}, {"team": True}, {"team": 1.5},
    ]  # fmt: skip
    assert values(store, rows, tenant=[{"field": "team"}]) == [None, None, None, "true", "1.5"]


def test_the_first_element_that_fits_names(store: Store) -> None:
    rule = {"field": "tags[*]", "pattern": "^tenant:(.+)$"}
    rows: list[dict[str, Any]] = [
        {"tags": ["a", "tenant:", "tenant:acme", "tenant:other"]},
        {"tags": [{"tenant:x": 1}, ["tenant:y"], None, 7, "tenant:zed"]},
        {"tags": "tenant:acme"},
        {"tags": ["x"] * 63 + ["tenant:last"]},
        {"tags": ["x"] * 64 + ["tenant:beyond"]},
    ]
    assert values(store, rows, tenant=[rule]) == ["acme", "zed", None, "last", None]


def test_a_lookup_file_gives_names_and_leaves_the_rest_to_the_next_rule(
    store: Store, tmp_path: Path
) -> None:
    table = tmp_path / "tenants.csv"
    table.write_text('value,name\nk1,Team One\n"k,2","the ""second"""\n')
    mapping = tmp_path / "tenants.json"
    mapping.write_text(json.dumps({"k3": "Drei", "üñ": "ü"}))
    rows: list[dict[str, Any]] = [{"key": k} for k in ("k1", "k,2", "k3", "üñ", "K1", 7)]
    found = values(
        store,
        rows,
        tenant=[
            {"field": "key", "lookup": str(table)},
            {"field": "key", "lookup": str(mapping)},
            {"constant": "unknown"},
        ],
    )
    assert found == ["Team One", 'the "second"', "Drei", "ü", "unknown", "unknown"]


def test_a_large_lookup_file_is_read_right(store: Store, tmp_path: Path) -> None:
    """More entries than buckets, so that every bucket holds several."""
    table = tmp_path / "many.csv"
    table.write_text("".join(f"key-{n},team-{n % 7}\n" for n in range(10_000)))
    rows: list[dict[str, Any]] = [{"key": f"key-{n}"} for n in range(0, 10_050, 50)]
    found = values(store, rows, tenant=[{"field": "key", "lookup": str(table)}])
    assert found == [*(f"team-{n % 7}" for n in range(0, 10_000, 50)), None]


def test_rules_come_before_what_the_format_reads_unless_told_otherwise(store: Store) -> None:
    row = {"tenant": "own", "headers": {"x-tenant": "header"}}
    rows: list[dict[str, Any]] = [row, {"tenant": "own"}, {}]
    last = [*HEADER, {"mapped": True}, {"constant": "nobody"}]
    assert values(store, rows, tenant=HEADER) == ["header", "own", None]
    first = [{"mapped": True}, *HEADER]
    assert [found["tenant"] for found in named(store, rows, "b", tenant=last).values()] == [
        "header", "own", "nobody",
    ]  # fmt: skip
    assert [found["tenant"] for found in named(store, rows, "c", tenant=first).values()] == [
        "own", "own", None,
    ]  # fmt: skip


def test_defaults_of_a_source_fill_what_no_rule_names(store: Store) -> None:
    rows = [{"request_id": "a", "headers": {"x-tenant": "acme"}}, {"request_id": "b"}]
    load(store, rows, names={"log": rules(tenant=HEADER)}, defaults={"tenant": "usual"})
    found = by_id(store)
    assert (found["a"]["tenant"], found["b"]["tenant"]) == ("acme", "usual")


def test_text_longer_than_a_name_is_none(store: Store) -> None:
    """A prompt under a harmless key must not be kept, not even its beginning."""
    rows: list[dict[str, Any]] = [
        {"team": "x" * 256}, {"team": "x" * 257}, {"team": "é" * 256},
        {"team": "id:acme" + "x" * 300},
    ]  # fmt: skip
    listed = [{"field": "team"}, {"field": "team", "pattern": "^id:(acme)"}]
    assert values(store, rows, tenant=listed) == ["x" * 256, None, "é" * 256, "acme"]


def test_hashed_names_are_keyed_and_alike_for_alike(store: Store) -> None:
    rule = {"header": "authorization", "hashed": True}
    rows: list[dict[str, Any]] = [
        {"headers": {"Authorization": f"Bearer {key}"}} for key in ("sk-1", "sk-1", "sk-2")
    ]
    one, same, other = values(store, rows, tenant=[rule])
    assert one == same != other
    assert re.fullmatch("[0-9a-f]{16}", str(one))


@pytest.mark.parametrize(
    "constant",
    [
        "it's",
        "$key",
        "$default_tenant",
        "<mapped>",
        "<input>",
        "FROM lines",
        "a\\x24b",
        "é🔑",
        "{0}",
    ],
)
def test_text_of_a_rule_cannot_be_taken_for_sql(store: Store, constant: str) -> None:
    escaped = re.escape(constant).replace("/", r"\/")
    rows: list[dict[str, Any]] = [{}, {"team": f"is {constant}!"}, {constant: "by key"}]
    quoted = {"field": f'"{constant}"'} if "\\" not in constant else {"field": "none"}
    found = values(
        store,
        rows,
        tenant=[
            {"field": "team", "pattern": f"^is ({escaped})!$"},
            quoted,
            {"constant": constant},
        ],
    )
    assert found[:2] == [constant, constant]
    assert found[2] == ("by key" if "\\" not in constant else constant)


PRINTABLE = st.text(min_size=1, max_size=60).filter(lambda text: text.isprintable())


@settings(max_examples=12, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(
    st.dictionaries(PRINTABLE, PRINTABLE, max_size=16), PRINTABLE, st.lists(st.text(), max_size=16)
)
def test_any_text_is_a_constant_a_lookup_or_a_name(
    tmp_path: Path, table: dict[str, str], constant: str, found: list[str]
) -> None:
    """One reading of a row for each text of the log and each of the table."""
    file = tmp_path / "table.json"
    file.write_text(json.dumps(table))
    looked_up = {"field": "x", "lookup": str(file)}
    listed = [looked_up, {"field": "x", "pattern": "(?s)^(.*[0-9])"}, {"constant": constant}]
    rows = [{"x": text} for text in [*found, *table]]
    by_rules = with_names(format_named("ndjson"), rules(tenant=listed))
    lines = [json.dumps({"request_id": "r", "ts": NOON, "prompt_tokens": 9, **row}) for row in rows]
    stripped = {key.strip(): name.strip() for key, name in table.items() if name.strip()}
    for number, row in reading(compile_careful(by_rules), lines, {}).items():
        text = rows[number]["x"][:1024].strip(" \t\n\r")
        digits = re.match("(?s)^(.*[0-9])", text)
        right = stripped.get(text) if text not in ("", "-") else None
        right = right or (digits[1] if digits and text != "-" else None) or constant
        assert row["tenant"] == right, lines[number]


# ------------------------------------------------------------- every way in, every format

RULES: dict[str, list[dict[str, Any]]] = {
    "tenant": [
        {"header": "x-tenant"},
        {"field": "labels.team"},
        {"field": "labels.tags[*]", "pattern": "^tenant:(.+)$"},
        {"mapped": True},
        {"constant": "nobody"},
    ],
    "route": [{"field": 'labels."a.b"', "pattern": "^/v1/([a-z]+)"}],
    "template": [{"mapped": True}, {"field": "labels.template"}],
    "session": [{"header": "authorization", "hashed": True}],
}
ODD: list[Any] = [
    None, True, 0, -1, 1.5, "", "-", " ", "acme", " acme\t", "é" * 200, "x" * 257, "x" * 2000, {},
    {"a": 1}, [], ["first"], [["x"]], [{"a": 1}], "{braced}", "[listed]", "/v1/chat?x", "quo\"te",
    "tenant:zed", ["a", "tenant:", "tenant:zed"], [None, 3, {"tenant:x": 1}, "tenant:q"], "a\x00b",
]  # fmt: skip


def labelled(log_format: LogFormat, chance: Random) -> str:
    """A line of the format, mostly with something in the places that rules look at."""
    line = strategies.line_of(log_format, chance)
    try:
        row = json.loads(line)
    except ValueError:
        return line
    if chance.random() < 0.6:
        places = ("headers", "request_headers")
        names = ("x-tenant", "X-Tenant", "authorization", "Accept")
        headers = {name: chance.choice(ODD) for name in names if chance.random() < 0.4}
        row[chance.choice(places)] = chance.choice([headers] * 9 + ODD)
    if chance.random() < 0.7:
        keys = ("team", "tags", "a.b", "template")
        labels = {key: chance.choice(ODD) for key in keys if chance.random() < 0.5}
        row["labels"] = chance.choice([labels] * 9 + ODD)
    return json.dumps(row)


@pytest.mark.parametrize("log_format", FORMATS, ids=lambda log_format: log_format.name)
def test_both_readings_name_alike_and_as_described(log_format: LogFormat) -> None:
    """Quick and careful agree, and both give what the rules say in plain Python."""
    chance = Random(log_format.name)
    lines = [labelled(log_format, chance) for _ in range(500)]
    with_rules = with_names(log_format, rules(**RULES))
    plain = reading(compile_careful(log_format), lines, {})
    careful = reading(compile_careful(with_rules), lines, {})
    quick = reading(compile_quick(with_rules), lines, {})
    for number, row in quick.items():
        assert comparable(row) == comparable(careful[number]), lines[number]
    described = 0
    for number, row in careful.items():
        if row["reason"] in ("invalid_json", "not_an_object"):
            continue
        parsed = json.loads(lines[number])
        for field, listed in RULES.items():
            mapped = plain[number].get(field)
            assert row[field] == expected(parsed, listed, mapped), (field, lines[number])
            described += row[field] is not None
    assert described > 300
    untouched = {name for name in careful[0] if name not in (*RULES, "line_number", "outcome")}
    for number, row in plain.items():
        same = {name: careful[number][name] for name in untouched & set(row)}
        assert same == {name: row[name] for name in untouched & set(row)}, lines[number]


def as_file(store: Store, data: bytes, folder: Path) -> None:
    load(store, data, "as_file", names={"as_file": rules(**RULES)})


def over_http(store: Store, data: bytes, folder: Path) -> None:
    load(store, data, "over_http", origin="http", names={"over_http": rules(**RULES)})


def followed(store: Store, data: bytes, folder: Path) -> None:
    log = folder / "followed.jsonl"
    log.write_bytes(data)
    logs = LogSettings(source="followed", path=str(log))
    follower = Tailer(store, logs, names=rules(**RULES))
    follower.poll_once()
    assert follower.errors == {}
    follower.stop()


def test_a_file_an_http_body_and_a_followed_log_are_named_alike(
    store: Store, tmp_path: Path
) -> None:
    chance = Random("ways")
    ndjson_format = next(known for known in FORMATS if known.name == "ndjson")
    rows = [
        re.sub('"request_id": "[abc]+"', f'"request_id": "r{number}"', line)
        for number, line in enumerate(labelled(ndjson_format, chance) for _ in range(200))
    ]
    ways: list[Callable[[Store, bytes, Path], None]] = [as_file, over_http, followed]
    found = []
    for way in ways:
        way(store, ndjson(rows), tmp_path)
        found.append(
            sorted(
                repr([row[field] for field in (*RULES, "prompt_tokens")])
                for row in requests(store, way.__name__)
            )
        )
    assert len(found[0]) > 100
    assert found[0] == found[1] == found[2]


def test_rules_are_those_of_the_source_alone(store: Store) -> None:
    row = {"request_id": "a", "prompt_tokens": 9, "headers": {"x-tenant": "acme"}}
    names = {"gateway": rules(tenant=HEADER)}
    load(store, [row], "gateway", names=names)
    load(store, [row], "engine", names=names)
    assert by_id(store, "gateway")["a"]["tenant"] == "acme"
    assert by_id(store, "engine")["a"]["tenant"] is None


# ------------------------------------------------------------- traps


def test_t12_a_ratio_by_named_tenant_is_a_ratio_of_sums(store: Store) -> None:
    """10 of 1000 and 900 of 1000 tokens, and 50 of 100: 910 ÷ 2000 and 50 ÷ 100."""
    rows = [
        {"request_id": "a", "prompt_tokens": 1000, "cached_tokens": 10, "labels": {"t": "acme"}},
        {"request_id": "b", "prompt_tokens": 1000, "cached_tokens": 900, "labels": {"t": "acme"}},
        {"request_id": "c", "prompt_tokens": 100, "cached_tokens": 50, "labels": {"t": "zed"}},
    ]
    load(store, rows, names={"log": rules(tenant=[{"field": "labels.t"}])})
    found = {row["tenant"]: row["token_hit_ratio"] for row in ask(store, "hit_ratio", by="tenant")}
    assert found == {"acme": 0.455, "zed": 0.5}


def test_t63_a_name_that_is_a_number_is_text_and_the_same_one(store: Store) -> None:
    """Nothing for 3000 rows, then a number, then the same as text: columns stay as they are."""
    rows: list[dict[str, Any]] = [{"team": None}] * 3000 + [{"team": 429}, {"team": "429"}]
    found = values(store, rows, tenant=[{"field": "team"}])
    assert found == [None] * 3000 + ["429", "429"]


def test_t67_changed_rules_never_count_a_row_twice(store: Store) -> None:
    """The row that came first stays as it was named, and the contradiction is reported."""
    row = {"request_id": "a", "prompt_tokens": 1000, "cached_tokens": 400, "team": "acme"}
    load(store, [row], names={"log": rules(tenant=[{"field": "team"}])})
    same = load(store, [row], names={"log": rules(tenant=[{"field": "team"}])})
    assert (same.accepted, same.duplicate, same.conflicting) == (0, 1, 0)
    changed = load(store, [row], names={"log": rules(tenant=[{"constant": "other"}])})
    assert (changed.accepted, changed.conflicting) == (0, 1)
    assert by_id(store)["a"]["tenant"] == "acme"
    total = hit_ratio(store)
    assert (total["prompt_tokens"], total["cached_tokens"]) == (1000, 400)


def test_t66_lines_of_one_response_are_one_named_request(store: Store) -> None:
    """The numbers of the trap, with the name in every line: 2 + 15030 + 8655 = 23687."""
    usage = {"input_tokens": 2, "cache_read_input_tokens": 15030,
             "cache_creation_input_tokens": 8655}  # fmt: skip
    lines = [
        {"timestamp": "2026-03-02T12:00:00Z", "metadata": {"team": "acme"},
         "message": {"id": "m1", "usage": {**usage, "output_tokens": output}}}
        for output in (9, 9, 159)
    ]  # fmt: skip
    names = {"log": rules(tenant=[{"field": "metadata.team"}])}
    load(store, lines, format="anthropic", names=names)
    [row] = requests(store)
    assert (row["prompt_tokens"], row["cached_tokens"], row["output_tokens"]) == (23687, 15030, 159)
    assert row["tenant"] == "acme"
