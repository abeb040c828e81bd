"""Which paths a pattern names, and which folders on the way could not be looked into.

The standard library's own matching passes over folders it may not list without a word; a log
that is not followed because of a missing right has to be seen.
"""

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

_WILD = re.compile(r"[*?\[]")
_ANY_DEPTH = "**"


def matching(pattern: Path) -> tuple[list[Path], dict[str, str]]:
    """Paths in order of name, each once, and folder -> why it could not be listed.

    `*`, `?` and `[…]` match within a name, `**` any number of folders; names that begin with
    a dot only where the pattern does. A pattern without wildcards names its path, existing or
    not. Folders that do not exist match nothing.
    """
    problems: dict[str, str] = {}
    found = _expand(Path(pattern.anchor), list(pattern.relative_to(pattern.anchor).parts), problems)
    return sorted(set(found)), problems


def _expand(folder: Path, parts: list[str], problems: dict[str, str]) -> Iterator[Path]:
    if not parts:
        yield folder
        return
    part, rest = parts[0], parts[1:]
    if part == _ANY_DEPTH:
        yield from _expand(folder, rest, problems)
        for entry in _entries(folder, problems):
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                yield from _expand(folder / entry.name, parts, problems)
    elif _WILD.search(part):
        for entry in _entries(folder, problems):
            if fnmatchcase(entry.name, part) and (part[0] == "." or entry.name[0] != "."):
                yield from _expand(folder / entry.name, rest, problems)
    else:
        yield from _expand(folder / part, rest, problems)


def _entries(folder: Path, problems: dict[str, str]) -> list["os.DirEntry[str]"]:
    """What is in a folder; nothing for what is none (any more)."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        problems[str(folder)] = f"cannot list the folder: {error.strerror}"
        return []
