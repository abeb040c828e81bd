"""Keeps the prices of the models a store has met in its table `model_prices`.

The questions about cost read only that table, so that they run on a store alone. A model that
no table knows has no row there: its price is unknown, and never 0.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb
from pydantic import BaseModel, ConfigDict, Field

from exporter.price_tables import Price, PriceFile, PriceLibrary
from exporter.store.store import Store

# To gateways "openai" is whoever speaks its API.
_ANY_SERVER = (None, "openai")

# The questions whose figures depend on the table.
ASKED_BY = ("costs", "prices")

Pair = tuple[str | None, str]  # provider (None = not given) and model


@dataclass(frozen=True)
class _Met:
    """What rows tell of a pair: the last batch that names it, and times only an engine knows."""

    batch: int
    engine_times: bool


class PriceSettings(BaseModel):
    """What tokens and GPUs cost. Without any of it, hosted models have the library's prices."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: Path | None = Field(
        None, description="JSON of prices as LiteLLM writes it; wins over the built-in ones"
    )
    gpu_hour_price: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="USD an hour of one GPU of yours costs"
    )
    gpus_per_replica: int = Field(1, ge=1, description="GPUs that a replica of yours runs on")


class ModelPrices:
    """Looks up prices for the models in a store and keeps them there."""

    def __init__(self, store: Store, settings: PriceSettings) -> None:
        """Reads the user's file; PrefixscopeError where it cannot be used."""
        self._store = store
        self._settings = settings
        self._file = None if settings.file is None else PriceFile(settings.file)
        self._library: PriceLibrary | None = None
        # What rows up to this batch name has been looked up, found or not; None: nothing yet.
        self._seen_batch: int | None = None
        self._looked_up: set[Pair] = set()

    def update(self) -> None:
        """Look up the models that rows brought since the last time; all of them the first time.

        Cheap where there are none, so it may run every few seconds.
        """
        if self._seen_batch is None:
            self.renew()
            return
        met = _pairs(self._store.cursor(), self._seen_batch)
        new = {pair: seen for pair, seen in met.items() if pair not in self._looked_up}
        if new:
            found = self._look_up(new)
            with self._store.write() as cursor:
                _insert(cursor, found)
        self._looked_up |= set(new)
        self._seen_batch = max((seen.batch for seen in met.values()), default=self._seen_batch)

    def renew(self) -> None:
        """Look up every model again, so that newer tables and other settings count."""
        met = _pairs(self._store.cursor(), 0)
        found = self._look_up(met)
        with self._store.write() as cursor:
            cursor.execute("DELETE FROM model_prices")
            _insert(cursor, found)
            _set_meta(cursor, "gpu_hour_price", self._settings.gpu_hour_price)
            _set_meta(cursor, "gpus_per_replica", self._settings.gpus_per_replica)
        self._looked_up = set(met)
        self._seen_batch = max((seen.batch for seen in met.values()), default=0)

    def _look_up(self, met: Mapping[Pair, _Met]) -> list[tuple[object, ...]]:
        """Rows of the table for the pairs that have a price."""
        now = datetime.now(UTC)
        own = {model for (model,) in self._store.cursor().execute(_SERVED_HERE).fetchall()}
        rows: list[tuple[object, ...]] = []
        for (provider, model), seen in met.items():
            served_here = seen.engine_times or (model in own and provider in _ANY_SERVER)
            price = self._price(provider, model, served_here, now)
            if price is not None:
                rows.append((provider, model, *astuple(price), served_here))
        return rows

    def _price(
        self, provider: str | None, model: str, served_here: bool, now: datetime
    ) -> Price | None:
        """From the file, else from the library: there by provider, or by name alone where rows
        name none. What the user's own engines serve nobody else bills, whatever its name."""
        if self._file is not None and (price := self._file.find(provider, model)):
            return price
        if served_here:
            return None
        if self._library is None:
            self._library = PriceLibrary()
        return self._library.find(provider, model, now)


# Gateways and routers name models of others too.
_SERVED_HERE = """SELECT DISTINCT model FROM engine_samples
    WHERE model IS NOT NULL AND observer = 'engine'"""
_INSERT = "INSERT INTO model_prices VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


# Hosted models tell neither when a request was scheduled nor how long its prefill took.
_PAIRS = """SELECT provider, model, max(batch),
        bool_or(queue_seconds IS NOT NULL OR prefill_seconds IS NOT NULL)
    FROM requests WHERE batch > $after AND model IS NOT NULL GROUP BY ALL"""


def _pairs(cursor: duckdb.DuckDBPyConnection, after_batch: int) -> dict[Pair, _Met]:
    """Providers and models that rows of later batches name."""
    rows = cursor.execute(_PAIRS, {"after": after_batch}).fetchall()
    return {(provider, model): _Met(*seen) for provider, model, *seen in rows}


def _insert(cursor: duckdb.DuckDBPyConnection, rows: list[tuple[object, ...]]) -> None:
    if rows:
        cursor.executemany(_INSERT, rows)


def _set_meta(cursor: duckdb.DuckDBPyConnection, key: str, value: float | None) -> None:
    """What a question reads where it is not told otherwise; nothing for None."""
    cursor.execute("DELETE FROM meta WHERE key = $key", {"key": key})
    if value is not None:
        cursor.execute("INSERT INTO meta VALUES ($key, $value)", {"key": key, "value": str(value)})
