"""The API of a Prometheus over series we know: recorded from a real one, or built by a test.

As much of it as is asked: equality and `=~` on names, raw samples by a range selector, label
values, series, targets. It can refuse, stall and misbehave as real servers and proxies do.
"""

import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

ANSWERS = Path(__file__).parent / "answers.json"
_MATCHER = re.compile(r'(\w+)(=~|=)"((?:[^"\\]|\\.)*)"')
_QUERY = re.compile(r"(\{.*\})\[(\d+)ms\]", re.DOTALL)

Series = dict[str, Any]  # {"metric": {…}, "values": [[unix, "text"], …]}
Refusal = tuple[int, dict[str, str], bytes]


@dataclass
class Fake:
    """What the server knows and how it behaves.

    `left_open`: a range does not hold its start (Prometheus 3). `most_samples`: a larger answer
    is refused. `refuse` may answer a request in the server's place: it gets path and headers.
    """

    series: list[Series] = field(default_factory=list)
    targets: list[dict[str, Any]] = field(default_factory=list)
    runtimeinfo: dict[str, str] = field(default_factory=dict)
    left_open: bool = False
    most_samples: int | None = None
    refuse: Callable[[str, Mapping[str, str]], Refusal | None] = lambda _path, _headers: None
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    largest_answer: int = 0
    refuse_posts: bool = False

    def answer(self, path: str, given: dict[str, str]) -> object:
        """The data of one answer."""
        if path == "/api/v1/label/__name__/values":
            return sorted({one["metric"]["__name__"] for one in self.series})
        if path == "/api/v1/series":
            found = self._matching(given["match[]"])
            start, end = float(given["start"]), float(given["end"])
            return [
                one["metric"] for one in found
                if any(start <= moment <= end for moment, _ in one["values"])
            ]  # fmt: skip
        if path == "/api/v1/query":
            return self._raw(given)
        if path == "/api/v1/targets":
            return {"activeTargets": self.targets}
        return self.runtimeinfo

    def _raw(self, given: dict[str, str]) -> dict[str, Any]:
        parts = _QUERY.fullmatch(given["query"])
        assert parts is not None, given["query"]
        end_ms = round(float(given["time"]) * 1000)
        first_ms = end_ms - int(parts[2]) + (1 if self.left_open else 0)
        result = []
        for one in self._matching(parts[1]):
            values = [v for v in one["values"] if first_ms <= round(v[0] * 1000) <= end_ms]
            if values:
                result.append({"metric": one["metric"], "values": values})
        size = sum(len(one["values"]) for one in result)
        if self.most_samples is not None and size > self.most_samples:
            raise OverflowError
        self.largest_answer = max(self.largest_answer, size)
        return {"resultType": "matrix", "result": result}

    def _matching(self, selector: str) -> list[Series]:
        matchers = _MATCHER.findall(selector)
        assert matchers, selector
        return [one for one in self.series if _fits(one["metric"], matchers)]


def _fits(labels: Mapping[str, str], matchers: list[tuple[str, str, str]]) -> bool:
    for name, operator, quoted in matchers:
        text = json.loads(f'"{quoted}"')
        value = labels.get(name, "")
        if operator == "=" and value != text:
            return False
        if operator == "=~" and re.fullmatch(text, value) is None:
            return False
    return True


def recorded_fake() -> tuple[Fake, float, float]:
    """What a real Prometheus answered about a vLLM that restarts and a llama.cpp (see
    record_answers.py), and when its run began and ended."""
    told = json.loads(ANSWERS.read_text())
    fake = Fake(told["raw"]["result"], told["targets"]["activeTargets"], told["runtimeinfo"])
    return fake, told["began"], told["ended"]


def _handler(fake: Fake) -> type[BaseHTTPRequestHandler]:
    """Reads requests and sends what `fake` answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._tell(urlsplit(self.path).query)

        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if fake.refuse_posts:
                self._send(405, {}, b"")
            else:
                self._tell(form)

        def _tell(self, form: str) -> None:
            path = urlsplit(self.path).path
            given = {name: texts[0] for name, texts in parse_qs(form).items()}
            fake.asked.append((path, given))
            refused = fake.refuse(path, dict(self.headers))
            if refused is not None:
                self._send(*refused)
                return
            try:
                told = {"status": "success", "data": fake.answer(path, given)}
            except OverflowError:
                said = "query processing would load too many samples into memory"
                told = {"status": "error", "errorType": "execution", "error": said}
                self._send(422, {}, json.dumps(told).encode())
                return
            self._send(200, {}, json.dumps(told).encode())

        def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, text in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def serving(fake: Fake, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The address of a server that answers as `fake` does."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(fake))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
