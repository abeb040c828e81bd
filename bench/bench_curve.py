"""The capacity curve as a whole process, against reading the same trace.

The trace is that of `bench_causes`: about 100,000 prompts of 2.9 million block ids in a JSON file.
The baseline decodes it by msgspec's typed decoder into arrays and does nothing with them. Both are
processes of their own, start to end, in turns; user CPU and peak memory are the operating
system's. `warm` is a curve on prompts in memory.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.bench_causes import BLOCK_TOKENS, generate
from prefixscope.traces.file import read_trace
from replay.rules import RULES
from replay.traffic import Names, Numbers

CPU_BAR_SECONDS, MEMORY_BAR_MB, WARM_BAR_SECONDS = 1.5, 250, 0.9
TRACE = "trace.jsonl"
_BASELINE = """
import sys
from array import array
import msgspec
class Line(msgspec.Struct, gc=False):
    timestamp: float
    input_length: int
    hash_ids: list[int]
decode = msgspec.json.Decoder(Line).decode
ids, lengths = array("Q"), array("q")
for line in open(sys.argv[1], "rb"):
    row = decode(line)
    ids.extend(row.hash_ids)
    lengths.append(row.input_length)
"""


def write_trace(folder: Path, conversations: int, seed: int) -> None:
    """The generated prompts as lines of a trace, ids from 0 in order of appearance."""
    generate(folder, conversations, seed)
    names: Names = np.load(folder / "names.npy")
    starts: Numbers = np.load(folder / "starts.npy")
    moments = np.load(folder / "moments.npy")
    _, first, place = np.unique(names, return_index=True, return_inverse=True)
    ids = np.argsort(np.argsort(first))[place]
    path = folder / TRACE
    with path.open("w") as file:
        for number, moment in enumerate(moments.tolist()):
            chain = ids[starts[number] : starts[number + 1]].tolist()
            length = len(chain) * BLOCK_TOKENS - number % BLOCK_TOKENS
            row = {"timestamp": int(moment * 1000), "input_length": length, "hash_ids": chain}
            file.write(json.dumps(row) + "\n")


def run(command: list[str]) -> tuple[float, float]:
    """User CPU seconds and peak MB of a process."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise subprocess.CalledProcessError(status, command)
    return used.ru_utime, used.ru_maxrss / 1024


def warm_seconds(path: Path, rounds: int) -> float:
    """Median CPU of one curve on prompts in memory."""
    from replay.curve import curve

    prompts = read_trace([path]).prompts
    seconds = []
    for _ in range(rounds + 1):
        began = time.process_time()
        curve(prompts, RULES["full"])
        seconds.append(time.process_time() - began)
    return statistics.median(seconds[1:])


def main() -> int:
    """Print figures and bars; 1 where a bar is missed."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--conversations", type=int, default=45_600)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.write:
        write_trace(given.write, given.conversations, given.seed)
        return 0
    with tempfile.TemporaryDirectory() as name:
        # A process begins with the peak memory of the one that starts it, so ours stays small.
        writer = [sys.executable, "-m", "bench.bench_curve", "--write", name]
        writer += ["--conversations", str(given.conversations), "--seed", str(given.seed)]
        subprocess.run(writer, check=True)
        path = Path(name) / TRACE
        ours = [sys.executable, "-m", "prefixscope", "curve", str(path)]
        baseline = [sys.executable, "-c", _BASELINE, str(path)]
        run(ours)  # compiles
        taken = [(run(ours), run(baseline)) for _ in range(given.rounds)]
        warm = warm_seconds(path, given.rounds)
    seconds = statistics.median(each[0] for each, _ in taken)
    peak = max(each[1] for each, _ in taken)
    plain = statistics.median(each[0] for _, each in taken)
    print(f"whole process: {seconds:.2f} s user (bar {CPU_BAR_SECONDS}), {seconds / plain:.2f} x"
          f" decoding alone; peak {peak:.0f} MB (bar {MEMORY_BAR_MB})")  # fmt: skip
    print(f"warm, in memory: {warm:.2f} s (bar {WARM_BAR_SECONDS})")
    return int(seconds > CPU_BAR_SECONDS or peak > MEMORY_BAR_MB or warm > WARM_BAR_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
