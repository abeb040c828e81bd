"""How well defects in a prompt's layout are found from hashes alone: precision and recall.

Traffic of one template each, generated as token ids with a known defect (or none) by a module that
the detector does not know, then hashed: `tests/unit_layout/inject_token_defects.py`. Thresholds
were set on seeds 1 to 10; figures are told of others. A fifth of the worlds is clean. Every miss
and every false finding is printed.
"""

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from replay.known_blocks import numbered
from replay.layout_chains.findings import layout_findings
from replay.layout_chains.prompts import reused_tokens
from replay.mended import mended
from replay.prompts import Prompts
from replay.recorded import Labels
from replay.routers import Router
from replay.untimed import serve
from tests.unit_layout.inject_token_defects import DEFECTS, Injected, Sent, inject
from tests.unit_layout.told_from_tokens import VLLM, chains_of, is_right, prompts_of

BAR = 0.95
_IN_TURNS = ("thinking_removed", "tokenizer_join")
# What changes once is over: nothing is to be won.
_MENDABLE = [name for name in DEFECTS if name != "template_version"]
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
    gains: dict[str, list[float]] = {}
    for seed in range(given.first, given.last + 1):
        for defect in DEFECTS:
            injected = inject(seed, defect)
            gain = _judge(injected, defect, counts, given.pieces)
            if gain is None or defect not in _MENDABLE:
                continue
            gains.setdefault(f"{defect}: gain told", []).append(gain / _true_gain(seed, defect))
            ratio = _mended_gain(injected, given.pieces) / _true_gain(seed, defect)
            gains.setdefault(f"{defect}: gain of a mended replay", []).append(ratio)
        for number in range(_CLEAN):
            _judge(inject(1000 * number + seed, None), "clean", counts, given.pieces)
    return _told(counts, gains)


def _judge(injected: Injected, name: str, counts: Counter[str], by_pieces: bool) -> int | None:
    """Count a world, print what is wrong with it, and return what a fix is said to win at best."""
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
    return right[0].gain_tokens if right else None


def _true_gain(seed: int, defect: str) -> int:
    """What prompts reuse more once the defect is really taken out: whole blocks of earlier prompts,
    none ever lost, or, of turns, what an engine that keeps answers too serves more."""
    worlds = [inject(seed, defect, mended).requests for mended in (False, True)]
    if defect in _IN_TURNS:
        before, after = (sum(each.cached_tokens for each in world) for world in worlds)
        return after - before
    prompts = [prompts_of(world) for world in worlds]
    before, after = (int(reused_tokens(each.contents, each.scope, 16).sum()) for each in prompts)
    return after - before


def _mended_gain(injected: Injected, by_pieces: bool) -> int:
    """What a replay in a cache that never loses a block finds more once prompts are mended."""
    sent = injected.requests
    prompts, nothing = _replayable(sent), np.zeros(len(sent), np.int64)
    told = prompts_of(sent, by_pieces)
    better = mended(prompts, told, Labels(nothing, ["template"]), nothing).prompts
    return 0 if better is None else _found_tokens(better) - _found_tokens(prompts)


def _replayable(sent: Sequence[Sent]) -> Prompts:
    chains = chains_of([each.token_ids for each in sent])
    return Prompts(
        arrived=np.array([each.started for each in sent]),
        prompt_tokens=np.array([len(each.token_ids) for each in sent]),
        output_tokens=np.array([len(each.answer_ids) for each in sent]),
        blocks=numbered(chains.names)[0],
        starts=chains.starts,
        block_tokens=chains.grain_tokens,
    )


def _found_tokens(prompts: Prompts) -> int:
    served = serve(prompts, VLLM, Router(name="round-robin"), replicas=1, capacity_blocks=None)
    return int(served.cached_tokens.sum())


def _told(counts: Counter[str], gains: Mapping[str, list[float]]) -> int:
    for name in (*DEFECTS, "clean"):
        print(f"{name}: {counts[f'{name} right']} of {counts[f'{name} worlds']}")
    for name, ratios in gains.items():
        print(f"{name} / true gain: median {statistics.median(ratios):.2f},"
              f" {min(ratios):.2f} to {max(ratios):.2f}")  # fmt: skip
    precision = counts["true"] / counts["found"]
    recall = counts["true"] / counts["defects"]
    each = counts["milliseconds"] / counts["worlds"]
    print(f"precision {precision:.3f}, recall {recall:.3f} (bar {BAR}); {counts['worlds']} worlds,"
          f" {each:.0f} ms CPU each")  # fmt: skip
    return int(min(precision, recall) < BAR)


if __name__ == "__main__":
    sys.exit(main())
