"""Bytes to lines: borders, tails, over-long and undecodable lines, at any size of read."""

import io
import tracemalloc

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from exporter.sources.lines import LineReader
from exporter.store.store import Store
from tests.log_path import NOON, Row, by_id, load, ndjson, rejects

LIMIT = 64
MARK = b"\xef\xbb\xbf"
GOOD = {"request_id": "good", "ts": NOON, "prompt_tokens": 10}


class Endless(io.RawIOBase):
    """Spaces and one newline at the end, made while they are read; then a normal row."""

    def __init__(self, length: int, behind: bytes) -> None:
        self._left, self._behind = length, behind

    def read(self, size: int = -1) -> bytes:
        if self._left:
            block = min(self._left, size)
            self._left -= block
            return b" " * block
        data, self._behind = self._behind[:size], self._behind[size:]
        return data


def read(
    data: bytes, *, batch_bytes: int = 1 << 20, take_tail: bool = True, limit: int = LIMIT
) -> tuple[list[tuple[int, int, str]], list[tuple[int, int, str]], tuple[int, int]]:
    """Lines as (position, number, text), bad lines as (position, number, reason), the end."""
    lines: list[tuple[int, int, str]] = []
    bad: list[tuple[int, int, str]] = []
    end = (0, 0)
    for batch in LineReader(
        io.BytesIO(data), batch_bytes=batch_bytes, take_tail=take_tail, line_limit_bytes=limit
    ):
        lines += [tuple(row.values()) for row in batch.table.to_pylist()]
        bad += [(b.position, b.line_number, b.reason) for b in batch.bad]
        end = (batch.end, batch.lines)
    return lines, bad, end


def expected(data: bytes, *, take_tail: bool, limit: int = LIMIT) -> tuple[object, object, object]:
    """The same in plain Python, line by line."""
    lines, bad, position, end = [], [], 0, (0, 0)
    for number, whole in enumerate(data.splitlines(keepends=True), start=1):
        start, position = position, position + len(whole)
        if not whole.endswith(b"\n") and not take_tail:
            break
        end = (position, number)
        line = whole.removeprefix(MARK) if number == 1 else whole
        start += len(whole) - len(line)
        if len(line) > limit:
            bad.append((start, number, "too_long"))
        elif line.strip() or len(line) > 16:
            try:
                lines.append((start, number, line.decode()))
            except UnicodeDecodeError:
                bad.append((start, number, "invalid_utf8"))
    return lines, bad, end


PIECES = st.sampled_from([
    b"\n", b"a", b"{}", b" ", b"\xff", "é😀".encode(), b"x" * (LIMIT - 1), b"y" * LIMIT,
    b"z" * (LIMIT + 1), b"w" * 500, b"\x00", MARK, b"\xc3", b"\xe2\x80\xa8",
])  # fmt: skip


@settings(max_examples=300, deadline=None)
@example(b"\n" + MARK + b"a\n", 1, True)
@given(st.lists(PIECES, max_size=20).map(b"".join), st.integers(1, 200), st.booleans())
def test_any_size_of_read_gives_the_lines_of_plain_python(
    data: bytes, batch_bytes: int, take_tail: bool
) -> None:
    # Three bytes more or less at the limit are nobody's concern.
    assume(not (data.startswith(MARK) and len(data.split(b"\n")[0]) >= LIMIT))
    lines, bad, end = read(data, batch_bytes=batch_bytes, take_tail=take_tail)
    want_lines, want_bad, want_end = expected(data, take_tail=take_tail)
    assert lines == want_lines
    assert sorted(bad) == want_bad
    assert end == want_end or not (lines or bad)


def test_t60_offset_stays_at_the_last_whole_line() -> None:
    whole, torn = b'{"id":"r1"}\n', b'{"id":"r2","prompt_to'
    first = list(LineReader(io.BytesIO(whole + torn), take_tail=False))
    assert [batch.table["line"].to_pylist() for batch in first] == [['{"id":"r1"}\n']]
    (batch,) = first
    assert (batch.end, batch.lines, batch.bad) == (len(whole), 1, [])

    grown = io.BytesIO(whole + torn + b'kens":5}\n')
    grown.seek(batch.end)
    (second,) = LineReader(grown, position=batch.end, lines=batch.lines, take_tail=False)
    assert second.table.to_pylist() == [
        {"position": 12, "line_number": 2, "line": '{"id":"r2","prompt_tokens":5}\n'}
    ]
    assert (second.end, second.bad) == (len(grown.getvalue()), [])


def test_t60_torn_row_read_again_in_full_is_two_rows(store: Store) -> None:
    first = ndjson([{**GOOD, "request_id": "r1"}])
    second = ndjson([{**GOOD, "request_id": "r2"}])
    cut = first + second[:21]
    whole = cut[: cut.rfind(b"\n") + 1]
    assert load(store, whole).accepted == 1
    again = load(store, first + second)
    assert (again.accepted, again.duplicate, again.rejected) == (1, 1, 0)
    assert set(by_id(store)) == {"r1", "r2"}
    offset = store.cursor().execute("SELECT position, lines FROM offsets").fetchall()
    assert offset == [(len(first + second), 2)]


@pytest.mark.parametrize("page", [4096, 4095, 4097])
def test_t60_cut_at_a_page_border_is_no_cut(page: int) -> None:
    line = b"x" * 4000 + b"\n" + b"y" * 4000 + b"\n"
    lines, bad, end = read(line, batch_bytes=page, limit=8192)
    assert [(at, number, len(text)) for at, number, text in lines] == [
        (0, 1, 4001), (4001, 2, 4001),
    ]  # fmt: skip
    assert (bad, end) == ([], (8002, 2))


def test_t61_every_line_stands_for_itself(store: Store) -> None:
    rows: list[Row | str | bytes]
    rows = [{**GOOD, "request_id": "first"}, b"\xff", "[]", "42", '"text"', "null",
            {**GOOD, "request_id": "last"}]  # fmt: skip
    summary = load(store, rows, format="auto")
    assert (summary.accepted, summary.rejected) == (2, 5)
    assert set(by_id(store)) == {"first", "last"}
    assert rejects(store) == [
        (2, "invalid_utf8"), (3, "not_an_object"), (4, "not_an_object"), (5, "not_an_object"),
        (6, "not_an_object"),
    ]  # fmt: skip


def test_t64_long_row_is_taken_or_rejected_by_the_limit(store: Store) -> None:
    long = {**GOOD, "request_id": "long", "prompt": "x" * (20 << 20)}
    rows = [{**GOOD, "request_id": "before"}, long, {**GOOD, "request_id": "after"}]
    summary = load(store, rows)
    assert (summary.accepted, summary.reasons) == (2, {"too_long": 1})
    assert set(by_id(store)) == {"before", "after"}
    assert rejects(store) == [(2, "too_long")]
    (detail,) = store.cursor().execute("SELECT detail FROM rejects").fetchone() or ()
    assert "the limit is 1048576" in detail


def test_t64_row_just_under_the_limit_is_taken(store: Store) -> None:
    long = {**GOOD, "request_id": "long", "prompt": "x" * (1000 << 10)}
    assert load(store, [long, GOOD]).accepted == 2


def test_t64_memory_is_bounded_by_the_limit_not_by_the_line() -> None:
    stream = Endless(256 << 20, b"\n" + ndjson([GOOD]))
    tracemalloc.start()
    try:
        reader = LineReader(stream, batch_bytes=1 << 20, line_limit_bytes=1 << 20)  # type: ignore[arg-type]
        (batch,) = reader
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [(b.position, b.line_number, b.reason) for b in batch.bad] == [(0, 1, "too_long")]
    assert batch.table["line_number"].to_pylist() == [2]
    assert batch.table["position"].to_pylist() == [(256 << 20) + 1]
    assert peak < 16 << 20


def test_over_long_line_without_an_end_is_left_to_be_finished() -> None:
    lines, bad, _ = read(b"a\n" + b"x" * 1000, batch_bytes=10, take_tail=False)
    assert (lines, bad) == ([(0, 1, "a\n")], [])


def test_byte_order_mark_windows_newlines_and_blank_lines_are_no_faults(store: Store) -> None:
    row = ndjson([{**GOOD, "request_id": "r1"}]).rstrip()
    other = ndjson([{**GOOD, "request_id": "r2"}]).rstrip()
    data = MARK + row + b"\r\n\r\n   \r\n\n" + other + b"\r\n"
    summary = load(store, data, format="auto")
    assert (summary.accepted, summary.rejected) == (2, 0)
    assert set(by_id(store)) == {"r1", "r2"}


def test_rows_without_id_are_the_same_with_either_newline(store: Store) -> None:
    rows = [{"ts": NOON, "prompt_tokens": number} for number in (1, 2)]
    data = ndjson(rows)
    assert load(store, data[:-1]).accepted == 2
    assert load(store, data).duplicate == 2
