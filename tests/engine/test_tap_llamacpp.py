"""A real llama-server behind the tap as a proxy: rows, counters and clients agree to the token."""

import http.client
import json
import os
import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

from tests.running import PROGRAM, free_port, get, running, wait_for
from tests.unit_tap.scripted import rows_in, until

SERVER, MODEL = (os.environ.get(f"PREFIXSCOPE_LLAMA_{name}") for name in ("SERVER", "MODEL"))
pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        not (SERVER and MODEL), reason="PREFIXSCOPE_LLAMA_SERVER and …_MODEL name none to run"
    ),
]
CHAT = "/v1/chat/completions"
CANARY = "xylophone quagga"
WORDS = ("account", "claim", "ledger", "policy", "refund", "total")


@dataclass(frozen=True)
class Behind:
    """A llama-server, the tap in front of it, and the folder of its rows."""

    server: str
    tap: str
    folder: Path

    def counted(self) -> tuple[int, int]:
        """Prompt tokens, cached or not, and cached tokens by the server's own counters."""
        page = get(f"{self.server}/metrics").decode()
        computed, cached = (
            int(float(re.findall(rf"^llamacpp:{name} (\S+)$", page, re.MULTILINE)[0]))
            for name in ("prompt_tokens_total", "prompt_tokens_cached_total")
        )
        return computed + cached, cached


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    folder = tmp_path_factory.mktemp("llama")
    ports = free_port(), free_port()
    server, tap = (f"http://127.0.0.1:{port}" for port in ports)
    start = [str(SERVER), "-m", str(MODEL), "--host", "127.0.0.1", "--port", str(ports[0]),
             "--metrics", "--jinja", "-np", "4", "-c", "8192"]  # fmt: skip
    front = [PROGRAM, "tap", "--upstream", server, "--listen", f"127.0.0.1:{ports[1]}",
             "--out", str(folder / "tap.ndjson")]  # fmt: skip
    with running(start, folder / "llama.log") as process:
        wait_for("llama-server", lambda: b"ok" in get(f"{server}/health"), 120, process,
                 folder / "llama.log")  # fmt: skip
        with running(front, folder / "proxy.log") as proxy:
            wait_for("tap", lambda: b"ok" in get(f"{tap}/health"), 60, proxy, folder / "proxy.log")
            yield Behind(server, tap, folder)


def ask(address: str, request: dict[str, Any]) -> dict[str, Any]:
    """Usage and timings as the client sees them; of a stream from its last event that has them."""
    url = urlparse(address)
    connection = http.client.HTTPConnection(str(url.hostname), url.port, timeout=120)
    connection.request("POST", CHAT, json.dumps(request), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    assert reply.status == 200, text
    if not request.get("stream"):
        return dict(json.loads(text))
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith(b"data: {")]
    told: dict[str, Any] = {}
    for event in events:
        told |= {name: event[name] for name in ("id", "usage", "timings") if event.get(name)}
    return told


def requests() -> list[dict[str, Any]]:
    """Forty over four shared beginnings, half of them streamed with usage."""
    draw = random.Random(11)
    beginnings = [" ".join(draw.choices(WORDS, k=150)) for _ in range(4)]
    made: list[dict[str, Any]] = []
    for number in range(40):
        text = f"{draw.choice(beginnings)} {CANARY} {number}"
        request = {"model": "tiny", "max_tokens": 4, "temperature": 0,
                   "messages": [{"role": "user", "content": text}]}  # fmt: skip
        if number % 2:
            request |= {"stream": True, "stream_options": {"include_usage": True}}
        made.append(request)
    return made


def test_rows_agree_with_clients_and_counters(behind: Behind) -> None:
    before = behind.counted()
    asked = requests()
    answers = [ask(behind.tap, request) for request in asked[:20]]
    with ThreadPoolExecutor(4) as pool:
        answers += pool.map(lambda request: ask(behind.tap, request), asked[20:])
    until(lambda: len(rows_in(behind.folder)) == len(asked))
    rows = {row["response_id"]: row for row in rows_in(behind.folder)}
    seen = {}
    for answer in answers:
        usage, timings = answer["usage"], answer["timings"]
        assert usage["prompt_tokens"] == timings["prompt_n"] + timings["cache_n"]
        seen[answer["id"]] = usage["prompt_tokens"], timings["cache_n"], usage["completion_tokens"]
    names = ("prompt_tokens", "cached_tokens", "output_tokens")
    assert {key: tuple(row[name] for name in names) for key, row in rows.items()} == seen
    prompt, cached = (
        after - earlier for after, earlier in zip(behind.counted(), before, strict=True)
    )
    assert (prompt, cached) == (sum(s[0] for s in seen.values()), sum(s[1] for s in seen.values()))
    assert cached > prompt / 4, "something was reused"
    assert {row["status"] for row in rows.values()} == {"ok"}


def test_bytes_are_those_without_the_tap(behind: Behind) -> None:
    """But for clocks, ids and what depends on how full the cache is."""
    request = {**requests()[1], "cache_prompt": False}
    url = {address: urlparse(address) for address in (behind.server, behind.tap)}
    texts = []
    for where in url.values():
        connection = http.client.HTTPConnection(str(where.hostname), where.port, timeout=120)
        connection.request("POST", CHAT, json.dumps(request), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        texts.append(re.sub(rb'"chatcmpl-\w+"|"created":\d+|"\w+_(?:ms|second)":[\d.]+', b"~",
                            reply.read()))  # fmt: skip
        connection.close()
    assert texts[0] == texts[1]
    assert texts[0].count(b"data: ") > 4


def test_no_prompt_is_in_any_file(behind: Behind) -> None:
    written = [path.read_bytes() for path in behind.folder.rglob("*") if path.is_file()]
    assert any(b"chatcmpl-" in text for text in written), "the rows are among them"
    assert not [text for text in written if CANARY.encode() in text]
