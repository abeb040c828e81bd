"""The owner file beside a store: which exporter holds it, and at which address it answers.

DuckDB lets one process own a file, so everybody else has to ask that process. The file holds
nothing secret and is removed when the exporter stops; one left behind by a crash does no harm,
because it is read only when the store turns out to be locked.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from exporter.errors import PrefixscopeError

OWNER_FILE = "owner.json"


@dataclass(frozen=True)
class Owner:
    """The process that owns a store and the address it serves."""

    pid: int
    url: str


def write_owner(directory: Path, url: str) -> None:
    """Say that this process owns the store in `directory`; readers never see half a file."""
    unfinished = directory / f"{OWNER_FILE}.{os.getpid()}"
    try:
        unfinished.write_text(json.dumps(asdict(Owner(os.getpid(), url))) + "\n", encoding="utf-8")
        unfinished.replace(directory / OWNER_FILE)
    except OSError as error:
        raise PrefixscopeError(f"cannot write {unfinished}: {error.strerror or error}") from error


def remove_owner(directory: Path) -> None:
    """Take the file away, if it is still ours."""
    owner = read_owner(directory)
    if owner is not None and owner.pid == os.getpid():
        (directory / OWNER_FILE).unlink(missing_ok=True)


def read_owner(directory: Path) -> Owner | None:
    """Who owns the store; None where nobody says so or the file cannot be understood."""
    try:
        values = json.loads((directory / OWNER_FILE).read_text(encoding="utf-8"))
        return Owner(pid=int(values["pid"]), url=str(values["url"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
