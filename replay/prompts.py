"""Prompts in the order in which a cache sees them: what replay runs on.

Columns with one entry a request, and the blocks of all prompts behind each other as numbers.
"""

from dataclasses import dataclass

import numpy as np

from replay.known_blocks import numbered
from replay.rules import CacheRule
from replay.traffic import Flags, Numbers, Seconds, Small, ranges, starts_of


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """`arrived`: seconds since the first, never falling. `output_tokens`: 0 where not told.

    `blocks`: numbers from 0 of the blocks of all prompts, those of request i from `starts[i]` to
    before `starts[i + 1]`; each stands for `block_tokens`, the last of a prompt for what is left
    of it where it is named at all.
    """

    arrived: Seconds
    prompt_tokens: Numbers
    output_tokens: Numbers
    blocks: Small
    starts: Numbers
    block_tokens: int

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    @property
    def distinct_blocks(self) -> int:
        """How many different blocks there are."""
        return int(self.blocks.max(initial=-1)) + 1

    def stored_blocks(self, rule: CacheRule) -> Numbers:
        """How many blocks of each prompt a cache keeps: with the last, partial one only where the
        rule has it so."""
        whole = self.prompt_tokens // self.block_tokens
        if rule.ceiling == "partial":
            whole = -(-self.prompt_tokens // self.block_tokens)
        kept = np.minimum(whole, np.diff(self.starts))
        return np.where(rule.too_short(self.prompt_tokens), 0, kept)

    def ceiling_tokens(self, rule: CacheRule) -> Numbers:
        """What of each prompt could be found at best."""
        best = rule.of_blocks(self.block_tokens).ceiling_tokens(self.prompt_tokens)
        return np.minimum(best, self.stored_blocks(rule) * self.block_tokens)

    def of_blocks(self, block_tokens: int) -> "Prompts":
        """The same by larger blocks, of which each is named by the last of those in it. At the end
        of a prompt those that are left are a partial one, where they tell all of it.

        ValueError where they are no multiple of these.
        """
        step, rest = divmod(block_tokens, self.block_tokens)
        if rest or not step:
            raise ValueError(f"{block_tokens} is no multiple of {self.block_tokens} tokens")
        lengths = np.diff(self.starts)
        place = ranges(np.zeros(len(lengths), np.int64), lengths)
        has_rest = (lengths % step > 0) & (lengths * self.block_tokens >= self.prompt_tokens)
        is_rest = np.repeat(np.where(has_rest, lengths - 1, -1), lengths) == place
        is_name = (place % step == step - 1) | is_rest
        return Prompts(
            arrived=self.arrived,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            blocks=numbered(self.blocks[is_name].astype(np.uint64))[0],
            starts=starts_of(lengths // step + has_rest),
            block_tokens=block_tokens,
        )

    def picked(self, which: Flags | Numbers) -> "Prompts":
        """Some of them, or all in another order, by the same numbers of blocks."""
        lengths = np.diff(self.starts)[which]
        return Prompts(
            arrived=self.arrived[which],
            prompt_tokens=self.prompt_tokens[which],
            output_tokens=self.output_tokens[which],
            blocks=self.blocks[ranges(self.starts[:-1][which], lengths)],
            starts=starts_of(lengths),
            block_tokens=self.block_tokens,
        )
