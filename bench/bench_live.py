"""The arms of a what-if on real servers, and what the model says of the same requests.

Two vLLM replicas with the tap in them behind a real router, freshly started for each arm: caching
off, on behind round robin, on behind cache-aware routing. vLLM's own load generator sends one trace
to each. Then the model replays the trace, timed by the arm without caching alone, and both are
printed side by side. Needs the vLLM that `make test-engine` installs, and vllm-router beside it.
"""

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

import requests

from bench.live.generator import generate
from bench.live.measured import Measured, counters, joined, rise
from bench.live.modelled import Machine, calibrated, modelled
from bench.live.recorded_order import given_replica
from bench.live.servers import (
    MODEL,
    REPLICAS,
    SHAPE,
    STEP_TOKENS,
    Engines,
    Replica,
    fleet,
    machine_words,
)
from bench.live.tables import missed, report
from bench.live.trace import BLOCK_TOKENS, Plan, write_trace
from exporter.errors import PrefixscopeError
from prefixscope.demo_engine.model import write_model
from prefixscope.tap_file import one_file
from prefixscope.traces.file import read_trace
from tests.engine.live import ENGINE_DIR

# Policy of the real router, and whether replicas cache.
ARMS = {"off": ("round_robin", False), "round-robin": ("round_robin", True),
        "cache-aware": ("cache_aware", True)}  # fmt: skip
_WARM_UP_REQUESTS, _WARM_UP_TOKENS = 3, 200
_TAP_SECONDS = 10


def main() -> int:
    """0 also where vLLM or the router is missing, which is said; 1 where a run failed, was stopped,
    or misses a bar."""
    given = _arguments()
    engines = Engines(given.engine_dir)
    missing = engines.missing()
    if missing:
        print(f"skipped: {missing}")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory() as name:
            return _run(engines, given, Path(name))
    except PrefixscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped, with all that was started", file=sys.stderr)
        return 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine-dir", type=Path, default=ENGINE_DIR, help="has vllm/ and router/")
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--prefixes", type=int, default=10)
    parser.add_argument("--blocks", type=int, default=220, help="KV memory of a replica")
    parser.add_argument("--clients", type=int, default=2, help="each sends when it is answered")
    parser.add_argument("--gap", type=float, help="instead by the trace's times: their mean, in s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--arm-seconds", type=float, default=150.0, help="longest time of one arm")
    return parser.parse_args()


def _run(engines: Engines, given: argparse.Namespace, folder: Path) -> int:
    plan = Plan(requests=given.requests, prefixes=given.prefixes, gap_seconds=given.gap or 1.0,
                seed=given.seed)  # fmt: skip
    trace = write_trace(plan, folder / "trace.jsonl")
    model = write_model(folder / "model", SHAPE)
    (folder / "prefixscope_tap.py").write_text(one_file(), encoding="utf-8")
    print(f"{engines.versions()}; {machine_words()}")
    print(f"{plan.words()}; {given.blocks} blocks a replica, {_pace(given)}", flush=True)
    clients = None if given.gap else given.clients
    measured = {}
    for arm, (policy, caches) in ARMS.items():
        began = time.monotonic()
        with fleet(engines, folder / arm, model, given.blocks, policy, caches) as servers:
            ready = time.monotonic()
            before = [_warmed(replica) for replica in servers.replicas]
            sent = generate(engines, servers.url, model, trace, given.requests, clients,
                            given.arm_seconds, folder / arm)  # fmt: skip
            after = [counters(replica.url) for replica in servers.replicas]
            taps = _tap_lines(servers.replicas, given.requests)
        measured[arm] = joined(sent, taps, rise(before, after))
        print(f"{arm}: started in {ready - began:.0f} s, ran {time.monotonic() - ready:.0f} s",
              flush=True)  # fmt: skip
    return _compare(measured, trace, Machine(
        replicas=REPLICAS, usable_blocks=given.blocks - 1, step_tokens=STEP_TOKENS, clients=clients,
    ))  # fmt: skip


def _pace(given: argparse.Namespace) -> str:
    if given.gap:
        return f"a request each {given.gap:g} s in the mean, whatever the answers"
    return f"{given.clients} clients that send as soon as they are answered"


def _warmed(replica: Replica) -> dict[str, float]:
    """Its counters after a few prompts of no use to the trace: the first ones take longer."""
    for number in range(_WARM_UP_REQUESTS):
        body = {"model": MODEL, "prompt": [number + 3] * _WARM_UP_TOKENS, "max_tokens": 2}
        requests.post(f"{replica.url}/v1/completions", json=body, timeout=60).raise_for_status()
    return counters(replica.url)


def _tap_lines(replicas: list[Replica], answered: int) -> list[list[str]]:
    """The rows of each replica, as soon as all are there: a tap writes them after the answers."""
    wanted = answered + _WARM_UP_REQUESTS * len(replicas)
    deadline = time.monotonic() + _TAP_SECONDS
    while True:
        texts = [replica.tap.read_text(encoding="utf-8") for replica in replicas]
        lines = [text[: text.rfind("\n") + 1].splitlines() for text in texts]
        if sum(map(len, lines)) >= wanted or time.monotonic() > deadline:
            return lines
        time.sleep(0.2)


def _compare(measured: dict[str, Measured], trace: Path, machine: Machine) -> int:
    """1 where a bar is missed."""
    prompts = read_trace([trace], BLOCK_TOKENS).prompts
    clock = calibrated(measured["off"], machine)
    told = {arm: given_replica(prompts, seen, machine.usable_blocks)
            for arm, seen in measured.items() if arm != "off"}  # fmt: skip
    ours = modelled(prompts, machine, clock)
    print("model, timed by the arm off alone:", *clock.words(), sep="\n  ")
    print(report(measured, ours, told))
    bars = missed(measured, ours)
    print("\n".join(f"missed: {bar}" for bar in bars) or "bars met: hit ratios, order of arms")
    return int(bool(bars))


if __name__ == "__main__":
    sys.exit(main())
