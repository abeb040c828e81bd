"""What `init` can find, and what cannot go into a config, with the reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class FoundTarget:
    """A metric page that answered. `title` is program and version, `engine` whose table reads it;
    `remarks` go beside it."""

    url: str
    name: str
    title: str
    models: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    engine: str | None = None


@dataclass(frozen=True)
class FoundPrometheus:
    """A Prometheus and its jobs that have series we read, with how many targets each has.

    `answered` of `tried` of their pages could be read from here; none at all: then what the
    Prometheus scraped is read from it.
    """

    url: str
    title: str
    jobs: Mapping[str, int]
    tried: int = 0
    answered: int = 0


@dataclass(frozen=True)
class FoundLog:
    """A log to follow. `read` of `sampled` rows of its first part could be read; `suggested`
    names, by field, paths in the rows that look like names, with in how many rows they stand;
    `unread`: by field, paths that look like its value where the format reads none."""

    source: str
    path: str
    format: str
    because: str
    sampled: int = 0
    read: int = 0
    suggested: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)

    @property
    def doubt(self) -> str:
        """What the rows have and this format leaves out; '' if nothing is known of."""
        if not self.unread:
            return ""
        told = " and ".join(f"{path} ({name})" for name, path in self.unread.items())
        return (
            f"the rows have {told}, which format {self.format} does not read: give another (see "
            "prefixscope formats), or send these by the names it reads"
        )


@dataclass(frozen=True)
class Remark:
    """Something recognised that is no part of the config, and what to do with it."""

    given: str
    what: str
    todo: str = ""


Found = FoundTarget | FoundPrometheus | FoundLog | Remark
