"""Time to first token of a real vLLM with and without the tap, in one run on one engine.

The tap sits in the engine as its middleware, beside a switch that a header turns off. Requests
go in blocks with and without, the order drawn anew for each pair of blocks, so that both see the
same machine. After a block its rows are waited for: what the tap does after an answer (tokenizing,
hashing, writing) falls on its own requests, never on those without. Bar: ratio of the medians at
most 1.02 over at least 300 requests each. The spread is a bootstrap over pairs of blocks. Needs the
vLLM that `make test-engine` installs.
"""

import argparse
import http.client
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from urllib.parse import urlparse

from prefixscope.tap_file import one_file
from tests.engine.live import ENGINE, ENGINE_DIR, running_vllm
from tests.engine.test_tap_live import NO_EVENTS, SWITCH
from tests.unit_tap.scripted import until

CHAT = "/v1/chat/completions"
WORDS = ("account", "claim", "ledger", "policy", "refund", "total")
PROMPTS = 20
COUNTED = 50

Pair = tuple[list[float], list[float]]


def first_token_seconds(address: str, request: dict[str, object], tapped: bool) -> float:
    """One streamed request; seconds from sending it until the first text was there."""
    url = urlparse(address)
    connection = http.client.HTTPConnection(str(url.hostname), url.port, timeout=120)
    connection.connect()
    headers = {"Content-Type": "application/json", "X-Tap": "on" if tapped else "off"}
    body = json.dumps(request)
    start = time.perf_counter()
    connection.request("POST", CHAT, body, headers)
    reply = connection.getresponse()
    for line in reply:
        if b'"content":"' in line and b'"role"' not in line:
            seconds = time.perf_counter() - start
            reply.read()
            connection.close()
            return seconds
    raise RuntimeError("the stream had no text")


def measured(address: str, rows: Path, pairs: int, prompt_words: int) -> list[Pair]:
    """(without, with) seconds of so many pairs of blocks, over prompts that are all cached. `rows`
    is the file the tap writes to."""
    order = random.Random(7)
    words = [" ".join(order.choices(WORDS, k=prompt_words)) for _ in range(PROMPTS)]
    requests: list[dict[str, object]] = [
        {"model": "tiny", "stream": True, "max_tokens": 2, "ignore_eos": True, "temperature": 0,
         "messages": [{"role": "user", "content": text}]} for text in words
    ]  # fmt: skip
    for request in requests * 2:
        first_token_seconds(address, request, tapped=False)
    found: list[Pair] = []
    for number in range(1, pairs + 1):
        ways = [False, True]
        order.shuffle(ways)
        seconds: dict[bool, list[float]] = {}
        for tapped in ways:
            seconds[tapped] = [
                first_token_seconds(address, order.choice(requests), tapped) for _ in range(COUNTED)
            ]
            if tapped:
                until(lambda: _lines(rows) == number * COUNTED)  # noqa: B023 - asked at once
        found.append((seconds[False], seconds[True]))
    return found


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def ratio(pairs: list[Pair]) -> float:
    """Median with the tap ÷ median without."""
    without, tapped = _all(pairs)
    return statistics.median(tapped) / statistics.median(without)


def _all(pairs: list[Pair]) -> tuple[list[float], list[float]]:
    return [s for block, _ in pairs for s in block], [s for _, block in pairs for s in block]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=12, help=f"of blocks, {COUNTED} requests each")
    parser.add_argument("--prompt-words", type=int, default=200)
    parser.add_argument("--hashes", default="all", choices=["off", "chain", "all"])
    arguments = parser.parse_args()
    if not (ENGINE.is_dir() and (ENGINE_DIR / "vllm").is_dir()):
        print("skipped: no vLLM here; `make test-engine` installs one")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "prefixscope_tap.py").write_text(one_file(), encoding="utf-8")
        (folder / "switched.py").write_text(SWITCH, encoding="utf-8")
        settings = {
            "PYTHONPATH": name,
            "PREFIXSCOPE_TAP_FILE": str(folder / "tap.ndjson"),
            "PREFIXSCOPE_TAP_HASHES": arguments.hashes,
            "PREFIXSCOPE_TAP_INCLUDE_USAGE": "on",
        }
        middleware = ("--middleware", "switched.Switched")
        with running_vllm(folder, *middleware, *NO_EVENTS, **settings) as address:
            rows = folder / "tap.ndjson"
            pairs = measured(address, rows, arguments.pairs, arguments.prompt_words)
    report(pairs)


def report(pairs: list[Pair]) -> None:
    draw = random.Random(7)
    ratios = sorted(ratio(draw.choices(pairs, k=len(pairs))) for _ in range(1000))
    for name, values in zip(("without", "with"), _all(pairs), strict=True):
        shown = ", ".join(f"{value * 1e3:.2f}" for value in statistics.quantiles(values, n=4))
        print(f"TTFT {name} the tap, {len(values)} requests: quartiles {shown} ms")
    low = [statistics.quantiles(values, n=10)[0] for values in _all(pairs)]
    print(f"ratio of the lowest tenths {low[1] / low[0]:.3f} (others on the machine only add time)")
    print(
        f"ratio of medians {ratio(pairs):.3f} (95 % of resamples {ratios[25]:.3f} to "
        f"{ratios[-26]:.3f}; bar 1.02)"
    )


if __name__ == "__main__":
    main()
