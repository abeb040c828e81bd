"""Time to first token of a real vLLM with and without the tap, in one run on one engine.

The tap sits in the engine as its middleware, beside a switch that a header turns off; requests
with and without alternate, in an order drawn anew for each pair, so that both see the same
machine. Bar: ratio of the medians at most 1.02 over at least 300 requests. The spread is a
bootstrap over pairs. Needs the engine scripts beside the checkout, as `make test-engine` does.
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
from tests.engine.test_tap_live import SWITCH

CHAT = "/v1/chat/completions"


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


def measured(address: str, pairs: int, prompt_words: int) -> list[tuple[float, float]]:
    """(without, with) seconds of so many pairs after a warm-up; every prompt is repeated once
    with and once without, and its first run, which fills the cache, is not counted."""
    order = random.Random(7)
    found = []
    for number in range(pairs + 10):
        words = " ".join(order.choice(("account", "claim", "ledger")) for _ in range(prompt_words))
        request: dict[str, object] = {
            "model": "tiny", "stream": True, "max_tokens": 2, "ignore_eos": True,
            "temperature": 0, "messages": [{"role": "user", "content": f"{number % 20} {words}"}],
        }  # fmt: skip
        first_token_seconds(address, request, tapped=False)
        ways = [False, True]
        order.shuffle(ways)
        seconds = {way: first_token_seconds(address, request, way) for way in ways}
        if number >= 10:
            found.append((seconds[False], seconds[True]))
    return found


def ratio(pairs: list[tuple[float, float]]) -> float:
    """Median with the tap ÷ median without."""
    return statistics.median(w for _, w in pairs) / statistics.median(o for o, _ in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=300, help="each is two counted requests")
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
        with running_vllm(folder, "--middleware", "switched.Switched", **settings) as address:
            pairs = measured(address, arguments.pairs, arguments.prompt_words)
    report(pairs)


def report(pairs: list[tuple[float, float]]) -> None:
    draw = random.Random(7)
    ratios = sorted(ratio(draw.choices(pairs, k=len(pairs))) for _ in range(2000))
    for name, values in (("without", [o for o, _ in pairs]), ("with", [w for _, w in pairs])):
        quartiles = statistics.quantiles(values, n=4)
        shown = ", ".join(f"{value * 1e3:.2f}" for value in quartiles)
        print(f"TTFT {name} the tap, {len(values)} requests: quartiles {shown} ms")
    print(f"paired difference: median {statistics.median(w - o for o, w in pairs) * 1e3:+.3f} ms")
    print(
        f"ratio of medians {ratio(pairs):.3f} (95 % of resamples {ratios[50]:.3f} to "
        f"{ratios[-51]:.3f}; bar 1.02)"
    )


if __name__ == "__main__":
    main()
