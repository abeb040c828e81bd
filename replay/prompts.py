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
    of it where it is named at all. The last `answer_blocks` of a request are no part of its prompt:
    its answer filled them, and a later prompt names them; None: no answer is named.
    """

    arrived: Seconds
    prompt_tokens: Numbers
    output_tokens: Numbers
    blocks: Small
    starts: Numbers
    block_tokens: int
    answer_blocks: Numbers | None = None

    def __post_init__(self) -> None:
        # Columns that cannot be written, as Arrow's, are of another type to compiled code, which is
        # then compiled anew: that takes seconds.
        for name in ("arrived", "prompt_tokens", "output_tokens", "blocks", "starts"):
            object.__setattr__(self, name, np.require(getattr(self, name), None, ("C", "W")))

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    @property
    def distinct_blocks(self) -> int:
        """How many different blocks there are."""
        return int(self.blocks.max(initial=-1)) + 1

    @property
    def lengths(self) -> Numbers:
        """Blocks of each prompt, its answer's left out."""
        lengths: Numbers = np.diff(self.starts)
        return lengths if self.answer_blocks is None else lengths - self.answer_blocks

    def stored_blocks(self, rule: CacheRule) -> Numbers:
        """How many blocks of each prompt a cache keeps: with the last, partial one only where the
        rule has it so."""
        whole = self.prompt_tokens // self.block_tokens
        if rule.ceiling == "partial":
            whole = -(-self.prompt_tokens // self.block_tokens)
        kept = np.minimum(whole, self.lengths)
        return np.where(rule.too_short(self.prompt_tokens), 0, kept)

    def kept_blocks(self, rule: CacheRule) -> Numbers:
        """The same with the blocks of answers that have a name, where they stand behind all of
        their prompt."""
        stored = self.stored_blocks(rule)
        if self.answer_blocks is None or rule.ceiling == "partial":
            return stored
        whole = (stored == self.lengths) & (stored > 0)
        return np.where(whole, stored + self.answer_blocks, stored)

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
        lengths, whole = self.lengths, np.diff(self.starts)
        place = ranges(np.zeros(len(whole), np.int64), whole)
        has_rest = (lengths % step > 0) & (lengths * self.block_tokens >= self.prompt_tokens)
        has_rest &= lengths == whole  # else its answer stands there
        is_rest = np.repeat(np.where(has_rest, lengths - 1, -1), whole) == place
        answers = whole // step - lengths // step
        is_name = (place % step == step - 1) | is_rest
        return Prompts(
            arrived=self.arrived,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            blocks=numbered(self.blocks[is_name].astype(np.uint64))[0],
            starts=starts_of(whole // step + has_rest),
            block_tokens=block_tokens,
            answer_blocks=None if self.answer_blocks is None else answers,
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
            answer_blocks=None if self.answer_blocks is None else self.answer_blocks[which],
        )
