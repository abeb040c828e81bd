"""What a store needs now and then while nobody asks: counting, merging, forgetting, prices."""

import logging
import threading
import time
from datetime import UTC, datetime

from exporter.prices import ModelPrices
from exporter.store.retention import run_maintenance
from exporter.store.store import Store

_log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
FOLD_PATIENCE_SECONDS = 1.0
# The first time soon after the start, when the first scrapes and loads are over.
FIRST_MAINTENANCE_SECONDS, MAINTENANCE_SECONDS = 120.0, 3600.0
# How soon a model that was never met before has its price.
PRICES_SECONDS = 10.0


class Housekeeping:
    """Runs in the background until stopped. A store that refuses work is tried again."""

    def __init__(self, store: Store, prices: ModelPrices) -> None:
        self._store = store
        self._prices = prices
        self._due = time.monotonic() + FIRST_MAINTENANCE_SECONDS
        self._prices_due = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="housekeeping", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the work in hand."""
        self._stopped.set()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether it is running."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopped.wait(TICK_SECONDS):
            try:
                self._keep_order()
            except Exception:  # noqa: BLE001 - whatever it was, rows must go on being folded
                _log.exception("the store could not be kept in order; trying again")

    def _keep_order(self) -> None:
        """Count what came in, price new models; every hour merge, forget and renew prices too."""
        self._store.fold_settled(FOLD_PATIENCE_SECONDS)
        if time.monotonic() >= self._prices_due:
            self._prices_due = time.monotonic() + PRICES_SECONDS
            self._prices.update()
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + MAINTENANCE_SECONDS
            run_maintenance(self._store, datetime.now(UTC), waits_for_seal=True)
            self._prices.renew()
