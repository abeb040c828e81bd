"""A loopback exporter for tests of pages: the real questions over rows a test puts in.

The clock of a test is the real one, because pages count back from now.
"""

import io
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import duckdb
import pyarrow as pa
from streamlit.testing.v1 import AppTest

from exporter.store.database import cursor_beside
from queries import registry

APP = Path(__file__).parents[2] / "dashboard" / "app.py"
Open = Callable[..., AppTest]
HOSTILE = "<img src=x onerror=alert(1)> [a](http://evil.example) `x` $y$ :red[z]"


@dataclass
class Exporter:
    """What the loopback server answers from, and what it was asked."""

    connection: duckdb.DuckDBPyConnection
    url: str = ""
    token: str | None = None
    broken: bool = False
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def insert(self, table: str, **values: object) -> None:
        """One row; the columns a page does not care about are filled."""
        row = {**_FILLED.get(table, {}), **values}
        marks = ["MAP(?, ?)" if isinstance(value, Mapping) else "?" for value in row.values()]
        flat: list[object] = []
        for value in row.values():
            pairs = isinstance(value, Mapping)
            flat += [list(value.keys()), list(value.values())] if pairs else [value]
        sql = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(marks)})"
        self.connection.execute(sql, flat)

    def request(
        self, minutes_ago: float, prompt: int, cached: int | None, **values: object
    ) -> None:
        """One row of the request log; its outcome by the usual threshold."""
        ts = ago(minutes_ago)
        outcome = "unknown" if cached is None else "miss"
        if cached:
            outcome = "hit" if cached >= 0.8 * prompt else "partial"
        given = {"ts": ts, "arrived": ts, "prompt_tokens": prompt, "cached_tokens": cached}
        self.insert("requests", **given, **{"outcome": outcome, **values})

    def sample(self, minutes_ago: float, replica: str = "r1", **values: object) -> None:
        """One minute of an engine's counters."""
        ts = ago(minutes_ago)
        names = {"replica": replica, "target": replica}
        self.insert(
            "engine_samples", **{"ts": ts, "since": ts - timedelta(minutes=1), **names, **values}
        )

    def answer(self, name: str, params: dict[str, str]) -> pa.Table:
        with self.lock:
            self.asked.append((name, params))
        if name == "alerts":
            # Costs more than all other questions of a page together, and no test here is about it.
            nothing = dict.fromkeys(registry.question(name).columns, pa.array([], pa.string()))
            return pa.table(nothing)
        return registry.run(cursor_beside(self.connection), name, params)


_FILLED: dict[str, dict[str, object]] = {
    "requests": {
        "source": "log", "source_format": "test", "attempt": 1, "status": "ok",
        "outcome": "unknown", "prompt_basis": "inclusive", "batch": 1, "position": 1,
    },
    "engine_samples": {
        "engine": "vllm", "role": "unified", "reset": False, "gap": False, "model": "m",
    },
    "meta": {},
    "targets": {"frozen": False},
    "block_minutes": {"source": "kv", "replica": "r1", "model": "m", "tier": "device",
                      "block_size": 16},
    "block_resets": {"source": "kv", "replica": "r1", "model": "m", "tier": "device"},
    "block_streams": {"source": "kv", "replica": "r1", "model": "m", "connected": True,
                      "batches": 10, "missed_batches": 0},
    "block_copies": {"model": "m", "tier": "device"},
    "resident_prefixes": {"model": "m", "tier": "device", "replicas": 1},
    "kv_geometry": {"source": "test"},
}  # fmt: skip


def ago(minutes: float) -> datetime:
    """Naive UTC, as the store has it."""
    return datetime.now(UTC).replace(tzinfo=None) - timedelta(minutes=minutes)


def handler(exporter: Exporter) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            place = urlsplit(self.path)
            params = dict(parse_qsl(place.query, keep_blank_values=True))
            wanted = exporter.token and f"Bearer {exporter.token}"
            if exporter.broken:
                self._send(200, "text/html", b"<html>not an exporter</html>")
            elif wanted and self.headers.get("Authorization") != wanted:
                self._send(401, "text/plain", b"token\n")
            elif place.path.startswith("/docs/runbooks/"):
                page = Path(__file__).parents[2] / place.path[1:]
                self._send(200, "text/markdown; charset=utf-8", page.read_bytes())
            else:
                self._answer(place.path.rsplit("/", 1)[-1], params)

        def _answer(self, name: str, params: dict[str, str]) -> None:
            try:
                table = exporter.answer(name, params)
            except (registry.UnknownQuestion, registry.BadParameter) as error:
                self._send(400, "application/json", json.dumps({"error": str(error)}).encode())
                return
            stream = io.BytesIO()
            with pa.ipc.new_stream(stream, table.schema) as writer:
                writer.write_table(table)
            self._send(200, "application/vnd.apache.arrow.stream", stream.getvalue())

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    return Handler


def words(app: AppTest) -> str:
    """Everything a page says in words."""
    parts = [*app.markdown, *app.caption, *app.info, *app.warning, *app.error, *app.text, *app.code]
    return "\n".join(str(part.value) for part in parts)


def tile(app: AppTest, label: str) -> tuple[str, str]:
    """Value and change of a number tile."""
    found = [metric for metric in app.metric if metric.label == label]
    assert len(found) == 1, [metric.label for metric in app.metric]
    return found[0].value, found[0].delta
