"""A store with small limits, and rows put into it at a stated moment."""

import io
import json
from datetime import UTC, datetime

from exporter.sources.formats import ndjson
from exporter.sources.lines import LineReader
from exporter.store.append import BatchResult, Stream, append
from exporter.store.store import Store

Row = dict[str, object]


def at(text: str) -> datetime:
    """'03-02 11:59' of 2026, UTC."""
    return datetime.strptime(f"2026-{text}", "%Y-%m-%d %H:%M").replace(tzinfo=UTC)


def put(store: Store, rows: list[Row], arrived: datetime | None = None) -> BatchResult:
    """Rows with a `ts` of `at` form, as one batch of source 'log'; else at their arrival."""
    text = b""
    for row in rows:
        ts = {"ts": at(str(row["ts"])).isoformat()} if "ts" in row else {}
        text += json.dumps(row | ts).encode() + b"\n"
    (batch,) = LineReader(io.BytesIO(text))
    result = append(store, batch, Stream("log", ndjson.FORMAT), arrived)
    store.fold()
    return result


def one(store: Store, query: str) -> object:
    """The only value of the only row."""
    ((value,),) = store.cursor().execute(query).fetchall()
    found: object = value
    return found
