"""Judges the layout of templates every hour while the exporter runs."""

import logging
from datetime import UTC, datetime

from exporter.judge_watch import JudgeWatch
from exporter.layout_found.judge import judge_layout
from exporter.store.store import Store

# The first time when loads at the start are over.
FIRST_SECONDS, EVERY_SECONDS = 300.0, 3_600.0


class LayoutWatch(JudgeWatch):
    """In the background; what was found before stays until something is found anew."""

    def __init__(self, store: Store) -> None:
        super().__init__("layout")
        self._store = store
        self._looked = False

    def pause_seconds(self) -> float:
        return EVERY_SECONDS if self._looked else FIRST_SECONDS

    def judge_once(self) -> None:
        found = judge_layout(self._store, datetime.now(UTC).replace(tzinfo=None))
        self._looked = True
        logging.getLogger(__name__).debug("%d layout findings", len(found.findings))

    def failed(self) -> None:
        """What was found before stays."""
