"""How far the schedule of reports has come, kept in the store: a restart goes on from there."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from dashboard.report import Week
from exporter.store.store import Store

_KEY = "scheduled_reports"


@dataclass(frozen=True)
class Progress:
    """`newest` is the newest week that was ever due; of those up to it, these are left to do,
    oldest first."""

    newest: Week | None = None
    to_make: tuple[Week, ...] = ()
    to_post: tuple[Week, ...] = ()

    def due(self, weeks: Iterable[Week], newest: Week) -> "Progress":
        """These weeks are to be made."""
        return replace(self, newest=newest, to_make=_ordered(*self.to_make, *weeks))

    def made(self, week: Week, *, tell: bool) -> "Progress":
        """The week's files are written; with `tell` it is to be posted."""
        told = _ordered(*self.to_post, week) if tell else self.to_post
        return replace(self, to_make=_without(self.to_make, week), to_post=told)

    def posted(self, week: Week) -> "Progress":
        """The week needs no post any more."""
        return replace(self, to_post=_without(self.to_post, week))

    def bounded(self, most: int) -> "Progress":
        """Only the newest weeks of what is left to do."""
        return replace(self, to_make=self.to_make[-most:], to_post=self.to_post[-most:])


def _ordered(*weeks: Week) -> tuple[Week, ...]:
    return tuple(sorted(set(weeks)))


def _without(weeks: tuple[Week, ...], week: Week) -> tuple[Week, ...]:
    return tuple(each for each in weeks if each != week)


def load(store: Store, zone: str) -> Progress:
    """What the store remembers, as weeks of a zone; nothing done where it remembers nothing."""
    cursor = store.cursor()
    try:
        row = cursor.execute("SELECT value FROM meta WHERE key = ?", [_KEY]).fetchone()
    finally:
        cursor.close()
    if row is None:
        return Progress()
    kept = json.loads(row[0])
    newest = kept["newest"]
    return Progress(
        None if newest is None else Week.parse(newest, zone),
        tuple(Week.parse(name, zone) for name in kept["to_make"]),
        tuple(Week.parse(name, zone) for name in kept["to_post"]),
    )


def save(store: Store, progress: Progress) -> None:
    """In one write: all of it, or what was there before."""
    kept = {
        "newest": progress.newest.name if progress.newest else None,
        "to_make": [week.name for week in progress.to_make],
        "to_post": [week.name for week in progress.to_post],
    }
    store.set_meta(_KEY, json.dumps(kept))
