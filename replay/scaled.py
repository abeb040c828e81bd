"""Requests known by chunks of their text: counted in units of text, and brought back to tokens.

A chunk of 64 bytes stands where a block of 16 tokens usually stands, so a unit is 4 bytes. Causes
are worked out in units, where prompts that begin alike have the same blocks in the same places, and
then scaled, prompt by prompt, to the tokens that were reported. In whole tokens: each border
between two causes is scaled, and a cause is what lies between its borders, so nothing is lost or
added.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from replay.byte_chunks import CHUNK_BYTES
from replay.causes import CAUSES, DETAILS, Causes
from replay.hashes import HASH_GRAIN_TOKENS
from replay.rules import CacheRule
from replay.traffic import NOT_REPORTED, Numbers

UNIT_BYTES = CHUNK_BYTES // HASH_GRAIN_TOKENS
# The order in which causes follow each other in a prompt, the last two above the ceiling.
_ABOVE = ("rounding", "ineligible")
_BELOW = tuple(name for name in CAUSES if name not in _ABOVE)


@dataclass(frozen=True)
class Scale:
    """One entry a request: its prompt in tokens as reported and in units, and its cached tokens
    (NOT_REPORTED where not known). A request without a text has one unit a token."""

    prompt_tokens: Numbers
    cached_tokens: Numbers
    prompt_units: Numbers

    @classmethod
    def of(cls, prompt_tokens: Numbers, cached_tokens: Numbers, text_bytes: Numbers) -> "Scale":
        """`text_bytes`: 0 of a request without a text."""
        units = np.maximum(text_bytes // UNIT_BYTES, 1)
        return cls(prompt_tokens, cached_tokens, np.where(text_bytes > 0, units, prompt_tokens))

    def units(self, tokens: Numbers) -> Numbers:
        """Counts of tokens in units; what is negative (not known) stays."""
        scaled = tokens * self.prompt_units // np.maximum(self.prompt_tokens, 1)
        found: Numbers = np.where(tokens < 0, tokens, scaled)
        return found

    def with_cached_units(self, cached_units: Numbers, rule: CacheRule) -> "Scale":
        """With cached tokens from those of a modelled cache."""
        tokens = cached_units * self.prompt_tokens // np.maximum(self.prompt_units, 1)
        tokens = np.minimum(tokens, rule.ceiling_tokens(self.prompt_tokens))
        return replace(self, cached_tokens=np.where(cached_units < 0, NOT_REPORTED, tokens))

    def to_tokens(self, found: Causes, rule: CacheRule) -> Causes:
        """Causes in units as causes in tokens: for every request with a cached count, prompt =
        cached + causes. `rule`: the cache's own, which the ceiling in tokens follows from."""
        known = found.reported
        cached = np.where(known, self.cached_tokens, 0)
        borders = self._borders(found, rule, cached)
        tokens: dict[str, Numbers] = {}
        before = cached
        for name, border in borders.items():
            tokens[name] = np.where(known, border - before, 0)
            before = border
        for name in DETAILS:
            part = "rounding" if name == "rounding_split" else "reset"
            whole = np.maximum(found.tokens[part], 1)
            tokens[name] = found.tokens[name] * tokens[part] // whole
        warm = found.warm_before_log_tokens * self.prompt_tokens // np.maximum(self.prompt_units, 1)
        return Causes(
            self.prompt_tokens, self.cached_tokens, tokens, np.minimum(warm, cached), found.no_cache
        )

    def _borders(self, found: Causes, rule: CacheRule, cached: Numbers) -> Mapping[str, Numbers]:
        """Where each cause ends, in tokens, in the order in which they follow each other. Between
        cached tokens and ceiling the scale is such that both are where they are."""
        units = np.where(found.reported, found.cached_tokens, 0)
        eligible_units = self.prompt_units - found.tokens["ineligible"]
        ceiling_units = np.minimum(rule.ceiling_tokens(self.prompt_units), eligible_units)
        ceiling_units = np.maximum(ceiling_units, units)
        eligible = eligible_units * self.prompt_tokens // np.maximum(self.prompt_units, 1)
        eligible = np.maximum(eligible, cached)
        ceiling = np.minimum(rule.ceiling_tokens(self.prompt_tokens), eligible)
        ceiling = np.maximum(ceiling, cached)
        borders, place = {}, units
        for name in _BELOW:
            place = place + found.tokens[name]
            inside = (place - units) * (ceiling - cached) // np.maximum(ceiling_units - units, 1)
            borders[name] = np.minimum(cached + inside, ceiling)
        return borders | {"rounding": eligible, "ineligible": self.prompt_tokens}
