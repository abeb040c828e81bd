"""Exports whose rows are an array, or printed over several lines, are read like one row a line."""

import gzip
import io
import json
from pathlib import Path

import pytest

from exporter.errors import PrefixscopeError
from exporter.sources.intake import Intake
from exporter.sources.packed import open_input
from exporter.store.store import Store
from tests.log_path import NOON, Row, by_id, load, ndjson, rejects, requests


def row(name: str, **more: object) -> Row:
    return {"request_id": name, "ts": NOON, "prompt_tokens": 100, "cached_tokens": 64, **more}


ROWS = [row("a", tenant="Zoë"), row("b", nested={"x": [1, {"y": "]},["}]}), row("c")]
LAYOUTS = {
    "array on one line": json.dumps(ROWS),
    "array without an end of line": json.dumps(ROWS) + "\n\n",
    "array over lines": json.dumps(ROWS, indent=2, ensure_ascii=False),
    "an element a line": "[\n" + ",\n".join(json.dumps(r) for r in ROWS) + "\n]\n",
    "objects over lines": "\n".join(json.dumps(r, indent=2) for r in ROWS),
    "one object over lines": json.dumps(ROWS[0], indent=4),
    "after a byte order mark": "\ufeff" + json.dumps(ROWS, indent=1, ensure_ascii=False),
    "with Windows ends": json.dumps(ROWS, indent=2).replace("\n", "\r\n"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_rows(store: Store, layout: str) -> None:
    summary = load(store, LAYOUTS[layout].encode(), format="auto")
    expected = ROWS[:1] if layout.startswith("one") else ROWS
    assert (summary.format, summary.accepted, summary.rejected) == ("ndjson", len(expected), 0)
    assert set(by_id(store)) == {r["request_id"] for r in expected}
    assert by_id(store)["a"]["tenant"] == "Zoë"


def test_rows_are_the_same_whatever_their_layout(store: Store) -> None:
    load(store, ROWS)
    again = load(store, LAYOUTS["array over lines"].encode())
    assert (again.accepted, again.duplicate) == (0, 3)


def test_a_long_array_is_read_piece_by_piece(store: Store, tmp_path: Path) -> None:
    many = [row(f"r{number}", note="é" * (number % 700)) for number in range(3000)]
    path = tmp_path / "export.json.gz"
    path.write_bytes(gzip.compress(json.dumps(many, ensure_ascii=False, indent=1).encode()))
    with path.open("rb") as raw:
        summary = Intake(store).ingest(open_input(raw), source="export", name="export.json.gz")
    assert (summary.accepted, summary.rejected) == (3000, 0)
    assert len(requests(store, "export")) == 3000


def test_what_is_no_row_is_rejected_by_its_number(store: Store) -> None:
    values = [*ROWS[:1], 42, "text\nover lines", None, [1], ROWS[1]]
    summary = load(store, json.dumps(values).encode())
    assert summary.accepted == 2
    assert rejects(store) == [(number, "not_an_object") for number in (2, 3, 4, 5)]


@pytest.mark.parametrize("broken", ['{"request_id": "d", ', "}", "NOT", '{"a": 1} ] more'])
def test_a_broken_rest_is_an_error_and_the_rows_before_it_stay(store: Store, broken: str) -> None:
    data = (json.dumps(ROWS)[:-1] + ", " + broken).encode()
    with pytest.raises(
        PrefixscopeError, match=r"^log\.json: value [45] of its JSON cannot be read"
    ):
        Intake(store).ingest(io.BytesIO(data), source="log", name="log.json")
    assert {"a", "b", "c"} <= set(by_id(store))


def test_bytes_that_are_no_text_end_it(store: Store) -> None:
    data = b"[" + json.dumps(ROWS[0]).encode() + b", " + b'{"a": "' + b"\xff" * 9 + b'"}]'
    with pytest.raises(PrefixscopeError, match="its JSON is not UTF-8"):
        load(store, data + b" " * (1 << 19))
    huge = json.dumps([ROWS[0], row("huge", note="x" * (3 << 20))]).encode()
    with pytest.raises(
        PrefixscopeError, match=r"value 2 .* more than 1 MiB; what came before it is stored: 1 row"
    ):
        load(store, huge, "huge")


def test_lines_stay_lines(store: Store) -> None:
    lines = [b'[{"request_id": "no"}]', b"[]", b"{", *(ndjson([r]).strip() for r in ROWS)]
    summary = load(store, lines)
    assert summary.accepted == 3
    assert rejects(store) == [(1, "not_an_object"), (2, "not_an_object"), (3, "invalid_json")]
