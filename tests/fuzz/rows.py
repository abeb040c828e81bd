"""Damaged rows through the one way in, in batches, and what has to be true of them afterwards.

Every line with content is accounted for; nothing in the store is out of range; what people
wrote is nowhere in it.
"""

import io
import json
import time
from codecs import BOM_UTF8
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from exporter.errors import PrefixscopeError
from exporter.records import Request
from exporter.sources.formats import FORMATS, format_named
from exporter.sources.formats.expressions import TEXT_LIMIT
from exporter.sources.formats.mapping import LogFormat
from exporter.sources.formats.reshape import LEFT_OUT
from exporter.sources.intake import IngestSummary, Intake
from exporter.store.store import Store
from queries import registry
from tests.fuzz import seeds
from tests.fuzz.damage import Kind, damaged, damaged_lines

COLUMNS = ", ".join(Request.model_fields)
_CSV = ("azure_llm", "burstgpt")
_LARGEST = 10**9
# A blank line as long as this or longer is one that cannot be read; shorter ones are no lines.
_BLANK_BYTES = 16
# Questions that cannot be asked without saying something.
_NEEDED = {
    "alerts": {"until": "2026-12-01T00:00:00Z"},
    "dimension_values": {"dimension": "tenant"},
    "movers": {"by": "tenant"},
    "explain": {"by": "tenant"},
    "missed_change": {
        "since": "2026-11-30T00:00:00Z",
        "until": "2026-12-01T00:00:00Z",
        "baseline_since": "2026-11-23T00:00:00Z",
        "baseline_until": "2026-11-24T00:00:00Z",
    },
}
# Documents are taken one by one: each is a whole input.
DOCUMENTS = {known.name for known in FORMATS if known.documents}


@dataclass
class Timed:
    """How long inputs of a kind took, by batch: seconds and bytes."""

    batches: list[tuple[float, int]] = field(default_factory=list)

    def slowest_ratio(self) -> float:
        """The slowest to the median, both per byte."""
        rates = sorted(seconds / max(1, size) for seconds, size in self.batches)
        return rates[-1] / rates[len(rates) // 2]


def batch(log_format: LogFormat, size: int, chance: Random) -> bytes:
    """Damaged rows of one format. Half carry prompts and are damaged by value only: where bytes
    are lost, a prompt may well come to stand where a name belongs."""
    good = seeds.of_format(log_format.name)
    kind: Kind = "text" if log_format.name in _CSV else "json"
    if log_format.documents:
        return damaged(chance.choice(good), kind, chance)
    lines = []
    for _ in range(size):
        line = chance.choice(good)
        if chance.random() < 0.5:
            lines.append(damaged_lines(seeds.with_prompts(line, log_format), chance))
        else:
            lines.append(damaged(line, kind, chance))
    return b"\n".join(lines)


def ingest(
    store: Store, data: bytes, name: str, source: str, origin: str = "file"
) -> IngestSummary | None:
    """Taken in by name or by `auto`; None where the input as a whole is refused. What is
    refused is said without a word of a prompt."""
    try:
        return Intake(store).ingest(
            io.BytesIO(data),
            source=source,
            format=name,
            origin="file" if origin == "file" else "http",
        )
    except PrefixscopeError as error:
        said = str(error)
    assert seeds.CANARY not in said
    return None


def check(store: Store, data: bytes, name: str, source: str, origin: str) -> float:
    """Takes a batch in and checks what became of it; answers the seconds it took."""
    before = store.last_batch
    started = time.perf_counter()
    summary = ingest(store, data, name, source, origin)
    seconds = time.perf_counter() - started
    if summary is not None:
        check_accounts(summary, data)
    check_rows(store, before)
    return seconds


def check_accounts(summary: IngestSummary, data: bytes) -> None:
    """Accepted, known already, corrected, contradicting, refused and left out are all there is."""
    lines, left_out = _rows_in(data, format_named(summary.format))
    told = summary.accepted + summary.duplicate + summary.corrected
    told += summary.conflicting + summary.rejected
    assert told == lines, f"{told} of {lines} rows accounted for: {summary}"
    for reason, count in left_out.items():
        assert summary.flags.get(reason, 0) >= count, (reason, count, summary.flags)


def _rows_in(data: bytes, log_format: LogFormat) -> tuple[int, dict[str, int]]:
    """How many rows stand in an input, and how many of it are none of ours, by reason."""
    left_out: dict[str, int] = {}
    lines = data.removeprefix(BOM_UTF8).split(b"\n")
    if log_format.documents:
        rows = log_format.documents(io.BytesIO(data))
        texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        lines = [text.encode(errors="surrogateescape") for text in texts]
    count = sum(_rows_of(line, log_format, left_out) for line in lines if _is_content(line))
    return count, left_out


def _is_content(line: bytes) -> bool:
    return bool(line.strip()) or len(line) >= _BLANK_BYTES


def _rows_of(line: bytes, log_format: LogFormat, left_out: dict[str, int]) -> int:
    """The rows in a line; one that cannot be read is one."""
    if not log_format.reshape:
        return 1
    try:
        rows = list(log_format.reshape(line.decode() + "\n"))
    except ValueError:  # the text or what it says
        return 1
    for row in rows:
        if LEFT_OUT in row:
            reason, number = str(row[LEFT_OUT]), row["rows"]
            assert isinstance(number, int)
            left_out[reason] = left_out.get(reason, 0) + number
    return sum(LEFT_OUT not in row for row in rows)


def check_rows(store: Store, before_batch: int) -> None:
    """Rows of later batches are requests as the vocabulary has them, within what can be true."""
    cursor = store.cursor()
    cursor.execute(f"SELECT {COLUMNS} FROM requests WHERE batch > ?", [before_batch])
    for values in cursor.fetchall():
        row = Request.model_validate(dict(zip(Request.model_fields, values, strict=True)))
        _check_row(row)


def _check_row(row: Request) -> None:
    for name, value in row:
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert 0 <= value < _LARGEST, (name, value)
        if isinstance(value, str):
            assert len(value) <= TEXT_LIMIT, (name, value)
            assert seeds.CANARY not in value, name
    if row.cached_tokens is not None and row.prompt_tokens is not None:
        assert row.cached_tokens <= row.prompt_tokens, row
    assert row.prompt_tokens != 0, row
    assert row.attempt >= 1, row
    assert row.ts.year >= 2010, row


def check_figures(store: Store) -> None:
    """Every question has an answer, and no ratio is out of its range or not a number."""
    for name in registry.questions():
        for row in registry.rows(registry.run(store.cursor(), name, _NEEDED.get(name, {}))):
            for column, value in row.items():
                assert seeds.CANARY not in str(value), (name, column)
                if column.endswith(("hit_ratio", "coverage_ratio")) and value is not None:
                    assert isinstance(value, float)
                    assert 0 <= value <= 1, (name, column, value)


def check_secrets(folder: Path) -> None:
    """No prompt text in any file of a store that is closed."""
    secret = seeds.CANARY.split()[0].encode()
    for file in folder.rglob("*"):
        if file.is_file():
            assert secret not in file.read_bytes(), file


def check_tables(store: Store) -> None:
    """No prompt text in any table, as bytes on disk may be packed."""
    cursor = store.cursor()
    tables = cursor.execute("SELECT table_name FROM duckdb_tables() WHERE NOT temporary").fetchall()
    for (table,) in tables:
        secret = seeds.CANARY.split()[0]
        cursor.execute(f"SELECT count(*) FROM {table} t WHERE contains(t::VARCHAR, ?)", [secret])
        assert cursor.fetchone() == (0,), table


def smallest(data: bytes, log_format: LogFormat, folder: Path) -> bytes:
    """The fewest lines of a batch that still fail, each try in a store of its own."""
    lines = data.split(b"\n")
    step = len(lines) // 2
    while step:
        for start in range(0, len(lines), step):
            fewer = lines[:start] + lines[start + step :]
            if fewer and _fails(b"\n".join(fewer), log_format, folder):
                lines = fewer
                break
        else:
            step //= 2
        step = min(step, len(lines) // 2)
    return b"\n".join(lines)


def _fails(data: bytes, log_format: LogFormat, folder: Path) -> bool:
    path = folder / f"try-{time.monotonic_ns()}"
    store = Store.open(path)
    try:
        check(store, data, log_format.name, "s", "file")
    except Exception:  # noqa: BLE001  # whatever it is, it fails
        return True
    finally:
        store.close()
    return False
