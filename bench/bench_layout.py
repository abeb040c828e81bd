"""How well defects in a prompt's layout are found from hashes alone: precision and recall.

Traffic of one template each, generated as token ids with a known defect (or none) by a module that
the detector does not know, then hashed: `tests/unit_layout/inject_token_defects.py`. Thresholds
were set on seeds 1 to 10; figures are told of others. A fifth of the worlds is clean. Every miss
and every false finding is printed.
"""

import argparse
import sys
import time
from collections import Counter

from replay.layout_chains.findings import layout_findings
from tests.unit_layout.inject_token_defects import DEFECTS, Injected, inject
from tests.unit_layout.told_from_tokens import VLLM, is_right, prompts_of

BAR = 0.95
# As many clean worlds beside the others as make a fifth of all.
_CLEAN = round(len(DEFECTS) / 4)


def main() -> int:
    """Print figures and bars; 1 where a bar is missed."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--first", type=int, default=11, help="first seed")
    arguments.add_argument("--last", type=int, default=30, help="last seed")
    arguments.add_argument("--pieces", action="store_true", help="rows have pieces cut by content")
    given = arguments.parse_args()
    counts: Counter[str] = Counter()
    for seed in range(given.first, given.last + 1):
        for defect in DEFECTS:
            _judge(inject(seed, defect), defect, counts, given.pieces)
        for number in range(_CLEAN):
            _judge(inject(1000 * number + seed, None), "clean", counts, given.pieces)
    return _told(counts)


def _judge(injected: Injected, name: str, counts: Counter[str], by_pieces: bool) -> None:
    """Count a world, and print what is wrong with it."""
    prompts = prompts_of(injected.requests, by_pieces)
    began = time.process_time()
    found = layout_findings(prompts, VLLM)
    counts["milliseconds"] += round(1000 * (time.process_time() - began))
    right = [each for each in found if is_right(each, injected.truth)][:1]
    counts["worlds"] += 1
    counts[f"{name} worlds"] += 1
    counts[f"{name} right"] += bool(right) if injected.truth else not found
    counts["found"] += len(found)
    counts["true"] += len(right)
    counts["defects"] += injected.truth is not None
    for each in found:
        if each not in right:
            print(f"false: {injected.title}: {each}")
    if injected.truth and not right:
        print(f"missed: {injected.title}: {injected.truth}")


def _told(counts: Counter[str]) -> int:
    for name in (*DEFECTS, "clean"):
        print(f"{name}: {counts[f'{name} right']} of {counts[f'{name} worlds']}")
    precision = counts["true"] / counts["found"]
    recall = counts["true"] / counts["defects"]
    each = counts["milliseconds"] / counts["worlds"]
    print(f"precision {precision:.3f}, recall {recall:.3f} (bar {BAR}); {counts['worlds']} worlds,"
          f" {each:.0f} ms CPU each")  # fmt: skip
    return int(min(precision, recall) < BAR)


if __name__ == "__main__":
    sys.exit(main())
