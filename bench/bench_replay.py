"""Timed arms as a whole process, and how their cost grows with the trace.

The traces are those of `bench_curve`: about 12,000 and 100,000 prompts in a JSON file. Measured is
`prefixscope replay` with its six usual arms on four replicas, start to end, beside a process that
only imports what it needs; and one arm on prompts in memory at both sizes. User CPU.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bench.bench_curve import TRACE, run
from prefixscope.trace_file import read_trace
from replay.clock import Clock
from replay.rules import RULES

CPU_BAR_SECONDS, GROWTH_BAR = 1.0, 1.5
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


def main() -> int:
    """Print figures and bars; 1 where a bar is missed."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=5)
    given = arguments.parse_args()
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
    return int(seconds > CPU_BAR_SECONDS or growth > GROWTH_BAR)


if __name__ == "__main__":
    sys.exit(main())
