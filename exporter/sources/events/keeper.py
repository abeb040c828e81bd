"""Between the state of the caches and the store: what was learnt goes in, request rows come out.

Every few seconds the tracker is drained into the store, and requests stored since are shown to
it, so that it knows which blocks were used. A drain that cannot be written is kept and tried
again: counts are not lost to a full disk.
"""

import logging
from dataclasses import replace
from datetime import UTC, datetime

import duckdb

from exporter.background import Background
from exporter.blocks.rows import Drained
from exporter.blocks.tracker import Tracker
from exporter.errors import PrefixscopeError
from exporter.sources.events.touched import NewRows
from exporter.store.blocks import write_drained
from exporter.store.store import Store

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 3.0
# What a full disk or memory may bring; with room again the next round works.
PASSING = (duckdb.Error, PrefixscopeError, MemoryError)


class BlockKeeper(Background):
    """Drains the tracker into the store until stopped. `keep_once` is one round of it."""

    def __init__(self, store: Store, tracker: Tracker) -> None:
        super().__init__("blocks")
        self._store = store
        self._tracker = tracker
        self._rows = NewRows(store)
        self._unwritten = Drained()

    def stop(self) -> None:
        """End; what was heard until now is in the store then."""
        super().stop()
        self.keep_once()

    def keep_once(self) -> None:
        """Show the tracker the new rows and write what it has to say. What fails is logged, and
        taken up again with the next round: nothing is lost."""
        try:
            for rows in self._rows.take():
                self._tracker.touch(rows)
        except PASSING:
            logger.exception("stored requests could not be shown to the caches; trying again")
        try:
            self._keep_told()
        except PASSING:
            logger.exception("what KV-cache events told could not be written; trying again")

    def _keep_told(self) -> None:
        drained = self._tracker.drain(datetime.now(UTC))
        self._unwritten = _together(self._unwritten, drained)
        write_drained(self._store, self._unwritten)
        self._unwritten = Drained()

    def _run(self) -> None:
        while not self._stopped.wait(DRAIN_SECONDS):
            self.keep_once()


def _together(before: Drained, after: Drained) -> Drained:
    """Two drains as one: what is added is added, what replaces is the later one's."""
    return replace(
        after,
        minutes=[*before.minutes, *after.minutes],
        resets=[*before.resets, *after.resets],
        renamed=[*before.renamed, *after.renamed],
        copies=[*before.copies, *after.copies],
        prefixes=before.prefixes if after.prefixes is None else after.prefixes,
    )
