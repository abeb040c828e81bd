"""Writes docs/traps.md: which known trap is proven by which test.

A test says that it covers a trap by its name: `test_t57_gap_is_spread`, or
`test_t43_t65_...` for two. Names of case folders, case files and parameter ids that start
the same way (`t57_gap`) count too. The page is generated so that it cannot drift;
`make traps` rewrites it and a test compares it with the names that exist.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "traps.md"

TITLES = {
    1: "Look-ups repeated after preemption are not reuse",
    2: "A last-batch gauge is not a rate",
    3: "No ratio above 100 %",
    4: "Several choices, one prompt",
    5: "Zero is not the same as not reported",
    6: "The last, most detailed usage of a stream counts",
    7: "One denominator for all tiers: prompt tokens",
    8: "A look-up that was skipped is not a miss",
    9: "Increases per full label set first, then the sum",
    10: "Occupancy is weighted by capacity",
    11: "Windows come from increases, not from totals",
    12: "A hit ratio is a ratio of token sums",
    13: "Metric names change between versions; missing is not zero",
    14: "The first scrape is a baseline",
    15: "Counters that credit at different moments are not added",
    16: "Inside or beside the prompt count is known per source",
    17: "Look-ups measure the cache, retrievals only the loading",
    18: "Negative counts are unknown; frozen counters are found out",
    19: "Tiers add up to the whole",
    20: "Usage 0 is not an empty cache",
    21: "Blocks are converted to tokens, never added to them",
    22: "A denominator is never invented",
    23: "Writes and reads of cached tokens are counted apart",
    24: "Samples are chosen by label, drops linked to events",
    25: "Rates printed in engine logs are not data",
    26: "A sequence that goes back is a restart",
    27: "A clear is a reset, not evictions",
    28: "A demotion is not a loss",
    29: "A gap makes the state uncertain",
    30: "Each prompt token is priced exactly once",
    31: "Inclusive or exclusive is decided per source and recorded",
    32: "Impossible inclusive readings are detected",
    33: "A negative remainder is a mapping error",
    34: "OpenAI-style cached tokens are part of the prompt",
    35: "Bedrock counts exclusively",
    36: "Gemini cached tokens are part of the prompt",
    37: "DeepSeek misses are not writes",
    38: "Writes are priced by their lifetime",
    39: "Response caches are not prefix caches",
    40: "Requests and attempts are counted apart",
    41: "Bridged duplicates are looked for",
    42: "An aborted request with zero tokens has unknown usage",
    43: "No first-token time without a stream",
    44: "Reads and writes are priced",
    45: "`_created` is a start time, not traffic",
    46: "The parser follows the content type; `_total` may be missing",
    47: "Hostile label values are escaped",
    48: "Label sets come from current state",
    49: "Every label is bounded and totals stay right",
    50: "Only known names become label values",
    51: "Bucket bounds are compared as numbers",
    52: "Content types: right ones out, missing ones tolerated in",
    53: "A new series on a known target is not a new target",
    54: "Time stamps on a page mean what its format says",
    55: "A real parser reads the pages",
    56: "Colons are read, never written",
    57: "Resets and gaps are seen and marked",
    58: "No traffic is its own state",
    59: "A truncated file is read from its start",
    60: "Offsets move by whole lines",
    61: "One bad line costs one line",
    62: "Not a number is unknown",
    63: "Types are declared, and coerced field by field",
    64: "Over-long lines follow a policy",
    65: "Seconds, milliseconds, microseconds, nanoseconds",
    66: "Lines of one response are merged",
    67: "Reading twice changes nothing; conflicts are reported",
    68: "Late rows reach the period they belong to",
    69: "One process owns the store",
    70: "A store is opened once per process",
    71: "A kill loses nothing that was committed",
    72: "Memory is bounded and rows go in by batches",
    73: "Retention bounds the disk",
    74: "A cursor for every thread",
    75: "Caches know parameters and data version",
    76: "Caches are bounded and pages get aggregates",
    77: "Large tables are paged in the database",
    78: "Stored in UTC, shown in a named zone",
    79: "The first token that differs is found, and what moving it wins",
    80: "Tools are compared as sets and as sequences",
    81: "Prompts are judged as they are rendered",
    82: "Equal text is not equal tokens",
    83: "The block size is stated with the floor it sets",
    84: "An identical repeat stops below its last token",
    85: "Engine settings belong to the expected hit",
    86: "Model, adapter and salt are part of a prefix",
    87: "Media are part of a prefix",
    88: "Losses to routing and to layout are told apart",
    89: "A routing key may part an identical prefix",
    90: "Expired only where the idle gap exceeds the lifetime",
    91: "No local cause is an answer",
    92: "Eligible and ineligible tokens stand apart",
    93: "Workload, routing and engine add up to what missed",
    94: "Restarts and deployments are tested before prompts are blamed",
    95: "Hash counts fit length and block size",
    96: "A trace's unit of time is explicit",
    97: "Block sizes that differ are refused",
    98: "Intervals are scaled from the first row",
    99: "A hit ends at the first missing block",
    100: "Every request is counted once",
    101: "A block exists once it has been computed",
    102: "Warm-up is marked when arms are compared",
    103: "Resident fits capacity, reuse fits the prompt",
    104: "The unlimited cache bounds every ratio",
}

_LEADING = re.compile(r"(?:t\d{1,3}_)+")


def traps_in(name: str) -> list[int]:
    """The trap numbers a name starts with, as in `t43_t65_first_token`; none for others."""
    match = _LEADING.match(name)
    return [int(number) for number in re.findall(r"\d+", match.group())] if match else []


def _names_in_code(source: str) -> Iterator[tuple[str, str]]:
    """(name to look at, name of the test) for test functions and for ids inside them."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if not node.name.startswith("test_"):
            continue
        yield node.name.removeprefix("test_"), node.name
        for decorator in node.decorator_list:
            for part in ast.walk(decorator):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value, f"{node.name}[{part.value}]"


def _case_files(tests: Path) -> Iterator[Path]:
    """Case folders and case files, which carry trap numbers in their names like tests do."""
    for path in sorted(tests.rglob("*")):
        if path.suffix not in {".py", ".pyc"} and "__pycache__" not in path.parts:
            yield path


def covered(tests: Path) -> dict[int, list[str]]:
    """Trap number -> test ids relative to the repository, sorted; empty without tests."""
    found: dict[int, set[str]] = defaultdict(set)
    for path in sorted(tests.rglob("test_*.py")):
        where = path.relative_to(tests.parent).as_posix()
        for name, test in _names_in_code(path.read_text(encoding="utf-8")):
            for trap in traps_in(name):
                found[trap].add(f"{where}::{test}")
    for path in _case_files(tests):
        for trap in traps_in(path.name):
            found[trap].add(path.relative_to(tests.parent).as_posix())
    return {trap: sorted(names) for trap, names in sorted(found.items())}


def page(by_trap: dict[int, list[str]]) -> str:
    """The whole of docs/traps.md."""
    lines = [
        "# Traps covered by tests",
        "",
        "Faults that people who run prefix caches, gateways and exporters have met in public.",
        "Each line names the tests that fail when we fall for one. The numbers are those of",
        "the project's list of traps. Written by `make traps`; do not edit.",
        "",
        "| trap | what must hold | tests |",
        "| --- | --- | --- |",
    ]
    for trap, names in by_trap.items():
        tests = "<br>".join(f"`{name}`" for name in names)
        lines.append(f"| T{trap} | {TITLES.get(trap, '')} | {tests} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the page; the exit code is 0."""
    PAGE.parent.mkdir(exist_ok=True)
    by_trap = covered(ROOT / "tests")
    PAGE.write_text(page(by_trap), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(by_trap)} traps covered")
    return 0


if __name__ == "__main__":
    sys.exit(main())
