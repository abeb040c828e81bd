"""Synthetic traffic as a trace of hash ids: the one file that both the real servers and the model
are given.

vLLM's own load generator makes token ids of it, drawn anew for every id and always the same for
one; the model takes the ids for names of blocks. So both see the same prompts, and no text or token
id is ever written down.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path

# One id stands for a block of the engine, so that a prefix is shared to its last token.
BLOCK_TOKENS = 32


@dataclass(frozen=True, kw_only=True)
class Plan:
    """`prefixes` shared beginnings (system prompts) of different lengths, each of as many of the
    `requests` as the others, in random order; behind it a question of its own. `gap_seconds`: mean
    time between arrivals, for those who send by the clock."""

    requests: int
    prefixes: int
    gap_seconds: float
    seed: int = 1
    prefix_blocks: tuple[int, int] = (16, 44)
    question_tokens: tuple[int, int] = (40, 200)
    output_tokens: tuple[int, int] = (4, 8)

    def prefix_lengths(self) -> list[int]:
        """Blocks of each prefix, evenly from the shortest to the longest."""
        least, most = self.prefix_blocks
        steps = max(self.prefixes - 1, 1)
        return [least + (most - least) * number // steps for number in range(self.prefixes)]

    def words(self) -> str:
        """What is sent, for a person."""
        blocks = self.prefix_lengths()
        least, most = blocks[0] * BLOCK_TOKENS, blocks[-1] * BLOCK_TOKENS
        return (
            f"{self.requests} requests behind {self.prefixes} prefixes of {least} to {most}"
            f" tokens ({sum(blocks)} blocks of {BLOCK_TOKENS}), each"
            f" with a question of {self.question_tokens[0]} to {self.question_tokens[1]} tokens of"
            " its own"
        )


def rows_of(plan: Plan) -> list[dict[str, object]]:
    """The lines of the trace, always the same for a plan; times in milliseconds."""
    draw = random.Random(plan.seed)
    order = [number % plan.prefixes for number in range(plan.requests)]
    draw.shuffle(order)
    prefixes, fresh = [], 0
    for length in plan.prefix_lengths():
        prefixes.append(list(range(fresh, fresh + length)))
        fresh += length
    rows: list[dict[str, object]] = []
    milliseconds = 0.0
    for prefix in order:
        tokens = draw.randint(*plan.question_tokens)
        own = -(-tokens // BLOCK_TOKENS)
        rows.append({
            "timestamp": round(milliseconds),
            "input_length": len(prefixes[prefix]) * BLOCK_TOKENS + tokens,
            "output_length": draw.randint(*plan.output_tokens),
            "hash_ids": [*prefixes[prefix], *range(fresh, fresh + own)],
        })  # fmt: skip
        fresh += own
        milliseconds += draw.expovariate(1 / (plan.gap_seconds * 1e3))
    return rows


def write_trace(plan: Plan, path: Path) -> Path:
    """The plan as a file, one JSON object a line."""
    text = "".join(json.dumps(row) + "\n" for row in rows_of(plan))
    path.write_text(text, encoding="utf-8")
    return path
