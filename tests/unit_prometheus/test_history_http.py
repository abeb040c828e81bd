"""The endpoints `backfill` sends to: bad bodies change nothing and are not repeated."""

import json
from collections.abc import Callable

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from exporter.collector import Collector, Inputs
from exporter.engine_totals import EngineTotals
from exporter.server import Services, build_app
from exporter.server_settings import ServerSettings
from exporter.sources.intake import Intake
from exporter.sources.prometheus.history import History
from exporter.sources.target_settings import TargetSettings
from exporter.store.store import Store

SECRET = "text of a page"
PLAN = {
    "asked": {"labels": {"job": "vllm", "instance": "10.0.0.1:8000"}}, "since": 0, "until": 100.0,
}  # fmt: skip
NAN_TIME = (
    b'{"source": "s", "plan": {"target": "t", "replica": "r", "labels": "{}"}, "key": 0,'
    b' "pages": [[NaN, "text of a page"]]}'
)


@pytest.fixture
def app(new_store: Callable[[str], Store]) -> Starlette:
    store = new_store("http")
    inputs = Inputs(
        counters=store.counters.snapshot, engines=EngineTotals().snapshot, targets=list,
        store_file=store.path, version="0",
    )  # fmt: skip
    history = History(store, TargetSettings())
    services = Services(store, Intake(store), Collector(inputs), "0", history=history)
    return build_app(services, ServerSettings())


def test_a_plan_and_its_pages(app: Starlette) -> None:
    client = TestClient(app, base_url="http://127.0.0.1")
    plan = client.post("/v1/history/plan", json=PLAN).json()
    assert (plan["target"], plan["replica"]) == ("10.0.0.1:8000", "10.0.0.1:8000")
    (span,) = plan["spans"]
    assert (span["since"], span["until"], span["seen"]) == (0, 100, None)
    page = 'vllm:prompt_tokens_total{{engine="0",model_name="m"}} {}\n'
    piece = {"source": "http://p", "plan": plan, "key": span["key"],
             "pages": [[10.0, page.format(5)], [20.0, None], [30.0, page.format(12)]]}  # fmt: skip
    first = client.post("/v1/history/pages", json=piece).json()
    assert (first["pages"], first["down"], first["gaps"], first["seen"]) == (2, 1, 1, 30.0)
    again = client.post("/v1/history/pages", json=piece).json()
    assert (again["pages"], again["samples"]) == (0, 0)
    (rest,) = client.post("/v1/history/plan", json=PLAN).json()["spans"]
    assert (rest["key"], rest["since"], rest["seen"]) == (0, 30, 30)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", b'{"asked": 1}', b"\xff\xfe",
        json.dumps({**PLAN, "until": 1e300}).encode(),
        json.dumps({**PLAN, "more": SECRET}).encode(),
        NAN_TIME,
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["plan", "pages"])
def test_bad_bodies_are_400(app: Starlette, path: str, body: bytes) -> None:
    answer = TestClient(app, base_url="http://127.0.0.1").post(f"/v1/history/{path}", content=body)
    assert answer.status_code == 400
    assert SECRET not in answer.text
