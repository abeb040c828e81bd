"""A log that is written like real programs write it, and what the store has of it."""

import json
from pathlib import Path

from exporter.store.store import Store

DAY = "2026-03-02T12:00:00Z"


def row(name: str, **fields: object) -> bytes:
    """One line of a log: 1,000 prompt tokens, 500 of them cached, unless said otherwise."""
    filled = {"request_id": name, "ts": DAY, "prompt_tokens": 1000, "cached_tokens": 500}
    return json.dumps(filled | fields).encode() + b"\n"


def ids(store: Store) -> list[str]:
    """Every stored request id, sorted; one that was stored twice is there twice."""
    rows = store.cursor().execute("SELECT request_id FROM requests ORDER BY ALL").fetchall()
    return [request_id for (request_id,) in rows]


def offsets(store: Store) -> list[tuple[int, int]]:
    """(position, lines) of every file the store knows, smallest first."""
    rows: list[tuple[int, int]] = (
        store.cursor().execute("SELECT position, lines FROM offsets ORDER BY ALL").fetchall()
    )
    return rows


def append_to(path: Path, *parts: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(parts))
