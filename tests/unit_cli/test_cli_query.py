"""`query` and `now` on a store loaded by `ingest`: figures, forms of output, refusals."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from prefixscope import output
from prefixscope.tables import formatter
from queries import registry
from tests.loopback_answers import Answer, answering

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out


@pytest.fixture
def store(cli: Cli, tmp_path: Path) -> Path:
    """Two tenants: acme 1000 prompt tokens, 700 cached; '' 3000 prompt tokens, not reported."""
    log = tmp_path / "log.jsonl"
    rows = [
        {"request_id": "a", "ts": "2026-03-02T12:00:00Z", "tenant": "acme", "model": "m",
         "prompt_tokens": 1000, "cached_tokens": 700},
        {"request_id": "b", "ts": "2026-03-02T12:30:00Z", "model": "m", "prompt_tokens": 3000},
    ]  # fmt: skip
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = cli("ingest", log, "--store", tmp_path / "store", "--format", "ndjson")
    assert done.status == 0, done.err
    return tmp_path / "store"


def test_json_is_a_list_of_all_columns(cli: Cli, store: Path) -> None:
    done = cli("query", "hit_ratio", "--store", store, "--output", "json")
    (row,) = json.loads(done.out)
    assert (row["requests"], row["prompt_tokens"], row["cached_tokens"]) == (2, 4000, 700)
    assert (row["token_hit_ratio"], row["coverage_ratio"]) == (0.7, 0.25)
    assert list(row) == [c for c in registry.question("hit_ratio").columns if c != "value"]
    assert done.err.strip() == f"Asking the store in {store}"


def test_by_names_the_column(cli: Cli, store: Path) -> None:
    done = cli("query", "hit_ratio", "--by", "tenant", "--store", store, "--output", "json")
    assert [(r["tenant"], r["token_hit_ratio"]) for r in json.loads(done.out)] == [
        ("", None),
        ("acme", 0.7),
    ]


def test_a_table_shows_no_zero_for_what_nobody_reported(cli: Cli, store: Path) -> None:
    done = cli("query", "hit_ratio", "--by", "tenant", "--store", store)
    unreported, acme = (line.split() for line in done.out.splitlines()[1:])
    assert unreported[2:7] == ["–", "0.00%", "3,000", "–", "–"]
    assert acme[1:6] == ["70.00%", "100.00%", "1,000", "700", "300"]
    moved = cli("query", "movers", "--by", "tenant", "--store", store)
    (unreported,) = (line.split() for line in moved.out.splitlines() if "3,000" in line)
    assert unreported[2:6] == ["3,000", "–", "0.00%", "–"]


def test_questions_are_listed_before_there_is_a_store(cli: Cli, tmp_path: Path) -> None:
    listed = cli("query", "--store", tmp_path)
    assert listed.status == 0
    assert {line.split()[0] for line in listed.out.splitlines()} >= set(registry.questions())
    wrong = cli("query", "hit_rate", "--store", tmp_path)
    assert wrong.status == 2
    assert "did you mean hit_ratio" in " ".join(wrong.err.split())


def test_an_exporter_older_than_a_question_is_to_be_started_again(cli: Cli) -> None:
    unknown = Answer('{"error": "unknown question \'waterfall\'; known: hit_ratio"}', status=404)
    with answering({"/api/v1/query/waterfall": unknown}) as server:
        done = cli("query", "waterfall", "--url", server.url)
    assert done.status == 2
    assert "does not know waterfall yet" in done.err
    assert "start it again" in " ".join(done.err.split())


def test_csv_leaves_the_unknown_empty(cli: Cli, store: Path) -> None:
    done = cli("query", "hit_ratio", "--by", "tenant", "--store", store, "--output", "csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [r["token_hit_ratio"] for r in rows] == ["", "0.7"]


def test_arrow_is_a_stream(store: Path) -> None:
    command = [sys.executable, "-m", "prefixscope", "query", "hit_ratio", "--store", str(store)]
    done = subprocess.run([*command, "--output", "arrow"], capture_output=True, check=True)
    assert pa.ipc.open_stream(done.stdout).read_all().to_pylist()[0]["cached_tokens"] == 700


def test_a_table_has_units_and_says_what_was_left_out(cli: Cli, store: Path) -> None:
    done = cli("query", "hit_ratio", "--by", "tenant", "--store", store)
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0][:4] == ["tenant", "token", "hit", "ratio"]
    assert lines[1][:5] == ["(not", "given)", "–", "0.00%", "3,000"]
    assert lines[2][:4] == ["acme", "70.00%", "100.00%", "1,000"]
    assert "more columns with --output json" in done.err


def test_one_row_stands_upright_and_no_traffic_is_a_dash(cli: Cli, store: Path) -> None:
    done = cli("query", "hit_ratio", "--store", store, "--param", "tenant=nobody")
    facts = dict(line.rsplit(maxsplit=1) for line in done.out.splitlines())
    assert facts["token_hit_ratio"] == "–"
    assert facts["requests"] == "0"


def test_upright_text_begins_beside_its_name_and_numbers_end_together(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A program's width is 1,000: text on its right side would be far away."""
    advice = "Put the clock at the end. " * 10
    table = pa.table({"kind": ["clock"], "requests": [7], "lost_tokens": [12345],
                      "gap_ratio": pa.array([None], pa.float64()), "advice": [advice]})  # fmt: skip
    output.print_table(Console(width=1000), "layout", table, None)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["kind         clock", "requests          7", "lost_tokens  12,345",
                     "gap_ratio         –", f"advice       {advice}".rstrip()]  # fmt: skip


@pytest.mark.parametrize("column", ["imbalance_ratio", "copies_ratio"])
def test_times_as_much_is_a_factor_and_a_part_is_a_percentage(column: str) -> None:
    assert formatter(column)(1.2365) == "1.24"
    assert formatter("routed_ratio")(0.2365) == "23.65%"


def test_scopes_that_were_not_audited_are_not_said_to_share_nothing(cli: Cli, store: Path) -> None:
    done = cli("query", "isolation", "--store", store)
    assert "none has looked yet" in done.out


def test_windows_take_iso_times_and_spans(cli: Cli, store: Path) -> None:
    def requests(*window: str) -> int:
        done = cli("query", "hit_ratio", "--store", store, "--output", "json", *window)
        return int(json.loads(done.out)[0]["requests"])

    assert requests("--since", "2026-03-02T12:30:00Z") == 1
    assert requests("--until", "2026-03-02T12:30:00Z") == 1
    assert requests("--since", "1h") == 0
    assert requests("--since", "50000d") == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "known"),
        (["hit_ratio", "--by", "planet"], "tenant"),
        (["hit_ratio", "--since", "soonish"], "soonish"),
        (["hit_ratio", "--param", "planet=x"], "known parameters"),
        (["hit_ratio", "--param", "planet"], "NAME=VALUE"),
        (["hit_ratio", "--output", "xml"], "json"),
        (["hit_ratio", "--url", "http://127.0.0.1:9"], "not both"),
    ],
)
def test_wrong_usage_is_2_and_says_what_is_right(
    cli: Cli, store: Path, arguments: list[str], says: str
) -> None:
    done = cli("query", *arguments, "--store", store)
    assert (done.status, done.out) == (2, "")
    assert says.lower() in done.err.lower()


def test_no_store_and_no_exporter_is_1_and_says_what_to_do(cli: Cli) -> None:
    for arguments in (["--store", "nowhere"], []):
        done = cli("query", "hit_ratio", *arguments)
        assert (done.status, done.out) == (1, "")
        assert done.err.startswith("error: there is no store in ")
        assert "prefixscope ingest FILE" in done.err
    assert not Path("nowhere").exists()


def test_an_address_without_an_exporter_is_1(cli: Cli) -> None:
    done = cli("query", "hit_ratio", "--url", "http://127.0.0.1:9")
    assert done.status == 1
    assert "no exporter answers at http://127.0.0.1:9" in done.err


def test_now_shows_verdict_and_facts(cli: Cli, store: Path) -> None:
    done = cli("now", "--store", store)
    assert done.status == 0, done.err
    assert "Stale: the newest data is " in done.out
    assert "hit ratio 70 %" in done.out
    assert "basis request log · coverage 25 %" in done.out
    assert "Telemetry fault: The newest data is " in done.out


def test_now_takes_the_filters_of_the_page(cli: Cli, store: Path) -> None:
    done = cli("now", "--store", store, "--model", "nobody", "--at", "1h", "--zone", "Asia/Tokyo")
    assert done.status == 0, done.err
    assert "No traffic with these filters in the hour to " in done.out
    assert "(Asia/Tokyo)" in done.out
    for wrong, says in (
        (("--at", "soon"), "not a time"),
        (("--at", "2999-01-01"), "has not come yet"),
        (("--zone", "Mars"), "is no time zone"),
    ):
        done = cli("now", "--store", store, *wrong)
        assert (done.status, says in " ".join(done.err.split())) == (2, True), done.err


def test_now_on_an_empty_store_says_the_first_step(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    assert cli("ingest", tmp_path / "empty", "--store", tmp_path / "store").status == 0
    done = cli("now", "--store", tmp_path / "store")
    assert done.status == 0, done.err
    assert "No data yet." in done.out


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_a_narrow_terminal_shows_fewer_columns_but_cuts_no_number(width: int) -> None:
    table = pa.table(
        {
            "tenant": ["a" * 100, "b"],
            "token_hit_ratio": [0.805812, None],
            "prompt_tokens": [242_601_123, 1],
            "cached_tokens": [195_477_345, 0],
        }
    )
    text = io.StringIO()
    left_out = output.print_table(Console(file=text, width=width), "hit_ratio", table, "tenant")
    assert "…" not in text.getvalue()
    shown = [n for n in ("80.58%", "242,601,123", "195,477,345") if n in text.getvalue()]
    assert len(shown) == 3 - left_out
    assert left_out == {20: 3, 40: 3, 60: 2, 80: 0, 200: 0}[width]
    assert text.getvalue().count("a") >= 100


def test_hostile_text_is_text_and_not_markup() -> None:
    table = pa.table({"tenant": ["[red]x[/]", "[/nonsense]"], "requests": [1, 2]})
    text = io.StringIO()
    output.print_table(Console(file=text, width=100), "other", table, "tenant")
    assert "[red]x[/]" in text.getvalue()
    assert "[/nonsense]" in text.getvalue()


def test_json_and_csv_are_strict() -> None:
    table = pa.table(
        {
            "ratio": pa.array([float("nan"), 0.5]),
            "flags": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
            "text": ['a"b,c\n', None],
            "yes": [True, False],
        }
    )
    rows = json.loads(output.to_json(table), parse_constant=pytest.fail)
    assert rows == [
        {"ratio": None, "flags": {"a": 1}, "text": 'a"b,c\n', "yes": True},
        {"ratio": 0.5, "flags": None, "text": None, "yes": False},
    ]
    assert list(csv.reader(io.StringIO(output.to_csv(table)))) == [
        ["ratio", "flags", "text", "yes"],
        ["", '{"a": 1}', 'a"b,c\n', "true"],
        ["0.5", "", "", "false"],
    ]
