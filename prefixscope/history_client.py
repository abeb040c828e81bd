"""The side of `backfill` that holds the store: opened here, or an exporter over HTTP."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError
from zstandard import ZstdCompressor

from exporter.endpoints.history import PAGES_PATH, PLAN_PATH, PlanAsked
from exporter.sources.prometheus.backfill import HistorySide
from exporter.sources.prometheus.history import History, Piece, Plan, Taken
from exporter.sources.prometheus.names import AskedTarget
from exporter.sources.target_settings import TargetSettings
from prefixscope.client import Exporter, ExporterProblem, OpenStore

Told = TypeVar("Told", bound=BaseModel)


class RemoteHistory:
    """An exporter that takes history. It names targets by its own settings."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter

    def plan(self, asked: AskedTarget, since: float, until: float) -> Plan:
        """Which spans of a target are missing there."""
        question = PlanAsked(asked=asked, since=since, until=until)
        return self._read(Plan, self._send(PLAN_PATH, question))

    def take(self, piece: Piece) -> Taken:
        """Hand over pages; returns after the exporter has committed them."""
        return self._read(Taken, self._send(PAGES_PATH, piece))

    def _send(self, path: str, body: BaseModel) -> bytes:
        packed = ZstdCompressor().compress(body.model_dump_json().encode())
        headers = {"Content-Type": "application/json", "Content-Encoding": "zstd"}
        return self._exporter.send("POST", path, params={}, headers=headers, data=packed).content

    def _read(self, kind: type[Told], text: bytes) -> Told:
        try:
            return kind.model_validate_json(text)
        except ValidationError as error:
            raise ExporterProblem(
                f"{self._exporter.url} does not answer as an exporter of this version does"
            ) from error


def history_of(place: Exporter | OpenStore, targets: TargetSettings) -> HistorySide:
    """Whoever takes the history in. `targets` name what is ours in a store opened here."""
    if isinstance(place, Exporter):
        return RemoteHistory(place)
    return History(place.store, targets)
