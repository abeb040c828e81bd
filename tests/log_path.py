"""The log path as tests use it: rows in by the one way in, rows and figures out."""

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest

from exporter.sources.intake import IngestSummary, Intake
from exporter.sources.names import SourceNames
from exporter.store.store import Store, StoreSettings
from queries import registry

SHARED = Path(__file__).parents[2] / "shared"
CAPTURES = SHARED / "captures"
needs_captures = pytest.mark.skipif(
    not CAPTURES.is_dir(), reason="the captures of real engines are not beside the project"
)

# Small on purpose: no test here needs more, and several may run at once.
SMALL = StoreSettings(memory_limit="256MB")

# A moment that is in the past, so that rows at it are plausible and not live.
NOON = "2026-03-02T12:00:00Z"

Row = Mapping[str, object]
Answer = dict[str, Any]


def ndjson(rows: Iterable[Row | str | bytes]) -> bytes:
    """One line a row; text and bytes are lines as they are. Non-finite numbers as Python does."""
    return b"".join(_line(row) + b"\n" for row in rows)


def _line(row: Row | str | bytes) -> bytes:
    if isinstance(row, bytes):
        return row
    return (row if isinstance(row, str) else json.dumps(row)).encode()


def load(
    store: Store,
    rows: Iterable[Row | str | bytes] | bytes,
    source: str = "log",
    *,
    format: str = "ndjson",
    origin: Literal["file", "http"] = "file",
    defaults: dict[str, object] | None = None,
    names: Mapping[str, SourceNames] | None = None,
) -> IngestSummary:
    data = rows if isinstance(rows, bytes) else ndjson(rows)
    return Intake(store, names=names).ingest(
        io.BytesIO(data), source=source, format=format, origin=origin, defaults=defaults
    )


def requests(store: Store, source: str | None = None) -> list[Answer]:
    """The rows of the requests table, in a fixed order, by column name."""
    cursor = store.cursor()
    cursor.execute(
        "SELECT * FROM requests WHERE $source IS NULL OR source = $source ORDER BY ALL",
        {"source": source},
    )
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def by_id(store: Store, source: str | None = None) -> dict[str, Answer]:
    """The same by request id; every id is stored once."""
    rows = requests(store, source)
    found = {row["request_id"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def ask(store: Store, question: str, **params: object) -> list[Answer]:
    return registry.rows(registry.run(store.cursor(), question, params))


def hit_ratio(store: Store, **params: object) -> Answer:
    (row,) = ask(store, "hit_ratio", **params)
    return row


def rejects(store: Store, source: str | None = None) -> list[tuple[int | None, str]]:
    """(line number, reason) of everything set aside, in order of lines."""
    return store.cursor().execute(
        "SELECT line_number, reason FROM rejects WHERE $source IS NULL OR source = $source"
        " ORDER BY ALL",
        {"source": source},
    ).fetchall()  # fmt: skip


def utc(text: str) -> datetime:
    """'2026-03-02 12:00' as the store keeps time: UTC without a zone."""
    moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "store", SMALL)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store for a module whose tests keep to sources of their own."""
    opened = Store.open(tmp_path_factory.mktemp("shared") / "store", SMALL)
    yield opened
    opened.close()
