"""A disk that refuses is told as what may work later: shippers send again after 503."""

from collections.abc import Iterator

import duckdb
import pytest
from google.rpc.status_pb2 import Status
from starlette.testclient import TestClient

from exporter.collector import Collector, Inputs
from exporter.engine_totals import EngineTotals
from exporter.server import Services, build_app
from exporter.server_settings import ServerSettings
from exporter.sources.intake import Intake
from exporter.store.store import Store
from tests.log_path import SMALL, ndjson

FULL = duckdb.TransactionException(
    'Failed to commit: Could not write file "x.duckdb.wal": No space left on device'
)
SPANS = b'{"resourceSpans": []}'


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    store = Store.open(tmp_path_factory.mktemp("disk") / "store", SMALL)
    inputs = Inputs(
        counters=store.counters.snapshot, engines=EngineTotals().snapshot, targets=list,
        store_file=store.path, version="1.2.3",
    )  # fmt: skip
    yield Services(store, Intake(store), Collector(inputs), "1.2.3")
    store.close()


@pytest.fixture
def client(services: Services) -> TestClient:
    app = build_app(services, ServerSettings())
    return TestClient(app, "http://localhost", raise_server_exceptions=False)


def refusing(monkeypatch: pytest.MonkeyPatch, services: Services, error: Exception) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(services.store, "write", refuse)
    monkeypatch.setattr(services.intake, "ingest", refuse)


def test_rows_and_spans_that_the_disk_does_not_take_are_to_come_again(
    services: Services, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, services, FULL)
    rows = client.post("/v1/requests", content=ndjson([{"prompt_tokens": 1}]))
    assert (rows.status_code, rows.headers["Retry-After"]) == (503, "1")
    assert "No space left on device" in rows.json()["error"]
    monkeypatch.setattr("exporter.endpoints.rows._Taking._take_spans", services.intake.ingest)
    spans = client.post("/v1/traces", content=SPANS, headers={"content-type": "application/json"})
    assert (spans.status_code, spans.headers["Retry-After"]) == (503, "1")
    assert "No space left on device" in spans.json()["message"]
    packed = client.post("/v1/traces", headers={"content-type": "application/x-protobuf"})
    assert "No space left on device" in Status.FromString(packed.content).message


def test_what_is_not_the_disk_is_our_fault_and_keeps_its_words(
    services: Services, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, services, duckdb.TransactionException("a secret detail"))
    rows = client.post("/v1/requests", content=ndjson([{"prompt_tokens": 1}]))
    assert (rows.status_code, "secret" in rows.text) == (500, False)
