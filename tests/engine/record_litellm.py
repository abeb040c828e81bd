"""Records what a real LiteLLM proxy before a real vLLM posts and serves, without any prompt.

    PREFIXSCOPE_ENGINE_DIR=DIR python -m tests.engine.record_litellm OUT

Writes what the tests keep: the rows of the proxy's log, vLLM's spans, the client's own count,
and both metric pages before and after. Texts of prompts and answers are left out, as are the
proxy's price table and series that no figure reads.
"""

import json
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.engine.calls import Call, plan, send, unasked
from tests.engine.live import running_vllm
from tests.engine.proxy import running_proxy
from tests.running import get

# The proxy posts its log every 5 s, vLLM its spans as often.
POSTED_SECONDS = 12
_LEFT_OUT = re.compile(
    r"# HELP |(# TYPE )?(python|http|process_(?!start))|\S+_(bucket|sum|count)\b|# .* histogram$"
    r"|(# TYPE )?litellm_(request_|llm_api|overhead|deployment|remaining)"
)


@contextmanager
def _received() -> Iterator[tuple[str, dict[str, list[bytes]]]]:
    """An address that takes whatever is posted, and the bodies by path."""
    bodies: dict[str, list[bytes]] = {}

    class Taker(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            bodies.setdefault(self.path.partition("?")[0], []).append(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Taker)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", bodies
    server.shutdown()


def _few() -> list[list[Call]]:
    """Both templates, every caller, streamed and not, told and not told the usage."""
    support, billing, shared, *again = plan()
    return [support, billing, shared[:6], *again, unasked()[0]]


def _without_texts(row: dict[str, object]) -> dict[str, object]:
    information = row.get("model_map_information")
    if isinstance(information, dict):
        information["model_map_value"] = None
    return row | {"messages": None, "response": None}


def _spans(body: bytes) -> dict[str, object]:
    request = ExportTraceServiceRequest()
    request.ParseFromString(body)
    spans: dict[str, object] = MessageToDict(request)
    return spans


def _write(file: Path, rows: Iterable[object]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _page(address: str, said: str) -> str:
    lines = get(address).decode().splitlines()
    kept = [line for line in lines if not _LEFT_OUT.match(line)]
    return "\n".join(
        [f"# recorded from {said}; histograms and series of no figure left out", *kept, ""]
    )


def record(out: Path) -> None:
    """Everything into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, _received() as (taker, bodies):
        otlp = ("--otlp-traces-endpoint", f"{taker}/v1/traces")
        spoken = {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}
        with (
            running_vllm(Path(folder), *otlp, **spoken) as engine,
            running_proxy(Path(folder), engine, f"{taker}/v1/requests") as proxy,
        ):
            bodies.clear()  # what vLLM says of its own start
            for name in ("before", "after"):
                if name == "after":
                    answered = send(proxy.url, _few())
                    time.sleep(POSTED_SECONDS)
                (out / f"litellm-{name}.prom").write_text(_page(proxy.metrics, "LiteLLM 1.108.7"))
                (out / f"vllm-{name}.prom").write_text(_page(f"{engine}/metrics", "vLLM 0.32.0"))
    _write(out / "client.jsonl", (asdict(one) for one in answered))
    rows = [row for body in bodies["/v1/requests"] for row in json.loads(body)]
    _write(out / "requests.jsonl", (_without_texts(row) for row in rows))
    _write(out / "spans.jsonl", (_spans(body) for body in bodies["/v1/traces"]))


if __name__ == "__main__":
    record(Path(sys.argv[1]))
