"""What a store needs now and then while nobody asks: counting, merging, forgetting, prices."""

import time
from datetime import UTC, datetime

from exporter.background import Repeated
from exporter.prices import ModelPrices
from exporter.store.retention import run_maintenance
from exporter.store.store import Store

TICK_SECONDS = 1.0
FOLD_PATIENCE_SECONDS = 1.0
# The first time soon after the start, when the first scrapes and loads are over.
FIRST_MAINTENANCE_SECONDS, MAINTENANCE_SECONDS = 120.0, 3600.0
# How soon a model that was never met before has its price.
PRICES_SECONDS = 10.0


class Housekeeping(Repeated):
    """A store that refuses work is tried again."""

    def __init__(self, store: Store, prices: ModelPrices) -> None:
        super().__init__("housekeeping", "the store could not be kept in order")
        self._store = store
        self._prices = prices
        self._due = time.monotonic() + FIRST_MAINTENANCE_SECONDS
        self._prices_due = time.monotonic()

    def pause_seconds(self) -> float:
        """Rows that came in are counted soon."""
        return TICK_SECONDS

    def failed(self) -> None:
        """Whatever it was, rows must go on being folded."""

    def do_once(self) -> None:
        """Count what came in, price new models; every hour merge, forget and renew prices too."""
        self._store.fold_settled(FOLD_PATIENCE_SECONDS)
        if time.monotonic() >= self._prices_due:
            self._prices_due = time.monotonic() + PRICES_SECONDS
            self._prices.update()
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + MAINTENANCE_SECONDS
            run_maintenance(self._store, datetime.now(UTC), waits_for_seal=True)
            self._prices.renew()
