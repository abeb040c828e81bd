"""A block of the demo as one number: which block it is, what text it holds, and whose salt is in
its name.

Its number is handed out once for one text at one place after one beginning in one scope, as a
chain hash is. The same text behind another beginning, or in another scope, is another block with
the same text, so that what a changed beginning costs can be told from contents.

Nearly all blocks have a text of their own: these are their number alone.
"""

from collections.abc import Iterable, Sequence

_NUMBER_BITS, _SALT_BITS = 28, 4
_TEXTS = (1 << _NUMBER_BITS) - 1
_SALTS = (1 << _SALT_BITS) - 1
# Behind these bits stands the number, plus 1, of a block whose text was there before.
_OWN_BITS = _NUMBER_BITS + _SALT_BITS


def text_of(block: int) -> int:
    """What stands in it: the number of the block that had this text first."""
    return block & _TEXTS


def salt_of(block: int) -> int:
    """Which salt is in its name, 0 for none. Only told of the first block of a prompt."""
    return block >> _NUMBER_BITS & _SALTS


class BlockNumbers:
    """Hands out blocks; one per run, so that numbers are unique in it."""

    def __init__(self) -> None:
        self._next = 0

    def of_own_text(self, count: int) -> Sequence[int]:
        """New blocks whose text stands nowhere else."""
        first, self._next = self._next, self._next + count
        return range(first, self._next)

    def of_same_text(self, blocks: Iterable[int]) -> list[int]:
        """New blocks with the texts of these, for another beginning."""
        texts = [text_of(block) for block in blocks]
        numbers = self.of_own_text(len(texts))
        return [own + 1 << _OWN_BITS | text for own, text in zip(numbers, texts, strict=True)]


def salted(chain: list[int], salt: int) -> list[int]:
    """A prompt whose first block, and so everything behind it, is named with a salt."""
    return [chain[0] | salt << _NUMBER_BITS, *chain[1:]] if chain else []
