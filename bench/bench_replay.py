"""Timed arms as a whole process, and how their cost grows with the trace.

The traces are those of `bench_curve`: about 12,000 and 100,000 prompts in a JSON file. Measured is
`prefixscope replay` with its six usual arms on four replicas, start to end, beside a process that
only imports what it needs; and one arm on prompts in memory at both sizes. User CPU.

Where the field's reference simulator is installed (`--reference`: a Python that has it), one arm of
each on Mooncake's conversation trace, process against process in turns, and what both say of it:

    python3 -m venv reference
    reference/bin/pip install --no-deps --only-binary=:all: ai-dynamo ai-dynamo-runtime
    python -m bench.bench_replay --reference reference/bin/python --trace conversation_trace.jsonl
"""

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bench import reference_simulator
from bench.bench_curve import TRACE, run
from prefixscope.traces.file import read_trace
from replay.clock import Clock
from replay.rules import RULES

CPU_BAR_SECONDS, GROWTH_BAR, REFERENCE_BAR = 1.0, 1.5, 0.2
SIZES = (5_400, 45_600)
CLOCK = Clock(prefill_tokens_per_second=30_000.0, decode_seconds_per_token=0.02)


def arm_seconds(path: Path, rounds: int) -> tuple[float, int]:
    """Median CPU of one timed arm on prompts in memory, and how many blocks they have."""
    from replay.routers import Router
    from replay.timed import Fleet, serve_timed

    prompts = read_trace([path]).prompts
    fleet = Fleet(replicas=4, capacity_blocks=5_000, clock=CLOCK, router=Router(name="scored"))
    seconds = []
    for seed in range(rounds + 1):
        router = replace(fleet.router, seed=seed + 1)
        began = time.process_time()
        serve_timed(prompts, RULES["full"], replace(fleet, router=router))
        seconds.append(time.process_time() - began)
    return statistics.median(seconds[1:]), len(prompts.blocks)


# Read off the reference's own report: a prefill without a queue takes 11.9 ms and a millisecond
# for each 47.4 tokens, an answer's token 8 ms.
REFERENCE_CLOCK = ("--prefill-speed", "47422", "--prefill-overhead", "11.85", "--decode-time", "8")
_FLEET = ("4", "5000", "512")
# Ours: what they call it.
_ARMS = {"off": "off", "round-robin": "round_robin", "scored": "kv_router",
         "scored by prefill": "kv_router_prefill"}  # fmt: skip


def beside_reference(python: str, trace: Path, rounds: int) -> bool:
    """Both simulators on a trace, our clock set to what theirs assumes; whether the bar is met."""
    with tempfile.TemporaryDirectory() as name:
        plain = Path(name) / "trace.jsonl"
        packed = trace.suffix == ".gz"
        plain.write_bytes(gzip.decompress(trace.read_bytes()) if packed else trace.read_bytes())
        one = [sys.executable, "-m", "prefixscope", "replay", str(plain), "--arms", "scored",
               "--capacity-blocks", "5000", *REFERENCE_CLOCK]  # fmt: skip
        theirs = [python, reference_simulator.__file__, str(plain), "kv_router", *_FLEET]
        os.environ["DYN_LOG"] = "error"
        run(one)
        taken = [(run(one), run(theirs)) for _ in range(rounds)]
        for arm, router in _ARMS.items():
            said = subprocess.check_output(
                [*theirs[:3], router, *_FLEET], stderr=subprocess.DEVNULL
            )
            print(f"reference, {arm}: {_words(json.loads(said.splitlines()[-1]))}")
        all_arms = ["off,round-robin,scored" if each == "scored" else each for each in one]
        told = json.loads(subprocess.check_output([*all_arms, "--output", "json"]))
    for row in told["arms"]:
        print(f"ours, {row['arm']}: {_words(_in_milliseconds(row))}")
    seconds = statistics.median(ours[0] for ours, _ in taken)
    reference = statistics.median(theirs[0] for _, theirs in taken)
    print(f"one arm as a process: {seconds:.2f} s user, the reference {reference:.2f} s:"
          f" {seconds / reference:.2f} of it (bar {REFERENCE_BAR})")  # fmt: skip
    return seconds <= REFERENCE_BAR * reference


def _words(figures: dict[str, float]) -> str:
    ratio = figures["token_hit_ratio"]
    mean, half, most = (figures[f"ttft_{each}_milliseconds"] for each in ("mean", "p50", "p99"))
    return f"token hit ratio {ratio:.4f}, TTFT mean {mean:.0f}, p50 {half:.0f}, p99 {most:.0f} ms"


def _in_milliseconds(row: dict[str, float]) -> dict[str, float]:
    names = ("mean", "p50", "p99")
    times = {f"ttft_{each}_milliseconds": row[f"ttft_{each}_seconds"] * 1e3 for each in names}
    return times | {"token_hit_ratio": row["token_hit_ratio"]}


def _has_reference(python: str) -> bool:
    asked = subprocess.run([python, "-c", "import dynamo._core"], capture_output=True, check=False)
    return asked.returncode == 0


def main() -> int:
    """Print figures and bars; 1 where a bar is missed."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--reference", default=sys.executable)
    arguments.add_argument("--trace", type=Path)
    given = arguments.parse_args()
    is_met = True
    if not _has_reference(given.reference):
        print("reference simulator: not installed (see above how; --reference)")
    elif given.trace is None:
        print("reference simulator: give it a trace that both read (--trace)")
    else:
        is_met = beside_reference(given.reference, given.trace, given.rounds)
    found = []
    with tempfile.TemporaryDirectory() as name:
        for size in SIZES:
            folder = Path(name) / str(size)
            folder.mkdir()
            writer = [sys.executable, "-m", "bench.bench_curve", "--write", str(folder)]
            subprocess.run([*writer, "--conversations", str(size)], check=True)
            found.append(arm_seconds(folder / TRACE, given.rounds))
        small = Path(name) / str(SIZES[0]) / TRACE
        ours = [sys.executable, "-m", "prefixscope", "replay", str(small), "--capacity-blocks",
                "5000", "--prefill-speed", "30000"]  # fmt: skip
        imports = [
            sys.executable,
            "-c",
            "import prefixscope.cli, prefixscope.commands.replay, numba",
        ]
        run(ours)
        taken = [(run(ours), run(imports)) for _ in range(given.rounds)]
    seconds = statistics.median(each[0] for each, _ in taken)
    importing = statistics.median(each[0] for _, each in taken)
    (first, blocks), (second, more) = found
    growth = (second / more) / (first / blocks)
    print(f"six arms as a process: {seconds:.2f} s user (bar {CPU_BAR_SECONDS}), of which"
          f" {importing:.2f} s for imports: {seconds / importing:.1f} x those")  # fmt: skip
    print(f"one arm: {first * 1e3:.0f} ms for {blocks:,} blocks, {second * 1e3:.0f} ms for"
          f" {more:,}: {growth:.2f} x the cost a block (bar {GROWTH_BAR})")  # fmt: skip
    return int(seconds > CPU_BAR_SECONDS or growth > GROWTH_BAR or not is_met)


if __name__ == "__main__":
    sys.exit(main())
