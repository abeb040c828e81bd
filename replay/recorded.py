"""Recorded traffic as an experiment takes it: its prompts, what they could have been, and whose
they are."""

from dataclasses import dataclass, field, replace

from replay.prompts import Prompts
from replay.traffic import Names, Numbers


@dataclass(frozen=True)
class Labels:
    """`codes`: for each request the place of its label in `names`, -1 where it has none."""

    codes: Numbers
    names: list[str]


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """Requests in order of time; every variant of the prompts has the same requests in that order.

    `merged`: as if all trust scopes were one; None where contents do not tell it. `mended`: as if
    what layout findings name had been mended, each said in `mended_words`; None without findings.
    `sessions`: a number for each conversation; None where none is known. `scope`: the trust
    boundary of each, which its blocks are kept apart by already; `replica`: the one that served it.
    `token_hit_ratio`: what was cached of those requests that report it.
    """

    prompts: Prompts
    merged: Prompts | None = None
    mended: Prompts | None = None
    mended_words: list[str] = field(default_factory=list)
    sessions: Names | None = None
    template: Labels | None = None
    tenant: Labels | None = None
    scope: Labels | None = None
    replica: Labels | None = None
    model: str | None = None
    token_hit_ratio: float | None = None

    def of_blocks(self, block_tokens: int) -> "Recorded":
        """The same by larger blocks. ValueError where they are no multiple of these."""
        return replace(
            self,
            prompts=self.prompts.of_blocks(block_tokens),
            merged=self.merged and self.merged.of_blocks(block_tokens),
            mended=self.mended and self.mended.of_blocks(block_tokens),
        )

    def of_engine_blocks(self, block_tokens: int) -> "Recorded":
        """The same by the blocks of an engine, where recorded ones go into these; else as it is."""
        grain = self.prompts.block_tokens
        larger = block_tokens > grain and block_tokens % grain == 0
        return self.of_blocks(block_tokens) if larger else self
