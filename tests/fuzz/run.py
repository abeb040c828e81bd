"""The whole fuzz: damaged inputs for everything that reads what others wrote (`make fuzz`).

    python -m tests.fuzz.run --inputs 200000 --seed 1 [--only vllm]

Half of the inputs are rows of logs, taken in by the ordinary way into one store; half go to the
parsers one by one. Chance is plain `random` here: drawing every byte through Hypothesis would
take hours; the tests of `unit_fuzz` do that for a few. Prints, of each kind, what was taken and
refused, and how much longer the slowest input took than the usual one; then every fault with
the smallest input that shows it, and ends with 1 if there is any.
"""

import argparse
import heapq
import itertools
import logging
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from exporter.sources.formats import FORMATS
from exporter.sources.formats.mapping import LogFormat
from exporter.store.store import Store
from tests.fuzz import rows, stored_pages
from tests.fuzz.damage import damaged
from tests.fuzz.parsers import Parser, parsers
from tests.log_path import SMALL

ROOT = str(Path(__file__).parents[2])
ROWS_PER_BATCH = 500
PAGES_PER_BATCH = 20
_SLOWEST_KEPT = 5
_SHRINK_TRIES = 300
# Each is a whole input and starts statements of its own; their readers get thousands before.
_DOCUMENTS = 40


@dataclass
class Result:
    """What became of the inputs of one kind. `times` are seconds and bytes of each."""

    name: str
    inputs: int = 0
    refused: int = 0
    times: list[tuple[float, int]] = field(default_factory=list)
    slowest: list[tuple[float, bytes]] = field(default_factory=list)
    faults: dict[str, bytes] = field(default_factory=dict)

    def timed(self, seconds: float, data: bytes) -> None:
        self.times.append((seconds, len(data)))
        heapq.heappush(self.slowest, (seconds, data))
        if len(self.slowest) > _SLOWEST_KEPT:
            heapq.heappop(self.slowest)

    def line(self, again: Callable[[bytes], float]) -> str:
        """One row of the table. The slowest are read again, as the machine may have been busy."""
        if not self.times:
            return f"{self.name:28} {self.inputs:8}"
        worst, data = max((again(data), data) for _, data in self.slowest)
        usual = sorted(seconds for seconds, _ in self.times)[len(self.times) // 2]
        rate = sorted(seconds / (size + 1024) for seconds, size in self.times)[len(self.times) // 2]
        per_byte = worst / (len(data) + 1024) / rate
        return (
            f"{self.name:28} {self.inputs:8} {self.refused:8} {usual * 1e6:10.0f} us"
            f" {worst / usual:9.1f} {per_byte:9.1f} {len(data):9}  {len(self.faults)}"
        )


HEADING = (
    f"{'kind':28} {'inputs':>8} {'refused':>8} {'median':>13} {'slowest/':>9} {'per byte':>9}"
    f" {'its bytes':>9}  faults"
)


def run_parser(parser: Parser, count: int, seed: str) -> Result:
    """Damaged inputs for one parser, each timed."""
    chance, result = Random(f"{parser.name} {seed}"), Result(parser.name)
    for _ in range(count):
        data = damaged(chance.choice(parser.seeds), parser.kind, chance)
        started = time.perf_counter()
        try:
            parser.read(data)
        except parser.own:
            result.refused += 1
        except Exception as error:  # noqa: BLE001  # that is what is looked for
            keep_fault(result, fault_of(error), data)
        result.timed(time.perf_counter() - started, data)
    result.inputs = count
    result.faults = {fault: shrunk(parser, data, fault) for fault, data in result.faults.items()}
    return result


def read_again(parser: Parser) -> Callable[[bytes], float]:
    """Seconds a parser takes for an input: the best of three."""

    def seconds(data: bytes) -> float:
        best = float("inf")
        for _ in range(3):
            started = time.perf_counter()
            fault_in(parser, data)
            best = min(best, time.perf_counter() - started)
        return best

    return seconds


def keep_fault(result: Result, fault: str, data: bytes) -> None:
    if len(data) < len(result.faults.get(fault, data + b" ")):
        result.faults[fault] = data


def fault_of(error: Exception) -> str:
    """The error and the last line of ours it came through: what makes two faults the same."""
    raised = traceback.extract_tb(error.__traceback__)
    paths = [(frame.filename, frame.lineno) for frame in raised]
    frames = [(p, n) for p, n in paths if p.startswith(ROOT) and "site-packages" not in p]
    where = f"{frames[-1][0].removeprefix(ROOT)}:{frames[-1][1]}" if frames else "?"
    return f"{type(error).__name__} at {where}: {str(error)[:120]}"


def fault_in(parser: Parser, data: bytes) -> str | None:
    try:
        parser.read(data)
    except parser.own:
        return None
    except Exception as error:  # noqa: BLE001  # that is what is looked for
        return fault_of(error)
    return None


def shrunk(parser: Parser, data: bytes, fault: str) -> bytes:
    """A smaller input with a fault at the same place, by leaving spans out."""
    place, size, tries = fault.partition(": ")[0], len(data) // 2, 0
    while size and tries < _SHRINK_TRIES:
        for start in range(0, len(data), size):
            tries += 1
            fewer = data[:start] + data[start + size :]
            if (fault_in(parser, fewer) or "").startswith(place):
                data = fewer
                break
        else:
            size //= 2
    return data


def run_rows(store: Store, folder: Path, known: LogFormat, count: int, seed: str) -> Result:
    """Rows of a format in batches, by name and by `auto`; a document is a batch by itself."""
    chance, result = Random(f"{known.name} {seed}"), Result(f"rows {known.name}")
    ways = itertools.cycle((("auto", "http"), (known.name, "file"), (known.name, "http")))
    for turn, (way, origin) in enumerate(ways):
        if result.inputs >= count:
            break
        data = rows.batch(known, ROWS_PER_BATCH, chance)
        taken = 1 if known.documents else ROWS_PER_BATCH
        try:
            seconds = rows.check(store, data, way, f"{known.name}-{turn % 4}", origin)
            result.times.append((seconds / taken, len(data) // taken))
        except Exception as error:  # noqa: BLE001  # that is what is looked for
            if (fault := fault_of(error)) not in result.faults:
                result.faults[fault] = rows.smallest(data, known, folder)
        result.inputs += taken
    return result


def run_pages(store: Store, folder: Path, count: int, seed: str) -> Result:
    """Pages of every program into the store, a series at a time."""
    chance, result = Random(f"pages {seed}"), Result("pages into the store")
    while result.inputs < count:
        pages = stored_pages.batch(chance, PAGES_PER_BATCH)
        started = time.perf_counter()
        try:
            stored_pages.check(store, folder / f"target-{result.inputs}", pages)
        except Exception as error:  # noqa: BLE001  # that is what is looked for
            keep_fault(result, fault_of(error), b"\n-----\n".join(pages))
        seconds, size = time.perf_counter() - started, sum(map(len, pages))
        result.times.append((seconds / PAGES_PER_BATCH, size // PAGES_PER_BATCH))
        result.inputs += PAGES_PER_BATCH
    return result


def batch_line(result: Result) -> str:
    """The same row for kinds that are timed by batch: there is nothing to read again."""
    if not result.times:
        return f"{result.name:28} {result.inputs:8}  {len(result.faults)} faults"
    times = sorted(seconds for seconds, _ in result.times)
    usual, worst = times[len(times) // 2], times[-1]
    return (
        f"{result.name:28} {result.inputs:8} {'':8} {usual * 1e6:10.0f} us"
        f" {worst / usual:9.1f} {'':9} {'':9}  {len(result.faults)}"
    )


def check_store(store: Store, folder: Path) -> dict[str, bytes]:
    """What must hold of the whole store after everything; it is closed here."""
    found: dict[str, bytes] = {}
    for check in (rows.check_tables, rows.check_figures):
        try:
            check(store)
        except Exception as error:  # noqa: BLE001  # that is what is looked for
            found[fault_of(error)] = b""
    store.close()
    try:
        rows.check_secrets(folder)
    except AssertionError as error:
        found[fault_of(error)] = b""
    return found


def run_parsers(folder: Path, inputs: int, seed: str, only: str) -> Iterator[Result]:
    """Every parser, each with its share of the inputs."""
    chosen = [parser for parser in parsers(folder) if only in parser.name]
    shares = sum(parser.share for parser in chosen)
    for parser in chosen:
        result = run_parser(parser, inputs * parser.share // shares, seed)
        print(result.line(read_again(parser)), flush=True)
        yield result


def run_store(folder: Path, inputs: int, seed: str, only: str) -> Iterator[Result]:
    """Rows of every format and pages of every program into one store."""
    store = Store.open(folder / "store", SMALL)
    chosen = [known for known in FORMATS if only in f"rows {known.name}"]
    lines = sum(not known.documents for known in chosen)
    for known in chosen:
        count = _DOCUMENTS if known.documents else inputs // lines
        result = run_rows(store, folder / "tries", known, count, seed)
        print(batch_line(result), flush=True)
        yield result
    if only in "pages into the store":
        result = run_pages(store, folder / "pages", inputs // 100, seed)
        print(batch_line(result), flush=True)
        yield result
    yield Result("the store as a whole", faults=check_store(store, folder / "store"))


def run(inputs: int, seed: str, only: str, half: str) -> list[Result]:
    """Both halves, or one; prints a row of the table as each kind ends."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as name:
        if half in ("both", "parsers"):
            results += run_parsers(Path(name), inputs // 2, seed, only)
        if half in ("both", "store"):
            results += run_store(Path(name), inputs // 2, seed, only)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--inputs", type=int, default=200_000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", default="", help="kinds and formats with this in their name")
    parser.add_argument("--half", choices=("both", "parsers", "store"), default="both")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    print(HEADING)
    started = time.monotonic()
    results = run(given.inputs, given.seed, given.only, given.half)
    faults = [(r.name, fault, data) for r in results for fault, data in r.faults.items()]
    inputs = sum(result.inputs for result in results)
    print(f"{inputs:,} inputs in {time.monotonic() - started:.0f} s, {len(faults)} faults")
    for name, fault, data in faults:
        print(f"\n{name}: {fault}\n    {data[:1000]!r}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
