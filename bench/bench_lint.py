"""How many injected layout defects lint finds, and how many findings are none.

No time is measured: the figures are precision and recall of kind, place and frequency together.
Logs are real prompts with defects put in by `tests/unit_lint/inject_defects.py`, which the detector
cannot import: mixed logs (one in five without any defect, the others with one to three), then each
kind alone. Beside it the proof: cached tokens that lint predicts for the mended log against a
replay of a log whose source was mended. The detector was tuned on seeds 1 to 10; 11 to 30 are what
is reported.
"""

import argparse
import sys

from replay.layout.proof import Replay
from replay.layout.search import in_time
from replay.layout.tokens import Tokenizer
from tests.unit_lint.inject_defects import KINDS, SAMPLE, Log, make_log, sessions
from tests.unit_lint.scoring import Score, prompts_of, searched

BAR = 0.95
# Of a session in the logs of one kind; the mixed ones have up to seven.
_TURNS = 3


def mended_cached_tokens(log: Log, kind: str) -> int:
    """What a replay of a mended log serves from cache."""
    prompts = in_time(prompts_of(log.rows))
    return Replay(prompts, Tokenizer(), known=kind == "tokenizer_join").run().cached


def main() -> int:
    """Print the table; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=11)
    parser.add_argument("--last", type=int, default=30)
    asked = parser.parse_args()
    if not SAMPLE.is_dir():
        print("the recorded sessions are not beside the project", file=sys.stderr)
        return 1
    recorded, seeds = sessions(), range(asked.first, asked.last + 1)
    mixed, every = Score(), Score()
    for seed in seeds:
        log = make_log(seed, recorded)
        mixed.add(f"seed {seed}", log, searched(log))
    _print("mixed", mixed, "")
    for kind in KINDS:
        alone, exact, off = Score(), 0, []
        for seed in seeds:
            log = make_log(seed, recorded, [kind], turns=_TURNS)
            report = searched(log)
            for score in (alone, every):
                score.add(f"seed {seed}", log, report)
            mended = make_log(seed, recorded, [kind], repaired=True, turns=_TURNS)
            difference = report.together.mended_cached_tokens - mended_cached_tokens(mended, kind)
            exact += not difference
            off += [difference] if difference else []
        proof = "" if kind == "template_version" else f"proof exact in {exact} of {len(seeds)}"
        _print(kind, alone, proof + (f", else off by {off} tokens" if off and proof else ""))
    _print("each kind alone", every, "")
    scores = (mixed, every)
    return int(any(min(each.precision, each.recall) < BAR for each in scores))


def _print(name: str, score: Score, beside: str) -> None:
    there = score.right + len(score.misses)
    print(f"{name:18} {there:4} defects  precision {score.precision:.3f}  "
          f"recall {score.recall:.3f}  {beside}", flush=True)  # fmt: skip
    for what, entries in (("missed", score.misses), ("false", score.false_findings)):
        for entry in entries:
            print(f"    {what}: {entry}")


if __name__ == "__main__":
    sys.exit(main())
