"""Where a person says the data is. By itself, so that reading a command line imports little."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """An address, a folder, or neither."""

    url: str | None = None
    store: Path | None = None
    token: str | None = None
