"""Reads the quick starts as a reader would: what to type, where, and what then is to be seen.

A fenced `sh` block is typed into the first terminal. A comment in front of it, which readers do
not see, may say otherwise: `<!-- terminal: NAME, port 9465 -->` opens another terminal, whose
program then answers at these ports; `<!-- not run: REASON -->` leaves it out. A `text` block
is the output of the block before it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.running import ROOT

FOLDER = ROOT / "docs" / "start"
_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>terminal|not run): (?P<words>[^\n]+) -->\n)?"
    r"^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One fenced block. `terminal` is None for the first one; `not_run` is a reason."""

    language: str
    text: str
    terminal: str | None = None
    ports: tuple[str, ...] = ()
    not_run: str | None = None


def blocks(page: Path) -> list[Block]:
    """All blocks of a page in order; a mark that is not understood is an error."""
    text = page.read_text(encoding="utf-8")
    found = [_block(match) for match in _BLOCK.finditer(text)]
    assert len(found) == text.count("\n```") // 2, f"{page}: a fence is not closed or not named"
    marked = sum(bool(block.terminal or block.not_run) for block in found)
    assert marked == text.count("<!--"), f"{page}: a comment is no mark of a block"
    return found


def _block(match: re.Match[str]) -> Block:
    language, text, words = match["language"], match["text"], match["words"]
    if match["mark"] == "not run":
        return Block(language, text, not_run=words)
    if match["mark"] == "terminal":
        name, *ports = words.split(", ")
        return Block(language, text, name, tuple(port.removeprefix("port ") for port in ports))
    return Block(language, text)
