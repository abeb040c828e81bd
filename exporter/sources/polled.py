"""A target that is polled: what is kept of it between polls, and whose series it shows.

Some programs re-export the series of an engine; where the engine's own page is polled too, the
copies must not count twice.
"""

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from exporter.records import EngineSample
from exporter.sources.discovery import Target
from exporter.sources.engines.page import EnginePage
from exporter.sources.target_state import TargetState
from exporter.store.samples import TargetRow


@dataclass(frozen=True)
class Answer:
    """What one poll brought: a page, or why there is none."""

    target: Target
    unix: float
    duration_seconds: float
    page: EnginePage | None
    error: str | None


class Polled:
    """A target between polls: its state, its row, and when it is due."""

    def __init__(self, target: Target, row: TargetRow | None, due: float) -> None:
        self.target = target
        self.row = replace(row or TargetRow(target.name), url=target.url)
        self.state = TargetState.from_json(self.row.series)
        self.due = due
        self.asked: Future[Answer] | None = None
        self.tried = False
        self.replicas: set[str] = set()
        self.models: set[str] = set()
        # Programs and models whose own page this is, as against a re-exporter's.
        self.shows: set[tuple[str, str | None]] = set()


def twin(polled: Iterable[Polled], target: Target, sample: EngineSample) -> str | None:
    """The target on the same host that shows the same engine and model itself; None for what is
    no copy, or the only one."""
    if sample.exported_by is None:
        return None
    host = urlsplit(target.url).hostname
    for one in polled:
        same_host = urlsplit(one.target.url).hostname == host
        if one.row.up and same_host and (sample.engine, sample.model) in one.shows:
            return one.target.name
    return None


def copies(polled: Iterable[Polled], target: Target, samples: list[EngineSample]) -> list[str]:
    """Words about samples that are left out because another target brings them."""
    return sorted(
        {
            f"{sample.engine} series re-exported by {sample.exported_by} are read from target "
            f"{own}, not counted twice"
            for sample in samples
            if (own := twin(polled, target, sample)) is not None
        }
    )
