"""A real Prometheus on loopback, and engines for it: recorded pages served again over HTTP."""

import json
import shutil
import threading
from bisect import bisect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml

from exporter.store.store import Store
from tests.running import free_port, get, running, wait_for

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
CAPTURES = Path(__file__).parents[3] / "shared" / "captures"
MISSING = "apt install prometheus: there is none on this machine"


@dataclass(frozen=True)
class Recorded:
    """One recorded scrape; `body` None = the engine was down."""

    body: bytes | None
    content_type: str


def recorded(folder: Path) -> list[Recorded]:
    """The pages of a capture in the order they were scraped."""
    lines = [json.loads(line) for line in (folder / "index.jsonl").read_text().splitlines()]
    lines.sort(key=lambda line: float(line["scraped_unix"]))
    return [
        Recorded((folder / line["file"]).read_bytes() if line["file"] else None,
                 line.get("content_type") or "text/plain")
        for line in lines
    ]  # fmt: skip


class Engine:
    """Serves one page of a recording until told to go on; behind the last one it stays there."""

    def __init__(self, pages: list[Recorded]) -> None:
        self.pages = pages
        self.position = 0
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = engine.pages[min(engine.position, len(engine.pages) - 1)]
                self.send_response(200 if page.body is not None else 503)
                self.send_header("Content-Type", page.content_type)
                self.send_header("Content-Length", str(len(page.body or b"")))
                self.end_headers()
                self.wfile.write(page.body or b"")

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def address(self) -> str:
        """host:port"""
        return f"127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def prometheus(
    folder: Path, targets: Mapping[str, Mapping[str, str]], interval: str = "1s"
) -> Iterator[str]:
    """A Prometheus that scrapes these addresses (each with its labels); gives its address."""
    config = {
        "global": {"scrape_interval": interval},
        "scrape_configs": [{
            "job_name": "engines", "scrape_timeout": interval,
            "static_configs": [
                {"targets": [address], "labels": dict(labels)}
                for address, labels in targets.items()
            ],
        }] if targets else [],
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    command = [
        str(PROMETHEUS), f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}",
        "--storage.tsdb.retention.time=90d", "--log.level=warn",
    ]  # fmt: skip
    log = folder / "log"
    with running(command, log) as process:
        ready = f"http://{address}/-/ready"
        wait_for("Prometheus", lambda: get(ready) != b"", 180, process, log)
        yield f"http://{address}"


Course = list[tuple[float, int]]


def course(store: Store, replica: str) -> Course:
    """The time of every page of a replica, and the prompt tokens counted up to it."""
    rows = store.cursor().execute(
        "SELECT epoch(ts), (sum(coalesce(sum(prompt_tokens), 0)) OVER (ORDER BY ts))::BIGINT"
        " FROM engine_samples WHERE replica = $replica GROUP BY ts ORDER BY ts",
        {"replica": replica},
    )
    return rows.fetchall()


def within_one_poll(theirs: Course, ours: Course) -> int:
    """What a Prometheus had scraped at a moment lies between our page before it and ours after.

    It stamps a page when it asks for it, we when we have it: the one after is the second. Returns
    how many moments were compared.
    """
    moments, compared = [moment for moment, _ in ours], 0
    for moment, counted in theirs:
        after = bisect(moments, moment)
        if 0 < after < len(ours) - 1:
            assert ours[after - 1][1] <= counted <= ours[after + 1][1]
            compared += 1
    return compared
