"""Files with prompts, to prompts. Errors name file, line and field and repeat no text."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from exporter.errors import PrefixscopeError
from exporter.sources.packed import DAMAGED, open_input
from prefixscope.lint.bodies import Unreadable, prompt_of
from replay.layout.prompt import Prompt, Segment

STDIN = Path("-")
_PLAIN_ENDINGS = (".txt", ".md", ".prompt", ".j2")
_MOST_BYTES = 512 << 20
_KNOWN = (
    "OpenAI or Anthropic requests (messages), LiteLLM spend logs with messages, or rows with a "
    "prompt as text"
)


@dataclass
class PromptLog:
    """The prompts of some files, in their order. `skipped` counts lines without one by reason;
    `forms` counts what the rows were taken for."""

    prompts: list[Prompt] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    first_skipped: str = ""
    forms: dict[str, int] = field(default_factory=dict)


def read_prompts(paths: Sequence[Path]) -> PromptLog:
    """All prompts of some files: one JSON object a line, a JSON list, or a text file as one prompt.

    Raises PrefixscopeError for a file that cannot be read or has no prompt at all.
    """
    log = PromptLog()
    for path in paths:
        before = len(log.prompts)
        _read(path, log)
        if len(log.prompts) == before:
            why = f" The first: {log.first_skipped}." if log.first_skipped else ""
            raise PrefixscopeError(
                f"{path.name}: no prompt with its text in it.{why} lint reads {_KNOWN}; switch the "
                "logging of prompts on where the log has counts only"
            )
    return log


def first_has_prompt(path: Path, unless: Callable[[bytes], bool]) -> bool:
    """Has the first line of a file the text of a prompt? Not asked of lines that are something
    else, nor of files that cannot be read."""
    try:
        with _opened(path) as raw, open_input(raw) as stream:
            line: bytes = stream.readline(_MOST_BYTES)
    except (OSError, *DAMAGED):
        return False
    row = None if unless(line) else _object(line.decode("utf-8-sig", errors="replace"))
    try:
        return row is not None and bool(prompt_of(row))
    except Unreadable:
        return False


def _read(path: Path, log: PromptLog) -> None:
    text = _text(path)
    if path.suffix in _PLAIN_ENDINGS:
        log.prompts.append(Prompt((Segment("text", "text", text),), source=path.name))
        log.forms["plain text"] = log.forms.get("plain text", 0) + 1
        return
    for line, row in _rows(text):
        try:
            if row is None:
                raise Unreadable("no JSON: one JSON object a line is expected")
            prompt, form = prompt_of(row)
        except Unreadable as error:
            log.skipped[str(error)] = log.skipped.get(str(error), 0) + 1
            log.first_skipped = log.first_skipped or f"{path.name}, line {line}: {error}"
            continue
        log.prompts.append(replace(prompt, source=f"{path.name}:{line}"))
        log.forms[form] = log.forms.get(form, 0) + 1


def _text(path: Path) -> str:
    try:
        with _opened(path) as raw, open_input(raw) as stream:
            content: bytes = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise PrefixscopeError(f"{path}: {error.strerror or 'cannot be read'}") from None
    except DAMAGED:
        raise PrefixscopeError(f"{path}: packed and damaged; pack it anew") from None
    if len(content) > _MOST_BYTES:
        raise PrefixscopeError(
            f"{path}: more than {_MOST_BYTES >> 20} MiB of text; give a part of it (head -n 5000)"
        )
    return content.decode("utf-8-sig", errors="replace")


def _opened(path: Path) -> BinaryIO:
    return sys.stdin.buffer if path == STDIN else path.open("rb")


def _rows(text: str) -> Iterator[tuple[int, Mapping[str, object] | None]]:
    """Number of the line and the object in it, None for a line that has none."""
    document = _document(text)
    if document is not None:
        yield from ((1, row if isinstance(row, Mapping) else None) for row in document)
        return
    # Only a newline ends a row: JSON may hold other line ends as they are.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, _object(line)


def _document(text: str) -> Sequence[object] | None:
    """The rows of a text that is one JSON document of several lines; None where it is lines."""
    head = text.lstrip()[:1]
    if head == "[" or (head == "{" and _object(text.lstrip().partition("\n")[0]) is None):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return document if isinstance(document, list) else [document]
    return None


def _object(line: str) -> Mapping[str, object] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(row, str):
        return {"prompt": row}
    return row if isinstance(row, Mapping) else None
