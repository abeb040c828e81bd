"""How caches count: block size, what can be served at best, minimum length, lifetime.

Rules are data, so that a figure can name the one it went by.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from replay.traffic import Flags, Numbers

# `whole`: whole blocks, and the last prompt token is always computed. `partial`: the last,
# partial block is cached like the others, and a whole prompt can be.
Ceiling = Literal["whole", "partial"]


class BlockSizesDisagree(ValueError):
    """The block of a cache and that of the chains do not go into each other."""


@dataclass(frozen=True)
class CacheRule:
    """What one cache can serve.

    `block_tokens`: its unit of reuse, 1 where it reuses token by token, None: that of the chain.
    `held_back_blocks`: of those matched at every look-up so many are given up, the last ones
    (drafting that needs them computed).
    `minimum_tokens`: shorter prompts are never cached. `lifetime_seconds`: how long a block is
    kept after it was used last; None: until its memory is needed.
    """

    name: str
    title: str
    ceiling: Ceiling = "whole"
    block_tokens: int | None = None
    held_back_blocks: int = 0
    minimum_tokens: int = 0
    lifetime_seconds: float | None = None

    def of_blocks(self, block_tokens: int) -> "CacheRule":
        """The rule with a known block size; one that is fixed stays."""
        return self if self.block_tokens else replace(self, block_tokens=block_tokens)

    def ceiling_tokens(self, prompt_tokens: Numbers) -> Numbers:
        """What of each prompt could be served at best."""
        if self.ceiling == "partial":
            return prompt_tokens.copy()
        size = self.block_tokens or 1
        blocks = np.maximum(prompt_tokens - 1, 0) // size - self.held_back_blocks
        best: Numbers = np.maximum(blocks, 0) * size
        return best

    @property
    def held_back_tokens(self) -> int:
        """What is given up of a match, in tokens; nothing where a whole prompt can be cached."""
        whole = self.ceiling == "whole"
        return self.held_back_blocks * (self.block_tokens or 1) if whole else 0

    def by_memory_alone(self) -> "CacheRule":
        """The rule, if blocks are lost only for want of memory; ValueError if they have a
        lifetime, which a model of memory knows nothing of."""
        if self.lifetime_seconds is not None:
            raise ValueError(f"{self.title}: blocks have a lifetime, so memory alone tells nothing")
        return self

    def too_short(self, prompt_tokens: Numbers) -> Flags:
        """Which prompts are below the minimum length."""
        short: Flags = prompt_tokens < self.minimum_tokens
        return short

    def words(self) -> str:
        """The rule in a line, as it stands beside a figure."""
        size = self.block_tokens
        parts = [
            "token by token" if size == 1 else f"blocks of {size} tokens" if size else "blocks",
            "a whole prompt can be cached"
            if self.ceiling == "partial"
            else "the last token is always computed",
        ]
        if self.held_back_blocks:
            parts.append(f"of matched blocks the last {self.held_back_blocks} given up")
        if self.minimum_tokens:
            parts.append(f"from {self.minimum_tokens:,} tokens on")
        if self.lifetime_seconds is not None:
            parts.append(f"kept {self.lifetime_seconds:g} s after the last use")
        return f"{self.title}: {', '.join(parts)}"


_RULES = (
    CacheRule("full", "whole blocks"),
    CacheRule("partial", "blocks, the last one may be partial", ceiling="partial"),
    CacheRule("tokens", "token by token", block_tokens=1),
    CacheRule("vllm", "vLLM"),
    CacheRule("vllm_eagle", "vLLM with EAGLE drafting", held_back_blocks=1),
    CacheRule("sglang", "SGLang"),
    CacheRule("llama_cpp", "llama.cpp", block_tokens=1),
    CacheRule("openai", "OpenAI and Azure OpenAI", block_tokens=128, minimum_tokens=1024),
    CacheRule(
        "anthropic", "Anthropic", block_tokens=1, minimum_tokens=1024, lifetime_seconds=300.0
    ),
    CacheRule(
        "anthropic_1h", "Anthropic, written for an hour",
        block_tokens=1, minimum_tokens=1024, lifetime_seconds=3600.0,
    ),
)  # fmt: skip
RULES = {rule.name: rule for rule in _RULES}
