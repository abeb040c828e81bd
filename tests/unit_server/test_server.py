"""The exporter's HTTP interface on a real store, through the ordinary path."""

import base64
import gzip
import io
import json
import re
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlencode

import duckdb
import pyarrow as pa
import pytest
import requests
import uvicorn
import zstandard
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_classic
from starlette.routing import Route

from exporter.collector import Collector, Inputs
from exporter.endpoints import history as history_http
from exporter.engine_totals import EngineTotals
from exporter.server import ARROW_STREAM, Services, build_app
from exporter.server_settings import ServerSettings
from exporter.sources.intake import IngestSummary, Intake
from exporter.store.counters import Snapshot
from exporter.store.store import Store, StoreSettings
from queries import registry

LIMIT = 1 << 20


class House:
    """One exporter on a free port of loopback, for as long as a `with` lasts."""

    def __init__(
        self,
        folder: Path,
        store_settings: StoreSettings | None = None,
        token: str | None = None,
        **server_settings: float,
    ) -> None:
        self.store = Store.open(folder, store_settings)
        self.not_ready: str | None = None
        self.services = Services(
            store=self.store,
            intake=Intake(self.store),
            collector=Collector(
                Inputs(
                    counters=self._counters,
                    engines=EngineTotals().snapshot,
                    targets=list,
                    store_file=self.store.path,
                    version="1.2.3",
                )
            ),
            version="1.2.3",
            not_ready=lambda: self.not_ready,
        )
        bounds = {"max_body_bytes": LIMIT, "max_waiting_batches": 2} | server_settings
        app = build_app(self.services, ServerSettings.model_validate(bounds), token)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def _counters(self) -> Snapshot:
        self.store.fold()
        return self.store.counters.snapshot()

    def __enter__(self) -> "House":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.should_exit = True
        self._thread.join(60)
        self._socket.close()
        self.store.close()

    def get(
        self,
        path: str,
        params: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> requests.Response:
        return requests.get(self.url + path, params, headers=headers, timeout=60)

    def post(
        self, content: bytes, query: str = "source=gateway", **headers: str
    ) -> requests.Response:
        path = f"{self.url}/v1/requests?{query}"
        return requests.post(path, data=content, headers=headers, timeout=60)

    def ask(self, name: str, **params: str) -> list[dict[str, Any]]:
        response = self.get(f"/api/v1/query/{name}", params=params)
        assert response.status_code == 200, response.text
        rows: list[dict[str, Any]] = response.json()
        return rows


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path / "store") as house:
        yield house


def row(identity: str, age_seconds: float = 5, **more: object) -> dict[str, object]:
    moment = datetime.now(UTC) - timedelta(seconds=age_seconds)
    return {
        "request_id": identity,
        "ts": moment.isoformat(),
        "model": "m",
        "route": "chat",
        "template": "support",
        "tenant": "acme",
        "prompt_tokens": 1000,
        "cached_tokens": 700,
    } | more


def lines(*rows: dict[str, object]) -> bytes:
    return b"".join(json.dumps(r).encode() + b"\n" for r in rows)


# ---- taking rows in


def test_rows_are_stored_when_the_answer_comes(house: House) -> None:
    answer = house.post(lines(row("a"), row("b", cached_tokens=None)))
    assert answer.status_code == 200
    summary = answer.json()
    assert (summary["accepted"], summary["duplicate"], summary["rejected"]) == (2, 0, 0)
    assert summary["coverage_ratio"] == 0.5
    assert summary["decided_because"]
    (found,) = house.ask("hit_ratio")
    assert (found["prompt_tokens"], found["reported_prompt_tokens"]) == (2000, 1000)
    assert (found["cached_tokens"], found["token_hit_ratio"]) == (700, 0.7)


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (lines(row("a"), row("b")), {}),
        (json.dumps([row("a"), row("b")]).encode(), {}),
        (json.dumps([row("a"), row("b")], indent=2).encode(), {}),
        (gzip.compress(lines(row("a"), row("b"))), {"Content-Encoding": "gzip"}),
        (zstandard.compress(lines(row("a"), row("b"))), {"Content-Encoding": "zstd"}),
    ],
    ids=["ndjson", "array", "pretty-array", "gzip", "zstd"],
)
def test_every_form_of_a_body_gives_the_same_rows(
    house: House, content: bytes, headers: dict[str, str]
) -> None:
    assert house.post(content, **headers).json()["accepted"] == 2
    assert house.ask("hit_ratio")[0]["cached_tokens"] == 1400


@pytest.mark.parametrize("indent", [None, 2])
def test_one_object_is_one_row(house: House, indent: int | None) -> None:
    assert house.post(json.dumps(row("a"), indent=indent).encode()).json()["accepted"] == 1


def test_t61_bad_rows_are_counted_and_the_batch_is_still_200(house: House) -> None:
    content = lines(row("a")) + b'\xff\n[]\n42\n"text"\nnull\n{"request_id": \n' + lines(row("b"))
    answer = house.post(content)
    assert answer.status_code == 200
    summary = answer.json()
    assert (summary["accepted"], summary["rejected"]) == (2, 6)
    assert sum(summary["reasons"].values()) == 6


def test_t62_non_finite_numbers_never_leave(house: House) -> None:
    content = (
        lines(row("x"))
        + b'{"request_id":"r1","ttft_s":NaN,"prompt_tokens":1000,"cached_tokens":500}\n'
        + b'{"request_id":"r2","prompt_tokens":Infinity,"cached_tokens":1}\n'
    )
    summary = house.post(content).json()
    assert summary["accepted"] == 3
    (found,) = house.ask("hit_ratio")
    assert (found["prompt_tokens"], found["cached_tokens"]) == (2000, 1200)
    values = {"dimension": "model", "by": "model"}
    values |= dict.fromkeys(("until", "baseline_until"), "2026-12-31T00:00:00Z")
    values |= dict.fromkeys(("since", "baseline_since"), "2026-12-01T00:00:00Z")
    for asked in registry.questions().values():
        params = {name: values[name] for name, param in asked.params.items() if param.required}
        answer = house.get(f"/api/v1/query/{asked.name}", params=params)
        assert answer.status_code == 200, (asked.name, answer.text)
        json.loads(answer.text, parse_constant=pytest.fail)


def test_t67_the_same_batch_twice_changes_nothing(house: House) -> None:
    house.post(lines(row("a")))
    again = house.post(lines(row("a")) + lines(row("a", prompt_tokens=1200)))
    summary = again.json()
    assert (summary["accepted"], summary["duplicate"], summary["conflicting"]) == (0, 1, 1)
    assert house.ask("hit_ratio")[0]["prompt_tokens"] == 1000


def test_an_unreadable_body_is_400_and_an_unknown_encoding_415(house: House) -> None:
    broken = house.post(b"not gzip", **{"Content-Encoding": "gzip"})
    assert broken.status_code == 400
    assert "not valid gzip" in broken.json()["error"]
    assert house.post(b"x", **{"Content-Encoding": "br"}).status_code == 415
    array = house.post(b"[1,")
    assert (array.status_code, "array" in array.json()["error"]) == (400, True)


def test_a_body_over_the_limit_is_413_packed_or_not(house: House) -> None:
    big = lines(row("a")) + b" " * LIMIT
    assert house.post(big).status_code == 413
    packed = house.post(gzip.compress(big), **{"Content-Encoding": "gzip"})
    assert packed.status_code == 413
    assert "max_body_bytes" in packed.json()["error"]
    assert house.ask("hit_ratio")[0]["requests"] == 0


def test_an_unknown_format_names_the_known_ones(house: House) -> None:
    answer = house.post(lines(row("a")), query="source=x&format=nonsense")
    assert answer.status_code == 400
    assert "auto" in answer.json()["error"]


def test_a_misspelt_parameter_is_refused_and_no_row_lands_elsewhere(house: House) -> None:
    answer = house.post(lines(row("a")), query="sorce=gateway")
    assert answer.status_code == 400
    assert answer.json() == {"error": "unknown parameter sorce: known are source, format, input"}
    assert house.store.cursor().execute("SELECT count(*) FROM requests").fetchall() == [(0,)]


@pytest.mark.parametrize("source", ["x" * 101, "a\nb"])
def test_a_source_is_a_short_printable_name(house: House, source: str) -> None:
    answer = house.post(lines(row("a")), query=urlencode({"source": source}))
    assert answer.status_code == 400
    assert "source" in answer.json()["error"]


def test_a_file_is_streamed_whatever_its_size_and_known_again(house: House) -> None:
    nameless = [row("x", age_seconds=n, request_id=None) for n in range(6000)]
    content = lines(*nameless)
    assert len(content) > LIMIT
    query = "source=gateway&input=file"
    first = house.post(content, query=query).json()
    second = house.post(gzip.compress(content), query=query).json()
    assert (first["accepted"], second["accepted"]) == (6000, 0)
    assert second["duplicate"] == 6000


def test_a_file_that_ends_early_is_400_with_what_was_stored(house: House) -> None:
    packed = gzip.compress(lines(*(row(str(n)) for n in range(100))))
    answer = house.post(packed[:-10], query="source=g&input=file")
    assert answer.status_code == 400
    assert "damaged or ends early" in answer.json()["error"]


def test_more_batches_than_allowed_get_429_and_a_time_to_wait(house: House) -> None:
    inside, leave = threading.Semaphore(0), threading.Event()
    ingest = house.services.intake.ingest

    def slow(stream: BinaryIO, **more: str) -> IngestSummary:
        inside.release()
        leave.wait(60)
        return ingest(stream, source=more["source"], origin="http")

    house.services.intake.ingest = slow  # type: ignore[method-assign]
    answers: list[int] = []

    def send(number: int) -> None:
        answers.append(house.post(lines(row(str(number)))).status_code)

    senders = [threading.Thread(target=send, args=(n,)) for n in range(2)]
    for sender in senders:
        sender.start()
        assert inside.acquire(timeout=60)
    refused = house.post(lines(row("late")))
    leave.set()
    for sender in senders:
        sender.join()
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
    assert answers == [200, 200]
    house.services.intake.ingest = ingest  # type: ignore[method-assign]
    assert house.post(lines(row("late"))).json()["accepted"] == 1


# ---- asking


def test_questions_are_listed_with_parameters_and_columns(house: House) -> None:
    listed = {q["name"]: q for q in house.get("/api/v1/queries").json()}
    assert set(listed) == set(registry.questions())
    assert "tenant" in listed["hit_ratio"]["params"]
    assert listed["hit_ratio"]["columns"]["token_hit_ratio"]["unit"] == "ratio"
    assert "sql" not in listed["hit_ratio"]


def test_an_unknown_question_is_404_and_a_bad_parameter_400(house: House) -> None:
    unknown = house.get("/api/v1/query/hit_ration")
    assert (unknown.status_code, "hit_ratio" in unknown.json()["error"]) == (404, True)
    for params in ({"by": "planet"}, {"planet": "x"}, {"since": "yesterday-ish"}, {"since": ""}):
        answer = house.get("/api/v1/query/hit_ratio", params=params)
        assert answer.status_code == 400, params
        assert answer.json()["error"]


def test_spans_count_back_from_now(house: House) -> None:
    house.post(lines(row("new", age_seconds=60), row("old", age_seconds=3 * 3600)))
    assert house.ask("hit_ratio", since="2h")[0]["requests"] == 1
    assert house.ask("hit_ratio", since="7d")[0]["requests"] == 2
    assert house.ask("hit_ratio", since="7d", until="90m")[0]["requests"] == 1


def test_times_are_iso_in_utc_and_dimensions_carry_their_name(house: House) -> None:
    house.post(lines(row("a", ts="2026-03-02T12:00:00Z"), row("b", tenant=None)))
    (state,) = house.ask("store_state")
    assert state["first_ts"] == "2026-03-02T12:00:00Z"
    assert {r["tenant"] for r in house.ask("hit_ratio", by="tenant")} == {"acme", ""}


def test_arrow_and_json_say_the_same(house: House) -> None:
    house.post(lines(row("a"), row("b", tenant="other")))
    rows = house.ask("hit_ratio", by="tenant")
    answer = house.get(
        "/api/v1/query/hit_ratio", params={"by": "tenant"}, headers={"Accept": ARROW_STREAM}
    )
    assert answer.headers["content-type"] == ARROW_STREAM
    table = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
    assert registry.rows(table) == rows


def test_t74_many_askers_get_their_own_answers(house: House) -> None:
    house.post(
        lines(*(row(f"{n}", tenant=f"t{n % 5}", prompt_tokens=1000 + n % 5) for n in range(50)))
    )
    wrong: list[object] = []

    def ask(number: int) -> None:
        for _ in range(5):
            (found,) = house.ask("hit_ratio", tenant=f"t{number}")
            if found["prompt_tokens"] != 10 * (1000 + number):
                wrong.append(found)

    askers = [threading.Thread(target=ask, args=(n % 5,)) for n in range(10)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert wrong == []


def test_a_question_that_takes_too_long_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(cursor: duckdb.DuckDBPyConnection, *_: object) -> pa.Table:
        numbers = "range(10_000_000) a, range(10_000_000) b"
        return cursor.sql(f"SELECT sum(a.range * b.range) FROM {numbers}").to_arrow_table()

    monkeypatch.setattr(registry, "run", endless)
    with House(tmp_path / "store", query_timeout_seconds=0.2) as house:
        answer = house.get("/api/v1/query/hit_ratio")
    assert answer.status_code == 503
    assert "query_timeout_seconds" in answer.json()["error"]


def test_our_own_fault_is_500_without_details(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr(registry, "run", broken)
    answer = house.get("/api/v1/query/hit_ratio")
    assert answer.status_code == 500
    assert "secret" not in answer.text


# ---- metrics


def test_t52_metrics_in_both_formats(house: House) -> None:
    house.post(lines(row("a", ttft_seconds=0.3)))
    classic = house.get("/metrics")
    assert classic.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert list(parse_classic(classic.text))
    asked = {"Accept": "application/openmetrics-text; version=1.0.0"}
    openmetrics = house.get("/metrics", headers=asked)
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text;")
    assert openmetrics.text.endswith("# EOF\n")
    assert {f.name for f in parse_openmetrics(openmetrics.text)}


def samples(house: House) -> list[Any]:
    page = house.get("/metrics").text
    return [s for family in parse_classic(page) for s in family.samples]


def test_t47_hostile_names_come_back_through_the_whole_path(house: House) -> None:
    tenant, route = 'ACME "West" \\ prod\nx', "C:\\prompts\\new"
    house.post(lines(row("a", tenant=tenant, route=route)))
    found = [s for s in samples(house) if s.name == "prefixcache_prompt_tokens_total"]
    assert [(s.labels["tenant"], s.labels["route"]) for s in found] == [(tenant, route)]
    assert house.ask("hit_ratio", by="tenant")[0]["tenant"] == tenant


def test_t49_ten_thousand_tenants_are_bounded_and_totals_stay_right(tmp_path: Path) -> None:
    with House(tmp_path / "store", StoreSettings(top_tenants=200)) as house:
        for start in range(0, 10_000, 1000):
            rows = [
                row(f"{tenant}-{n}", tenant=f"tenant-{tenant:05}")
                for tenant in range(start, start + 1000)
                for n in range(10)
            ]
            house.post(lines(*rows), query="source=g&input=file")
        found = [s for s in samples(house) if s.name == "prefixcache_requests_total"]
        assert house.ask("hit_ratio", tenant="tenant-09999")[0]["requests"] == 10
    tenants = {s.labels["tenant"] for s in found}
    assert len(tenants) == 201
    assert "other" in tenants
    assert sum(s.value for s in found) == 100_000


def test_t50_model_names_of_failing_requests_are_bounded_too(tmp_path: Path) -> None:
    with House(tmp_path / "store", StoreSettings(top_models=20)) as house:
        failed = [
            row(f"{n}", model=f"made-up-{n:04}", status="error", prompt_tokens=None)
            for n in range(5000)
        ]
        house.post(lines(*failed), query="source=g&input=file")
        found = [s for s in samples(house) if s.name == "prefixcache_requests_total"]
    models = {s.labels["model"] for s in found}
    assert len(models) == 21
    assert "other" in models
    assert sum(s.value for s in found) == 5000


def test_t68_late_rows_are_stored_but_do_not_move_the_counters(house: House) -> None:
    house.post(lines(row("old", age_seconds=3600), row("new", age_seconds=60)))
    values = {
        s.name: s.value for s in samples(house) if "prompt_tokens" in s.name or "late" in s.name
    }
    assert values["prefixcache_prompt_tokens_total"] == 1000
    assert values["prefixscope_late_tokens_total"] == 1000
    assert house.ask("hit_ratio")[0]["prompt_tokens"] == 2000


def test_counters_survive_a_restart(tmp_path: Path) -> None:
    def counted(house: House) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        return {
            (s.name, tuple(s.labels.items())): s.value
            for s in samples(house)
            if s.name.startswith("prefixcache_")
        }

    with House(tmp_path / "store") as house:
        house.post(lines(row("a", ttft_seconds=0.3)))
        before = counted(house)
    with House(tmp_path / "store") as house:
        assert counted(house) == before
    assert len(before) > 20


# ---- health, pages, access


def test_health_says_alive_and_ready(house: House) -> None:
    assert house.get("/-/healthy").status_code == 200
    assert house.get("/-/ready").status_code == 200
    house.not_ready = "waiting for the first scrape of every target"
    answer = house.get("/-/ready")
    assert (answer.status_code, "first scrape" in answer.text) == (503, True)
    assert house.get("/-/healthy").status_code == 200


def test_landing_page_links_what_exists(house: House) -> None:
    page = house.get("/").text
    links = re.findall(r'href="([^"]+)"', page)
    assert "metrics" in links
    assert all(house.get(f"/{link}").status_code == 200 for link in links)


def test_now_is_a_page_without_script(house: House) -> None:
    house.post(lines(row("a", replica="<script>alert(1)</script>")))
    answer = house.get("/now")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "<script" not in answer.text
    assert "<dd>request log</dd>" in answer.text
    assert "hit ratio 70\N{NO-BREAK SPACE}%" in answer.text


def test_now_takes_filters_and_refuses_what_it_does_not_know(house: House) -> None:
    house.post(lines(row("a", model="m")))
    there = house.get("/now", {"model": "m", "replica": ""})
    assert (there.status_code, "hit ratio 70" in there.text) == (200, True)
    other = house.get("/now", {"model": "<script>"})
    assert (other.status_code, "<script" in other.text) == (200, False)
    assert "No traffic with these filters in the hour" in other.text
    for params in ({"at": "soon<script>"}, {"zone": "x"}, {"nonsense": "1"}):
        wrong = house.get("/now", params)
        assert (wrong.status_code, "<script" in wrong.text) == (400, False)
        assert "This address cannot be understood" in wrong.text
        assert "default-src 'none'" in wrong.headers["content-security-policy"]


def test_a_token_is_asked_for_everywhere_but_at_health(tmp_path: Path) -> None:
    paths = ("/metrics", "/now", "/", "/api/v1/queries", "/api/v1/query/hit_ratio")
    right = {"Authorization": "Bearer s3cret", "Host": "exporter.example:9465"}
    with House(tmp_path / "store", token="s3cret") as house:
        for path in paths:
            for wrong in ({}, {"Authorization": "Bearer no"}, {"Authorization": "s3cret"}):
                assert house.get(path, headers=wrong).status_code == 401, path
            assert house.get(path, headers=right).status_code == 200, path
        assert house.post(lines(row("a"))).status_code == 401
        assert house.get("/-/healthy").status_code == 200
        assert house.get("/-/ready").status_code == 200


def test_a_browser_may_read_with_the_token_as_a_password(tmp_path: Path) -> None:
    with House(tmp_path / "store", token="s3cret") as house:
        asked = house.get("/now").headers["www-authenticate"]
        assert asked.startswith("Basic ")
        for login, status in (("me:s3cret", 200), (":s3cret", 200), ("s3cret", 401),
                              ("s3cret:", 401), ("me:s3cret ", 401)):  # fmt: skip
            told = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}
            assert house.get("/now", headers=told).status_code == status, login
        assert house.get("/now", headers={"Authorization": "Basic ä"}).status_code == 401
        # Forms of other sites send it too.
        right = f"Basic {base64.b64encode(b'me:s3cret').decode()}"
        assert house.post(lines(row("a")), Authorization=right).status_code == 401


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "[::1"])
def test_without_a_token_only_loopback_names_are_answered(house: House, host: str) -> None:
    assert house.get("/metrics", headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost:9465", "127.0.0.1", "[::1]:9465"])
def test_loopback_names_are_answered(house: House, host: str) -> None:
    assert house.get("/metrics", headers={"Host": host}).status_code == 200


def test_without_a_token_another_site_cannot_post(house: House) -> None:
    refused = house.post(lines(row("a")), Origin="https://evil.example")
    assert refused.status_code == 403
    assert house.post(lines(row("a")), Origin="http://localhost:8501").status_code == 200


def test_the_reference_names_every_path(house: House) -> None:
    text = (Path(__file__).parents[2] / "docs" / "http.md").read_text("utf-8")
    documented = set(re.findall(r"^\| `(?:GET|POST) (/[^`]*)`", text, re.MULTILINE))
    app = build_app(house.services, ServerSettings())
    served = {route.path for route in app.routes if isinstance(route, Route)}
    # These two are there where a whole exporter runs, with somebody who fills in history.
    history = {history_http.PLAN_PATH, history_http.PAGES_PATH}
    assert documented == served | history
