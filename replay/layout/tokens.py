"""An approximate tokenizer: equal text gives equal tokens, whatever stands around it.

It stands in where the tokens of the model are not known. It cuts as byte-pair encoders do (a word
with the space before it, digits by threes, signs one by one, the marker of a role whole), so that a
change of text changes the tokens it touches and no others. Counts are near those of real tokenizers
for English text and scaled to the reported prompt tokens where a log has those.
"""

import re
from collections.abc import Callable, Sequence
from itertools import chain

from replay.layout.prompt import Prompt, Segment

# No token goes on behind line ends, so that lines can be cut one by one.
_LINE = re.compile(r"[^\r\n]*[\r\n]+|[^\r\n]+")
_TOKEN = re.compile(
    r"<\|\w+\|>| ?[^\W\d_]{1,6}|\d{1,3}|[\r\n]+|[^\S\r\n]+(?=[^\S\r\n])| ?[^\w\s]|\s|_",
)

Encode = Callable[[str], Sequence[int]]


class Tokenizer:
    """Numbers tokens as it meets them; remembers lines it has cut, as prompts repeat theirs.

    `encode`: a model's own tokenizer, asked instead, text by text.
    """

    def __init__(self, encode: Encode | None = None) -> None:
        self._encode = encode
        self._numbers: dict[str, int] = {}
        self._lines: dict[str, tuple[int, ...]] = {}
        self._texts: dict[str, tuple[int, ...]] = {}

    def ids(self, text: str) -> tuple[int, ...]:
        """The tokens of a text."""
        known = self._texts.get(text)
        return self._cut(text) if known is None else known

    def remember(self, text: str) -> None:
        """Keep the tokens of a text that will be asked for again."""
        if text not in self._texts:
            self._texts[text] = self._cut(text)

    def _cut(self, text: str) -> tuple[int, ...]:
        if self._encode is not None:
            return tuple(self._encode(text))
        return tuple(chain.from_iterable(map(self._line, _LINE.findall(text))))

    def _line(self, line: str) -> tuple[int, ...]:
        known = self._lines.get(line)
        if known is None:
            numbers = self._numbers
            known = tuple(numbers.setdefault(token, len(numbers)) for token in _TOKEN.findall(line))
            self._lines[line] = known
        return known

    def prompt(self, prompt: Prompt) -> list[int]:
        """The tokens of a whole prompt, segment by segment."""
        return self.segments(prompt.segments)

    def segments(self, segments: Sequence[Segment]) -> list[int]:
        """The tokens of some segments in a row."""
        found: list[int] = []
        for segment in segments:
            found += self.ids(segment.lead)
            found += self.ids(segment.text)
        return found

    def before(self, prompt: Prompt, segment: int, offset: int) -> int:
        """How many tokens stand before a place in a segment."""
        count = len(self.segments(prompt.segments[:segment]))
        own = prompt.segments[segment]
        return count + len(self.ids(own.lead)) + len(self._cut(own.text[:offset]))
