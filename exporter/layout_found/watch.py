"""Judges the layout of templates every hour while the exporter runs."""

import logging
from datetime import UTC, datetime

from exporter.judge_watch import SeldomWatch
from exporter.layout_found.judge import judge_layout
from exporter.store.store import Store

# The first time when loads at the start are over.
FIRST_SECONDS, EVERY_SECONDS = 300.0, 3_600.0


class LayoutWatch(SeldomWatch):
    """Looks for findings every hour, in the background."""

    def __init__(self, store: Store) -> None:
        super().__init__("layout", FIRST_SECONDS, EVERY_SECONDS)
        self._store = store

    def judge_once(self) -> None:
        found = judge_layout(self._store, datetime.now(UTC).replace(tzinfo=None))
        logging.getLogger(__name__).debug("%d layout findings", len(found.findings))
