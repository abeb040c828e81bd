"""What a cache would serve: prompts replayed as they are, and as fixes would make them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from replay.layout.edits import Fix, fixed
from replay.layout.prompt import Prompt
from replay.layout.tokens import Tokenizer
from replay.lru import LruCache


@dataclass(frozen=True)
class Replayed:
    """Tokens by request, in the order of time."""

    prompt_tokens: tuple[int, ...]
    cached_tokens: tuple[int, ...]

    @property
    def token_hit_ratio(self) -> float | None:
        """Cached ÷ prompt tokens; None without any."""
        whole = sum(self.prompt_tokens)
        return sum(self.cached_tokens) / whole if whole else None

    @property
    def cached(self) -> int:
        """All cached tokens."""
        return sum(self.cached_tokens)


class Replay:
    """Replays some requests through one cache of whole blocks.

    `capacity_blocks` None: nothing is ever lost. Blocks of `block_tokens` tokens of the tokenizer.
    What a request generated is cached behind its prompt where the log has it.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        tokenizer: Tokenizer,
        block_tokens: int = 16,
        capacity_blocks: int | None = None,
        known: bool = False,
    ) -> None:
        self._prompts = prompts
        self._tokenizer = tokenizer
        self._block_tokens = block_tokens
        self._capacity_blocks = capacity_blocks
        self._by_ids = known
        for text in {each.text for prompt in prompts for each in prompt.segments}:
            tokenizer.remember(text)
        self._plain: dict[int, tuple[int, list[int], list[int]]] = {}

    def run(
        self,
        fixes: Sequence[Fix] = (),
        ids: Mapping[int, tuple[Sequence[int], Sequence[int]]] | None = None,
    ) -> Replayed:
        """Replay all requests with some fixes. `ids`: tokens of prompt and answer that stand for
        those of the log, by number of the request."""
        cache, size = LruCache(self._capacity_blocks), self._block_tokens
        lengths, cached = [], []
        for length, chain, answer in self.every(fixes, ids):
            served = cache.serve(chain, answer) * size
            lengths.append(length)
            cached.append(min(served, max(length - 1, 0) // size * size))
        return Replayed(tuple(lengths), tuple(cached))

    def every(
        self,
        fixes: Sequence[Fix] = (),
        ids: Mapping[int, tuple[Sequence[int], Sequence[int]]] | None = None,
    ) -> Iterator[tuple[int, list[int], list[int]]]:
        """Of each request with some fixes the length of its prompt, its whole blocks, and those
        that its answer fills behind it."""
        touched = {number for fix in fixes for number in fix.edits}
        sorts = any(fix.sorting is not None for fix in fixes)
        for number, prompt in enumerate(self._prompts):
            if ids is not None and number in ids:
                yield self._chains(*ids[number])
            elif sorts or number in touched:
                yield self._chains(*self._tokens(fixed(prompt, number, fixes)))
            else:
                yield self._as_it_is(number)

    def names(self, number: int) -> list[int]:
        """The blocks of a request as it is."""
        return self._as_it_is(number)[1]

    def answer_tokens(self, number: int) -> int:
        """How many tokens a request generated; 0 where the log does not have them."""
        return len(self._tokens(self._prompts[number])[1])

    def _as_it_is(self, number: int) -> tuple[int, list[int], list[int]]:
        if number not in self._plain:
            self._plain[number] = self._chains(*self._tokens(self._prompts[number]))
        return self._plain[number]

    def _tokens(self, prompt: Prompt) -> tuple[Sequence[int], Sequence[int]]:
        if self._by_ids and prompt.token_ids is not None:
            return prompt.token_ids, prompt.answer_ids or ()
        return self._tokenizer.prompt(prompt), self._tokenizer.segments(prompt.answer)

    def _chains(
        self, tokens: Sequence[int], answer: Sequence[int]
    ) -> tuple[int, list[int], list[int]]:
        """Length of the prompt, its whole blocks and those that the answer fills behind it."""
        size = self._block_tokens
        both = [*tokens, *answer[:-1]]
        chain, parent = [], -1
        for begin in range(0, len(both) - size + 1, size):
            # 64 bits of everything up to here: no two prefixes share a name but by chance.
            parent = hash((parent, tuple(both[begin : begin + size])))
            chain.append(parent)
        whole = len(tokens) // size
        return len(tokens), chain[:whole], chain[whole:]
