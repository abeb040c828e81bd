"""`prefixscope names` and `ingest --names`: what a person sees, and that nothing is stored."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporter.store.store import Store
from tests.log_path import SMALL
from tests.unit_cli.conftest import cli as cli_fixture

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out
cli = cli_fixture
ROOT = Path(__file__).parents[2]
PROMPT = "Zebra-Quartz vault"
SETTINGS = """
names:
  gateway:
    tenant:
      - header: x-tenant
      - field: metadata.team
      - field: request_tags[*]
        pattern: '^tenant:(.+)$'
      - mapped: true
      - constant: nobody
    route:
      - field: nowhere
  engine:
    tenant:
      - constant: all of it
"""
ROWS: list[dict[str, Any]] = [
    {"headers": {"X-TENANT": "acme"}, "metadata": {"team": "lower"}},
    {"metadata": {"team": 7}},
    {"request_tags": ["a", "tenant:zed"]},
    {"tenant": "own"},
    {},
]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Settings with rules for two sources, and a log with prompts and a broken line."""
    settings, log = tmp_path / "prefixscope.yml", tmp_path / "gateway.jsonl"
    settings.write_text(SETTINGS)
    rows = [
        {"request_id": f"r{number}", "ts": "2026-03-02T12:00:00Z", "prompt_tokens": 100,
         "route": "chat", "messages": [{"role": "user", "content": PROMPT}],
         "prompt": PROMPT, **row}
        for number, row in enumerate(ROWS)
    ]  # fmt: skip
    log.write_text("".join(json.dumps(row) + "\n" for row in rows) + f"{PROMPT}\n")
    return settings, log


def entries(cli: Cli, *arguments: object) -> list[dict[str, Any]]:
    done = cli("names", *arguments, "--output", "json")
    assert done.status == 0, done.err
    rows: list[dict[str, Any]] = json.loads(done.out)
    return rows


def test_each_row_tells_which_rule_gave_which_value(cli: Cli, files: tuple[Path, Path]) -> None:
    settings, log = files
    found = entries(cli, log, "--config", settings, "--source", "gateway")
    tenants = [(e["line"], e["value"], e["given_by"]) for e in found if e["field"] == "tenant"]
    assert tenants == [
        (1, "acme", "rule 1: header x-tenant"),
        (2, "7", "rule 2: field metadata.team"),
        (3, "zed", "rule 3: field request_tags[*], pattern ^tenant:(.+)$"),
        (4, "own", "the format"),
        (5, "nobody", "rule 5: constant nobody"),
    ]
    assert {(e["value"], e["given_by"]) for e in found if e["field"] == "route"} == {
        ("chat", "the format")
    }
    assert [e["given_by"] for e in found if e["line"] == 6] == ["row is rejected: invalid_json"]
    assert {e["file"] for e in found} == {str(log)}


def test_what_it_shows_is_what_ingest_stores(cli: Cli, files: tuple[Path, Path]) -> None:
    settings, log = files
    shown = entries(cli, log, "--config", settings, "--source", "gateway")
    done = cli("ingest", log, "--source", "gateway", "--names", settings, "--store", "store")
    assert done.status == 0, done.err
    by_tenant = cli("query", "hit_ratio", "--by", "tenant", "--store", "store", "--output", "json")
    assert {row["tenant"]: row["requests"] for row in json.loads(by_tenant.out)} == {
        e["value"]: 1 for e in shown if e["field"] == "tenant"
    }


def test_the_summary_counts_rules_and_rows_without_a_name(
    cli: Cli, files: tuple[Path, Path]
) -> None:
    settings, log = files
    done = cli("names", log, "--config", settings, "--source", "gateway", "--rows", "0")
    assert done.status == 0, done.err
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert "Source gateway: 5 rows named, 1 rejected" in lines
    assert "tenant rule 1: header x-tenant 1 20.0 %" in lines
    assert "tenant the format 1 20.0 %" in lines
    assert "route rule 1: field nowhere 0 0.0 %" in lines
    assert "route the format 5 100.0 %" in lines
    assert "route: rule 1 (field nowhere) named no row of this sample" in lines
    assert not any(line.startswith(("1 ", "2 ")) for line in lines), "--rows 0 shows no row"


def test_nothing_but_names_is_printed_and_nothing_is_written(
    cli: Cli, files: tuple[Path, Path], tmp_path: Path
) -> None:
    settings, log = files
    before = sorted(tmp_path.rglob("*"))
    for form in ("table", "json", "csv"):
        done = cli("names", log, "--config", settings, "--source", "gateway", "--paths",
                   "--output", form)  # fmt: skip
        assert done.status == 0, done.err
        assert "acme" in done.out
        assert not any(word in done.out + done.err for word in PROMPT.split())
        assert "lower" not in done.out, "a value that a rule before it hides"
    assert sorted(tmp_path.rglob("*")) == before


def test_paths_are_listed_without_values_and_prompts_are_not_entered(
    cli: Cli, files: tuple[Path, Path]
) -> None:
    settings, log = files
    done = cli("names", log, "--config", settings, "--source", "gateway", "--rows", "0", "--paths")
    listed = [" ".join(line.split()) for line in done.out.split("Paths\n")[1].splitlines()]
    assert {"route 5", "metadata.team 2", "request_tags[*] 1", "headers.X-TENANT 1"} <= set(listed)
    assert not any("messages" in line or "prompt " in line for line in listed)


def test_names_that_look_like_ids_are_pointed_out(cli: Cli, tmp_path: Path) -> None:
    """25 rows: as many tenants, 5 routes; sessions are ids anyway."""
    settings, log = tmp_path / "s.yml", tmp_path / "log.jsonl"
    settings.write_text(
        "names: {a: {tenant: [{field: user}], route: [{field: way}], session: [{field: user}]}}"
    )
    log.write_text("".join(
        json.dumps({"request_id": str(n), "prompt_tokens": 9, "user": f"u{n}", "way": n % 5}) + "\n"
        for n in range(25)
    ))  # fmt: skip
    out = cli("names", log, "--config", settings).out
    assert "tenant: 25 different values in 25 named rows: these look like ids" in out
    assert "route: 5" not in out
    assert "session: 25" not in out


def test_a_default_of_the_source_is_told_from_rules(cli: Cli, tmp_path: Path) -> None:
    settings, log = tmp_path / "s.yml", tmp_path / "log.jsonl"
    settings.write_text(
        "logs: [{source: a, path: x, format: ndjson, defaults: {tenant: usual, route: main}}]\n"
        "names: {a: {tenant: [{field: team}]}}\n"
    )
    log.write_text('{"request_id": "r", "prompt_tokens": 9}\n')
    found = {e["field"]: (e["value"], e["given_by"])
             for e in entries(cli, log, "--config", settings)}  # fmt: skip
    assert found == {
        "tenant": ("usual", "default of the source"), "route": ("main", "default of the source"),
    }  # fmt: skip


def test_hashes_are_those_of_the_store_where_there_is_one(cli: Cli, tmp_path: Path) -> None:
    settings, log = tmp_path / "s.yml", tmp_path / "log.jsonl"
    settings.write_text(
        "store: {directory: store}\nnames: {a: {tenant: [{header: authorization, hashed: true}]}}\n"
    )
    log.write_text(json.dumps({"request_id": "r", "prompt_tokens": 9,
                               "headers": {"authorization": "Bearer sk-1"}}) + "\n")  # fmt: skip
    done = cli("names", log, "--config", settings)
    assert "There is no readable store/hash.key yet" in done.err
    assert "sk-1" not in done.out
    Store.open(tmp_path / "store", SMALL).close()
    [shown] = entries(cli, log, "--config", settings)
    cli("ingest", log, "--source", "a", "--names", settings, "--store", "store")
    [stored] = json.loads(
        cli("query", "hit_ratio", "--by", "tenant", "--store", "store", "--output", "json").out
    )
    assert stored["tenant"] == shown["value"]


def test_a_name_cannot_steer_the_terminal(cli: Cli, tmp_path: Path) -> None:
    settings, log = tmp_path / "s.yml", tmp_path / "log.jsonl"
    settings.write_text("names: {a: {tenant: [{field: team}]}}\n")
    log.write_text(json.dumps({"request_id": "r", "prompt_tokens": 9,
                               "team": "[red]\x1b[2Jgone[/red]"}) + "\n")  # fmt: skip
    out = cli("names", log, "--config", settings).out
    assert "[red]\\x1b[2Jgone[/red]" in out
    assert "\x1b[2J" not in out


def test_packed_input_and_rows_that_are_taken_apart(cli: Cli, tmp_path: Path) -> None:
    settings, log = tmp_path / "s.yml", tmp_path / "log.jsonl.gz"
    settings.write_text("names: {a: {tenant: [{field: team}]}}\n")
    log.write_bytes(gzip.compress(b'{"request_id": "r", "prompt_tokens": 9, "team": "t"}\n'))
    assert [e["value"] for e in entries(cli, log, "--config", settings)] == ["t"]
    log.write_bytes(log.read_bytes()[:-12])
    broken = cli("names", log, "--config", settings)
    assert broken.status == 1
    assert "damaged or ends early" in broken.err


def test_mistakes_are_told_with_a_remedy(cli: Cli, files: tuple[Path, Path]) -> None:
    settings, log = files
    for arguments, said in (
        ((), "say whose rules to try with --source; sources with rules: gateway, engine"),
        (("--source", "gatewy"), "neither names nor logs has the source 'gatewy'"),
        (("--source", "gateway", "--format", "none"), "no log format is called 'none'"),
    ):
        done = cli("names", log, "--config", settings, *arguments)
        assert done.status == 1
        assert said in " ".join(done.err.split())
    assert cli("names", log).status == 2
    arrow = cli("names", log, "--config", settings, "--source", "engine", "--output", "arrow")
    assert arrow.status == 2
    wrong = cli("ingest", log, "--names", settings, "--store", "store")
    assert wrong.status == 1
    assert "no rules for the source 'file'" in wrong.err
    assert "it has: gateway, engine" in wrong.err


def test_empty_input_has_no_rows(cli: Cli, files: tuple[Path, Path], tmp_path: Path) -> None:
    settings, _ = files
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    done = cli("names", empty, "--config", settings, "--source", "engine")
    assert done.status == 0
    assert "0 rows named, 0 rejected" in done.out


def test_the_page_about_names_shows_what_is_printed(cli: Cli, tmp_path: Path) -> None:
    """Its settings, on the rows it speaks of, up to where it leaves the rest out."""
    page = (ROOT / "docs" / "names.md").read_text(encoding="utf-8")
    settings = page.split("```yaml\n")[1].split("```")[0]
    shown = page.split("--rows 3\n")[1].split("…")[0].splitlines()
    (tmp_path / "prefixscope.yml").write_text(settings)
    (tmp_path / "tenants.csv").write_text("value,name\n88dc28,payments\n")
    rows: list[dict[str, Any]] = [
        {"headers": {"X-Tenant": "acme", "x-session-id": "s-81"}},
        {"metadata": {"team": "search", "prompt_id": "triage"}},
        {"metadata": {"user_api_key_hash": "88dc28", "prompt_id": "triage"}},
        {"request_tags": ["prod", "tenant:zed"]},
    ]
    usage = {"prompt_tokens": 10, "cached_tokens": 1, "route": "chat"}
    (tmp_path / "gateway.jsonl").write_text(
        "".join(json.dumps({"request_id": str(n), **usage, **r}) + "\n" for n, r in enumerate(rows))
    )
    done = cli("names", "gateway.jsonl", "--config", "prefixscope.yml", "--rows", "3")
    assert [line.rstrip() for line in done.out.splitlines()][: len(shown)] == shown
