"""The causes of missed tokens in one batch, against a compiled hash set over the same ids.

Traffic is like ten hours of a chat service: conversations that grow turn by turn behind shared
beginnings, about 100,000 prompts of 2.9 million blocks, four in ten of them new. Ids are
scrambled, since numbers in a row flatter hash sets. The baseline finds or inserts each id once and
keeps what it found (pyarrow's dictionary_encode: C++, one thread); its `unique`, which keeps
nothing, and Python's own set stand beside it. Times are of the process (CPU), taken in turns.

Each kind of pass runs in a process of its own that reads the traffic from files, so that its peak
memory is its own. The same traffic is then named minute by minute, as an exporter does, until a
million blocks are remembered: bytes a block, in memory and in what is kept, and the time beside
that of the batch pass.
"""

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from replay.causes import Causes, attribute
from replay.columns import Fleet
from replay.known_blocks import mixed
from replay.lru import modelled_cached_tokens
from replay.memory import Limits
from replay.rules import RULES
from replay.spans import TrafficSpan
from replay.streaming import CauseStream
from replay.traffic import Chains, Moments, Names, Numbers, Seconds, Traffic, starts_of

HASHES_BAR, ALL_BAR, MEMORY_BAR_MB = 2.0, 5.0, 300
STREAM_BAR_BYTES, STREAM_BLOCKS = 100, 1_000_000
_MINUTE_SECONDS = 60.0
BLOCK_TOKENS = 512
REPLICAS = 4
_HOURS = 10
_SHARED = [np.arange(1 + 100 * size, 1 + 101 * size, dtype=np.uint64) for size in (1, 2, 3, 8)]


def generate(folder: Path, conversations: int, seed: int) -> None:
    """Chains as files: the prompt of a turn is the one before and some blocks more."""
    draw = np.random.default_rng(seed)
    rows: list[tuple[float, Any]] = []
    fresh = 10_000
    for start in draw.random(conversations) * _HOURS * 3600:
        chain, moment = _SHARED[int(draw.integers(len(_SHARED)))], float(start)
        for turn in range(int(draw.geometric(0.45))):
            more = int(draw.geometric(1 / (9 if turn else 14)))
            chain = np.concatenate([chain, np.arange(fresh, fresh + more, dtype=np.uint64)])
            fresh += more
            rows.append((moment, chain))
            moment += float(draw.exponential(60.0))
    rows.sort(key=lambda row: row[0])
    np.save(folder / "names.npy", mixed(np.concatenate([chain for _, chain in rows])))
    np.save(folder / "starts.npy", starts_of([len(chain) for _, chain in rows]))
    np.save(folder / "moments.npy", np.array([moment for moment, _ in rows]))


def by_hashes(folder: Path) -> Callable[[], Causes]:
    """New, evicted, routed and rounding: what names of blocks in their order tell."""
    traffic = _bare(folder)
    return lambda: attribute(traffic, RULES["full"])


def by_all(folder: Path) -> Callable[[], Causes]:
    """Everything there is: contents, scopes, models, times, answers, resets, replicas gone."""
    bare, moments = _bare(folder), np.load(folder / "moments.npy")
    rows = np.arange(len(bare), dtype=np.int64)
    scope, deployment = rows // 5 % 4, rows // 3 % 2
    names, starts = bare.chains.names, bare.chains.starts
    scoped = mixed(names + np.repeat(scope.astype(np.uint64), np.diff(starts)))
    ready = moments + 0.5 + bare.prompt_tokens / 50_000
    traffic = Traffic(
        prompt_tokens=bare.prompt_tokens,
        cached_tokens=bare.cached_tokens,
        chains=Chains(scoped, starts, BLOCK_TOKENS, names),
        looked_up=moments,
        ready=ready,
        ended=ready + 5.0,
        replica=bare.replica,
        deployment=deployment,
        scope=scope,
        output_tokens=np.full(len(bare), 300),
    )
    resets = Moments.of([(number % REPLICAS, 3600.0 * number) for number in range(1, _HOURS)])
    fleet = Fleet(resets=resets, gone=Moments.of([(3, 32_000.0)]))
    return lambda: attribute(traffic, RULES["full"], fleet)


def _bare(folder: Path) -> Traffic:
    names, starts = np.load(folder / "names.npy"), np.load(folder / "starts.npy")
    count = len(starts) - 1
    return Traffic(
        prompt_tokens=np.diff(starts) * BLOCK_TOKENS - np.arange(count) % BLOCK_TOKENS,
        cached_tokens=np.zeros(count, np.int64),
        chains=Chains(names, starts, BLOCK_TOKENS),
        replica=np.arange(count) % REPLICAS,
    )


PASSES = {"hashes": by_hashes, "all": by_all}


def measure(kind: str, folder: Path, rounds: int) -> dict[str, Any]:
    """Medians of a pass and of the baselines, in turns; peak memory before these begin."""
    run = PASSES[kind](folder)
    run()
    found = run()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    names = pa.array(np.load(folder / "names.npy"))
    contenders: dict[str, Callable[[], object]] = {
        "ours": run, "encode": names.dictionary_encode, "unique": names.unique,
    }  # fmt: skip
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, work in contenders.items():
            seconds[name].append(_seconds(work))
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    return {"peak_mb": peak, "causes": found.totals(), "seconds": medians}


def stream(folder: Path) -> dict[str, Any]:
    """Minute by minute with contents, until so many blocks are remembered."""
    bare, moments = _bare(folder), np.load(folder / "moments.npy")
    names, starts = bare.chains.names, bare.chains.starts
    memory = CauseStream.begin(Limits(7 * 86_400.0, 2 * STREAM_BLOCKS), 0.0)
    seconds, kept, rows, minutes = 0.0, 0, 0, 0
    while rows < len(moments) and memory.memory.blocks < STREAM_BLOCKS:
        since = float(moments[rows] // _MINUTE_SECONDS * _MINUTE_SECONDS)
        end = int(np.searchsorted(moments, since + _MINUTE_SECONDS))
        own = slice(int(starts[rows]), int(starts[end]))
        span = _span(
            bare, (names[own], starts[rows : end + 1] - starts[rows]), moments, (rows, end)
        )
        began = time.process_time()
        named = memory.take(span)
        seconds += time.process_time() - began
        kept += sum(array.nbytes for array in named.change.values())
        rows, minutes = end, minutes + 1
    began = time.process_time()
    attribute(_first(bare, rows), RULES["full"])
    batch_seconds = time.process_time() - began
    blocks = memory.memory.blocks
    return {
        "requests": rows, "minutes": minutes, "blocks": blocks,
        "bytes": memory.memory.bytes / blocks, "kept_bytes": kept / blocks,
        "seconds": seconds, "batch_seconds": batch_seconds,
    }  # fmt: skip


def _first(bare: Traffic, rows: int) -> Traffic:
    """The first requests, with contents."""
    starts = bare.chains.starts[: rows + 1]
    names = bare.chains.names[: starts[-1]]
    assert bare.replica is not None
    return Traffic(
        prompt_tokens=bare.prompt_tokens[:rows],
        cached_tokens=bare.cached_tokens[:rows],
        chains=Chains(names, starts, BLOCK_TOKENS, names),
        replica=bare.replica[:rows],
    )


def _span(
    bare: Traffic,
    chains: tuple[Names, Numbers],
    moments: Seconds,
    rows: tuple[int, int],
) -> TrafficSpan:
    picked = slice(*rows)
    assert bare.replica is not None
    looked_up = moments[picked]
    return TrafficSpan(
        traffic=Traffic(
            prompt_tokens=bare.prompt_tokens[picked],
            cached_tokens=bare.cached_tokens[picked],
            chains=Chains(chains[0], chains[1], BLOCK_TOKENS, chains[0]),
            looked_up=looked_up,
            ready=looked_up + 1.0,
            ended=looked_up + 6.0,
            replica=bare.replica[picked],
            output_tokens=np.full(len(looked_up), 300),
        ),
        rules=[RULES["full"]],
        judged=[np.ones(len(looked_up), np.bool_)],
        replicas=[str(number) for number in range(REPLICAS)],
        deployments=np.zeros(1, np.uint64),
        scopes=np.zeros(1, np.uint64),
        open_scopes=np.zeros(0, np.uint64),
        since_seconds=float(looked_up[0] // _MINUTE_SECONDS * _MINUTE_SECONDS),
        until_seconds=float(looked_up[0] // _MINUTE_SECONDS * _MINUTE_SECONDS) + _MINUTE_SECONDS,
    )


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def python_set_seconds(folder: Path) -> float:
    """Python's own set over the same ids, as a person would write it."""
    ids = np.load(folder / "names.npy").tolist()

    def run() -> int:
        seen: set[int] = set()
        hits = 0
        for name in ids:
            if name in seen:
                hits += 1
            else:
                seen.add(name)
        return hits

    return _seconds(run)


def model_seconds(folder: Path, capacity_blocks: int) -> float:
    """The modelled cache of bare traces, which goes block by block in Python."""
    traffic = _bare(folder)
    return _seconds(lambda: modelled_cached_tokens(traffic, RULES["full"], capacity_blocks))


def main() -> int:
    """Print figures and bars; 1 where a bar is missed."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--conversations", type=int, default=45_600)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--only", choices=[*PASSES, "stream"], help=argparse.SUPPRESS)
    arguments.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.only == "stream":
        print(json.dumps(stream(given.folder)))
        return 0
    if given.only:
        print(json.dumps(measure(given.only, given.folder, given.rounds)))
        return 0
    with tempfile.TemporaryDirectory() as name:
        return _compare(Path(name), given)


def _compare(folder: Path, given: argparse.Namespace) -> int:
    generate(folder, given.conversations, given.seed)
    names, starts = np.load(folder / "names.npy"), np.load(folder / "starts.npy")
    print(f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__},"
          f" pyarrow {pa.__version__}; {len(starts) - 1:,} prompts, {len(names):,} blocks,"
          f" {len(np.unique(names)):,} different")  # fmt: skip
    del names
    missed = 0
    # The second kind of pass is given a second hash of every block: its memory is only stated.
    for kind, bar, most_mb in (("hashes", HASHES_BAR, MEMORY_BAR_MB), ("all", ALL_BAR, None)):
        found = _in_a_process(kind, folder, given.rounds)
        seconds = found["seconds"]
        ratio = seconds["ours"] / seconds["encode"]
        told = {name: tokens for name, tokens in found["causes"].items() if tokens}
        print(f"{kind}: {ratio:.2f} × the hash set (bar {bar}), {seconds['ours']:.3f} s;"
              f" {seconds['ours'] / seconds['unique']:.2f} × unique;"
              f" peak {found['peak_mb']:.0f} MB (bar {most_mb or 'none'})")  # fmt: skip
        print(f"  causes: {told}")
        missed += ratio > bar or (most_mb is not None and found["peak_mb"] > most_mb)
    found = _in_a_process("stream", folder, given.rounds)
    print(f"minute by minute: {found['bytes']:.0f} bytes a block (bar {STREAM_BAR_BYTES}) of"
          f" {found['blocks']:,}, contents and {REPLICAS} replicas included;"
          f" {found['kept_bytes']:.0f} bytes kept")  # fmt: skip
    print(f"  {found['requests']:,} prompts: {1000 * found['seconds'] / found['minutes']:.1f} ms a"
          f" minute of {found['requests'] / found['minutes']:.0f};"
          f" {found['seconds'] / found['batch_seconds']:.1f} × the batch pass")  # fmt: skip
    missed += found["bytes"] > STREAM_BAR_BYTES
    print(f"Python's set: {python_set_seconds(folder):.3f} s")
    print(f"a modelled cache of 50,000 blocks a replica: {model_seconds(folder, 50_000):.3f} s")
    return int(missed > 0)


def _in_a_process(kind: str, folder: Path, rounds: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.bench_causes", "--only", kind, "--folder", str(folder),
               "--rounds", str(rounds)]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    sys.exit(main())
