"""Rules of an exporter at work: POSTs and followed logs are named, /metrics stays bounded."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from exporter.store.store import Store
from prefixscope.serve import running
from prefixscope.settings import load_settings
from tests.log_path import SMALL, load
from tests.running import eventually
from tests.unit_cli.conftest import cli as cli_fixture
from tests.unit_names.naming import rules
from tests.unit_server.test_server import House

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out
cli = cli_fixture
HEADER = "[{header: x-tenant}]"


@contextmanager
def serving(folder: Path, settings: str) -> Iterator[str]:
    """An exporter with these settings on a free port of loopback."""
    file = folder / "prefixscope.yml"
    file.write_text(
        f"server: {{listen: 127.0.0.1:0}}\nstore: {{directory: {folder}/store}}\n{settings}"
    )
    with running(load_settings(file, {})) as exporter:
        yield exporter.url


def post(url: str, source: str, *rows: dict[str, Any]) -> dict[str, Any]:
    body = "".join(json.dumps(row) + "\n" for row in rows)
    answer = requests.post(f"{url}/v1/requests", params={"source": source}, data=body, timeout=60)
    assert answer.status_code == 200, answer.text
    counts: dict[str, Any] = answer.json()
    return counts


def by_tenant(url: str) -> dict[str | None, int]:
    answer = requests.get(f"{url}/api/v1/query/hit_ratio", params={"by": "tenant"}, timeout=60)
    return {row["tenant"]: row["requests"] for row in answer.json()}


def samples(url: str, name: str) -> list[tuple[dict[str, str], float]]:
    """The samples of a metric, as a standard parser reads the page."""
    page = requests.get(f"{url}/metrics", headers={"Accept": "text/plain"}, timeout=60).text
    return [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name
    ]


def live(**row: object) -> dict[str, object]:
    return {"ts": datetime.now(UTC).isoformat(), "prompt_tokens": 100, "cached_tokens": 40, **row}


def test_posts_and_followed_logs_of_a_source_are_named_by_its_rules(
    cli: Cli, tmp_path: Path
) -> None:
    log = tmp_path / "app.log"
    settings = (
        f"names: {{gateway: {{tenant: {HEADER}}}, app: {{tenant: [{{field: team}}]}}}}\n"
        f"logs: [{{source: app, path: {log}, format: ndjson}}]\n"
    )
    log.write_text(json.dumps({"request_id": "f", "prompt_tokens": 10, "team": "followed"}) + "\n")
    one = tmp_path / "one.jsonl"
    one.write_text(
        json.dumps({"request_id": "i", "prompt_tokens": 9, "headers": {"x-tenant": "sent"}}) + "\n"
    )
    with serving(tmp_path, settings) as url:
        post(url, "gateway", live(request_id="a", headers={"X-Tenant": "posted"}))
        post(url, "other", live(request_id="a", headers={"X-Tenant": "not named"}))
        sent = cli("ingest", one, "--source", "gateway", "--url", url)
        assert sent.status == 0, sent.err
        refused = cli("ingest", one, "--names", tmp_path / "prefixscope.yml", "--source",
                      "gateway", "--url", url)  # fmt: skip
        eventually("row of the followed log", lambda: "followed" in by_tenant(url))
        found = by_tenant(url)
    assert found == {"posted": 1, "sent": 1, "followed": 1, "": 1}
    assert refused.status == 1
    assert "names rows by the rules in its own settings" in refused.err


def test_a_rule_that_cannot_work_keeps_the_exporter_from_starting(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "prefixscope.yml"
    file.write_text("names: {gateway: {tenant: [{field: a, lookup: gone.csv}]}}\n")
    done = cli("serve", "--config", file)
    assert done.status == 1
    assert f"{file}: names.gateway.tenant.0: field a: lookup" in done.err
    assert "gone.csv cannot be read" in done.err


def test_t47_hostile_names_from_headers_come_back_as_they_are(tmp_path: Path) -> None:
    tenant, route = 'ACME "West" \\ prod\nx', "C:\\prompts\\new"
    settings = f"names: {{gateway: {{tenant: {HEADER}, route: [{{field: way}}]}}}}\n"
    with serving(tmp_path, settings) as url:
        post(url, "gateway", live(request_id="a", headers={"x-tenant": tenant}, way=route))
        [(labels, value)] = samples(url, "prefixcache_prompt_tokens_total")
        assert (labels["tenant"], labels["route"], value) == (tenant, route, 100)
        assert by_tenant(url) == {tenant: 1}


def test_t49_ten_thousand_named_tenants_are_bounded_and_totals_right(tmp_path: Path) -> None:
    """The numbers of the trap: 10,000 tenants with 10 requests each, 200 of them apart."""
    now = datetime.now(UTC).isoformat()
    rows = (
        f'{{"ts": "{now}", "request_id": "{n}", "prompt_tokens": 7, "headers": '
        f'{{"X-Tenant": "tenant-{n % 10_000}"}}}}'
        for n in range(100_000)
    )
    with House(tmp_path / "store", SMALL) as house:
        names = {"gateway": rules(tenant=[{"header": "x-tenant"}])}
        assert load(house.store, rows, "gateway", names=names).accepted == 100_000
        found = samples(house.url, "prefixcache_requests_total")
        tenants = {labels["tenant"] for labels, _ in found}
        assert len(tenants) == 201
        assert "other" in tenants
        assert sum(value for _, value in found) == 100_000
        answer = requests.get(f"{house.url}/api/v1/query/hit_ratio",
                              params={"by": "tenant"}, timeout=60).json()  # fmt: skip
        assert {row["requests"] for row in answer} == {10}
        assert len(answer) == 10_000


def test_t50_names_on_failing_requests_are_bounded_too(tmp_path: Path) -> None:
    """5000 failing requests that call themselves by 5000 routes and models."""
    settings = "names: {gateway: {route: [{header: x-route}], tenant: [{mapped: true}]}}\n"
    rows = [live(request_id=str(n), status="error", model=f"m{n}", headers={"x-route": f"r{n}"})
            for n in range(5000)]  # fmt: skip
    with serving(tmp_path, settings) as url:
        assert post(url, "gateway", *rows)["accepted"] == 5000
        found = samples(url, "prefixcache_requests_total")
        routes = {labels["route"] for labels, _ in found}
        models = {labels["model"] for labels, _ in found}
        assert (len(routes), len(models)) == (101, 51)
        assert "other" in routes & models
        assert sum(value for _, value in found) == 5000


# ------------------------------------------------------------- secrets


def test_neither_prompts_nor_keys_reach_the_disk_through_rules(tmp_path: Path) -> None:
    """The store is told not to compress, so that whatever it wrote is found in its bytes."""
    secret, key, label = "Zebra-Quartz vault", "sk-9f3kQ-acme", "tenant-that-must-be-found"
    folder = tmp_path / "store"
    store = Store.open(folder, SMALL)
    cursor = store.cursor()
    cursor.execute("SET force_compression = 'uncompressed'")
    lookup = tmp_path / "keys.csv"
    lookup.write_text(f"{key},{label}\n")
    names = {
        "gateway": rules(
            tenant=[{"field": "key_alias", "lookup": str(lookup)}],
            session=[{"header": "authorization", "hashed": True}],
            template=[{"field": "messages[*].content", "hashed": True}],
            route=[{"field": "note"}],
        )
    }
    rows: list[dict[str, Any]] = [
        {"request_id": str(n), "prompt_tokens": 9, "key_alias": key,
         "headers": {"authorization": f"Bearer {key}"}, "note": f"{secret} " * 20,
         "messages": [{"role": "system", "content": f"{secret} {n % 2}"}]}
        for n in range(300)
    ]  # fmt: skip
    assert load(store, [*rows, f"{secret} {key}"], "gateway", names=names).accepted == 300
    found = cursor.execute(
        "SELECT DISTINCT tenant, session, template, route FROM requests ORDER BY ALL"
    ).fetchall()
    store.close()
    assert len(found) == 2, "two system prompts, one caller"
    for tenant, session, template, route in found:
        assert (tenant, route) == (label, None)
        assert re.fullmatch("[0-9a-f]{16}", session)
        assert re.fullmatch("[0-9a-f]{16}", template)
    written = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert label.encode() in written
    for text in (secret, "Zebra", "vault", key, "9f3kQ"):
        assert text.encode() not in written, text


@pytest.mark.parametrize("text", ["x" * 100_000, "é" * 1024, "a1 " * 400])
def test_a_pattern_sees_no_more_than_the_limit(tmp_path: Path, text: str) -> None:
    """A match that begins behind 1,024 characters is not found, whatever the text."""
    store = Store.open(tmp_path / "store", SMALL)
    names = {"log": rules(tenant=[{"field": "team", "pattern": "(END)"}])}
    rows = [{"request_id": "late", "prompt_tokens": 9, "team": f"{text}END"},
            {"request_id": "early", "prompt_tokens": 9, "team": f"END{text}"}]  # fmt: skip
    load(store, rows, names=names)
    found = dict(store.cursor().execute("SELECT request_id, tenant FROM requests").fetchall())
    store.close()
    assert found == {"late": None, "early": "END"}
