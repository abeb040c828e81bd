"""Names of our own for an engine's blocks: the same keyed chain that the tap writes for a prompt.

An engine's hashes cannot be compared with another's, nor with a request's. Its events carry the
token ids of every block, so the chain is worked out here, 16 tokens a hash; a block is named by
the last of its hashes. Token ids, salts and adapters go no further than this module.

A block has no name (0) where a chain cannot be told: behind an image, behind a block whose own
name is not known, with an adapter known by number only.
"""

from array import array
from collections.abc import Sequence
from typing import Any

from replay.hashes import HASH_GRAIN_TOKENS, content_hashes, extend_chain, root_hash, scope_id

NO_NAME = 0


class Chains:
    """Makes names with one key. `model_fingerprint`: what the taps of the same engines state."""

    def __init__(self, key: str, model_fingerprint: str | None = None) -> None:
        self._key = key
        self._fingerprint = model_fingerprint

    def names(self, event: Any, parent: int | None) -> "array[int]":  # noqa: ANN401 - four classes
        """Names of the blocks of one BlockStored, 0 = none.

        `parent`: the name of the block before, None at the start of a prompt.
        """
        blocks, size = len(event.block_hashes), event.block_size
        tokens = event.token_ids
        named = _plain_blocks(event, blocks, parent is None)
        if size < 1 or len(tokens) < named * size or parent == NO_NAME or not named:
            return array("Q", bytes(8 * blocks))
        grain = HASH_GRAIN_TOKENS if size % HASH_GRAIN_TOKENS == 0 else size
        if parent is None:
            parent = self._root(event)
        try:
            content = content_hashes(_first_of_pairs(tokens[: named * size]), grain, self._key)
        except ValueError:
            return array("Q", bytes(8 * blocks))
        chain = extend_chain(parent, content, self._key)
        every = size // grain
        names = array("Q", chain[every - 1 :: every])
        names.extend([NO_NAME] * (blocks - named))
        return names

    def _root(self, event: Any) -> int:  # noqa: ANN401 - see above
        salt = getattr(event, "cache_salt", None) or _salt(event)
        scope = scope_id(self._key, salt, event.lora_name, self._fingerprint)
        return root_hash(scope or "", self._key)


def _plain_blocks(event: Any, blocks: int, is_first: bool) -> int:  # noqa: ANN401 - see above
    """How many leading blocks are told by their tokens, salt and adapter alone."""
    if event.lora_id not in (None, 0) and not event.lora_name:
        return 0
    for number, keys in enumerate(event.extra_keys or ()):
        if not isinstance(keys, list | None):
            return min(number, blocks)
        others = [key for key in keys or () if key != event.lora_name]
        allowed = 1 if is_first and number == 0 else 0
        if len(others) > allowed or not all(isinstance(key, str) for key in others):
            return min(number, blocks)
    return blocks


def _salt(event: Any) -> str | None:  # noqa: ANN401 - see above
    """What stands in the keys of a prompt's first block beside the adapter."""
    keys = (event.extra_keys or [None])[0] or ()
    return next((key for key in keys if key != event.lora_name), None)


def _first_of_pairs(tokens: Sequence[Any]) -> Sequence[int]:
    """Speculative decoding stores pairs of neighbouring tokens: each begins with its own."""
    if tokens and isinstance(tokens[0], list):
        return [pair[0] if isinstance(pair, list) and pair else -1 for pair in tokens]
    return tokens
