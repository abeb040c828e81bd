"""The links in alerts: where the exporter says people reach it, and the runbooks it serves."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient

from exporter.collector import Collector, Inputs
from exporter.endpoints import runbooks as runbooks_http
from exporter.server import Services, build_app
from exporter.server_settings import ServerSettings
from exporter.sources.intake import Intake
from exporter.store.counters import Snapshot
from exporter.store.store import Store
from prefixscope.serve import running
from prefixscope.settings import Settings, StoreSection
from tests.running import get
from tests.unit_alerts.rule_files import ROOT, RUNBOOKS, alerts

NOTHING = Snapshot({}, {}, {}, {}, 0, {}, None)
INPUTS = Inputs(lambda: NOTHING, dict, list, Path("none"), "0")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """An exporter with an empty store."""
    store = Store.open(tmp_path_factory.mktemp("links"))
    services = Services(store, Intake(store), Collector(INPUTS), "0")
    yield TestClient(build_app(services, ServerSettings()), "http://127.0.0.1")
    store.close()


@pytest.mark.parametrize("name", alerts())
def test_every_runbook_is_served_where_alerts_link_to(client: TestClient, name: str) -> None:
    answer = client.get(f"/docs/runbooks/{name}.md")
    assert answer.status_code == 200
    assert f"<title>{name}</title>" in answer.text
    assert "## Mitigation" in answer.text
    assert "script" not in answer.headers["content-security-policy"].replace("style-src", "")


def test_the_dashboard_gets_a_runbook_as_it_is_written(client: TestClient) -> None:
    answer = client.get("/docs/runbooks/PrefixcacheHitDrop.md", headers={"Accept": "text/markdown"})
    assert answer.headers["content-type"].startswith("text/markdown")
    assert answer.text == (RUNBOOKS / "PrefixcacheHitDrop.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["Nothing", "..%2f..%2fREADME", "%2e%2e", "a b"])
def test_nothing_else_is_served(client: TestClient, name: str) -> None:
    assert client.get(f"/docs/runbooks/{name}.md").status_code == 404


def test_what_is_written_is_shown_and_never_markup(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, client: TestClient
) -> None:
    (tmp_path / "Odd.md").write_text("# <script>alert(1)</script> & more", encoding="utf-8")
    monkeypatch.setattr(runbooks_http, "FOLDERS", (tmp_path,))
    assert "<pre># &lt;script&gt;alert(1)&lt;/script&gt; &amp; more</pre>" in client.get(
        "/docs/runbooks/Odd.md"
    ).text  # fmt: skip


def test_a_wheel_carries_them_in_the_package() -> None:
    assert runbooks_http.FOLDERS[0] == ROOT / "exporter" / "runbooks"
    assert runbooks_http.FOLDERS[1] == RUNBOOKS


def url_lines(inputs: Inputs) -> list[str]:
    page = Collector(inputs).render(openmetrics=False).decode()
    return [line for line in page.splitlines() if line.startswith("prefixscope_external_url_info")]


def test_the_page_says_where_people_reach_the_exporter() -> None:
    assert url_lines(INPUTS) == []
    told = replace(INPUTS, external_url="https://cache.example.org/ps/")
    assert url_lines(told) == [
        'prefixscope_external_url_info{url="https://cache.example.org/ps"} 1.0'
    ]


def test_a_setting_or_where_it_listens(tmp_path: Path) -> None:
    server = {"listen": "127.0.0.1:0"}
    for external_url in (None, "https://cache.example.org"):
        settings = Settings.model_validate({
            "server": {**server, "external_url": external_url},
            "store": StoreSection(directory=tmp_path),
        })  # fmt: skip
        with running(settings) as exporter:
            shown = f'prefixscope_external_url_info{{url="{external_url or exporter.url}"}}'
            page = get(f"{exporter.url}/metrics")
            assert shown.encode() in page
            for judgement in ("drops", "verdicts", "causes"):
                told = f'prefixscope_last_judged_timestamp_seconds{{judgement="{judgement}"}} '
                assert told.encode() in page


@pytest.mark.parametrize("text", ["cache.example.org", "ftp://a/b", "https://", "https://a/?b=c"])
def test_what_is_no_link_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="is no address like https://cache"):
        ServerSettings(external_url=text)
