"""`alerts`: what it prints, how it ends, and what a webhook hears of it."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from exporter.errors import PrefixscopeError
from exporter.store.store import Store
from prefixscope.alert_webhook import STILL_ON, Alert, Told, firing, tell
from tests.loopback_answers import Answer, Server, answering
from tests.unit_alerts.hours import MONDAY, put_page

NOW = MONDAY + timedelta(hours=1)
Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose replica r was reset three times in the hour before NOW."""
    directory = tmp_path_factory.mktemp("store")
    opened = Store.open(directory)
    for minutes in (0, 10, 20):
        put_page(opened.cursor(), MONDAY + timedelta(minutes=minutes), 0.1, reset=True)
    opened.close()
    return directory


@pytest.fixture
def webhook() -> Iterator[Server]:
    with answering({"POST /hook": Answer("ok")}) as server:
        yield server


def test_what_fires_is_printed_and_is_the_exit_status(cli: Cli, store: Path) -> None:
    done = cli("alerts", "--store", store, "--at", NOW.isoformat())
    assert done.status == 3
    assert done.out.splitlines() == [
        "ticket firing PrefixcacheResetStorm since 2026-11-30 10:30 UTC",
        "  model m, replica r",
        "  3 resets within an hour.",
        "  docs/runbooks/PrefixcacheResetStorm.md",
    ]
    rows = json.loads(cli("alerts", "--store", store, "--at", NOW, "--output", "json").out)
    assert [(row["alert"], row["replica"]) for row in rows] == [("PrefixcacheResetStorm", "r")]


def test_nothing_fires_a_day_later(cli: Cli, store: Path) -> None:
    done = cli("alerts", "--store", store, "--at", NOW + timedelta(days=1))
    assert (done.status, done.out) == (0, "no alert fires\n")


def test_all_lists_what_is_silent_too(cli: Cli, store: Path) -> None:
    done = cli("alerts", "--store", store, "--at", NOW, "--all")
    assert done.status == 3
    assert "page inactive PrefixcachePeakHitDrop" in done.out
    assert "page unknown PrefixcacheStaleReuse\n" in done.out, "no request row tells"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--webhook", "ftp://somewhere"), "--webhook is no http or https address"),
        (("--url", "http://127.0.0.1:9", "--webhook", "http://x"), "needs --state FILE here"),
        (("--at", "soon"), "'soon' is not a time; write 2026-03-02T09:15:00Z"),
        (("--watch", "60", "--at", "2h"), "--watch asks of the present"),
    ],
)
def test_wrong_usage_says_what_to_do(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    done = cli("alerts", *arguments)
    assert done.status == 2
    assert message in done.err


def test_a_failure_is_another_status_than_an_alert(cli: Cli) -> None:
    assert cli("alerts", "--url", "http://127.0.0.1:9").status == 1


def test_the_webhook_hears_what_begins_and_what_is_over_once(
    cli: Cli, store: Path, tmp_path: Path, webhook: Server
) -> None:
    state = tmp_path / "told.json"
    given = ("alerts", "--store", store, "--webhook", f"{webhook.url}/hook", "--state", state,
             "--external-url", "http://cache.example/")  # fmt: skip
    for _ in range(2):
        assert cli(*given, "--at", NOW).status == 3
    for _ in range(2):
        assert cli(*given, "--at", NOW + timedelta(days=1)).status == 0
    begun, over = (json.loads(body) for body in webhook.bodies)
    assert begun == {
        "version": "4",
        "groupKey": '{}:{alertname="PrefixcacheResetStorm"}',
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "prefixscope",
        "groupLabels": {"alertname": "PrefixcacheResetStorm"},
        "commonLabels": begun["alerts"][0]["labels"],
        "commonAnnotations": begun["alerts"][0]["annotations"],
        "externalURL": "http://cache.example/",
        "alerts": [
            {
                "status": "firing",
                "labels": {
                    "alertname": "PrefixcacheResetStorm", "severity": "ticket",
                    "model": "m", "replica": "r",
                },
                "annotations": {
                    "summary": "A replica loses its whole cache again and again",
                    "description": "3 resets within an hour.",
                    "runbook_url": "http://cache.example/docs/runbooks/PrefixcacheResetStorm.md",
                    "dashboard_url": "http://cache.example/now?model=m&replica=r",
                },
                "startsAt": "2026-11-30T10:30:00Z",
                "endsAt": STILL_ON,
                "generatorURL": "http://cache.example/now?model=m&replica=r",
                "fingerprint": begun["alerts"][0]["fingerprint"],
            }
        ],
    }  # fmt: skip
    [ended] = over["alerts"]
    assert (over["status"], ended["status"]) == ("resolved", "resolved")
    assert ended["fingerprint"] == begun["alerts"][0]["fingerprint"]
    assert (ended["startsAt"], ended["endsAt"]) == ("2026-11-30T10:30:00Z", "2026-12-01T11:00:00Z")
    assert json.loads(state.read_text()) == []


def drop(**columns: object) -> dict[str, object]:
    return {
        "alert": "PrefixcacheHitDrop", "severity": "ticket", "state": "firing", "model": "m",
        "route": None, "template": None, "tenant": None, "replica": None, "subject": "log",
        "since": "2026-11-30T10:00:00Z", "summary": "s", "description": "class: reset",
        "runbook": "docs/runbooks/PrefixcacheHitDrop.md", **columns,
    }  # fmt: skip


def test_another_class_is_the_same_alert() -> None:
    told = Told({}).after(firing([drop()], ""))
    other = firing([drop(description="class: deploy", since="2026-11-30T11:00:00Z")], "")
    assert told.news(other, NOW) == {}
    [group] = told.news([*other, *firing([drop(model="n")], "")], NOW).values()
    assert [alert.starts_at[11:13] for alert in group] == ["10", "10"], "as it was first told"


@pytest.mark.parametrize(
    ("columns", "labels"),
    [
        ({"alert": "PrefixcachePeakHitDrop"}, {"basis": "log", "model": "m"}),
        (
            {"alert": "PrefixscopeMetricMissing", "model": None, "subject": "a b hits"},
            {"target": "a b", "metric": "hits"},
        ),
        (
            {"alert": "PrefixcacheOffloadNotPaying", "subject": "disk"},
            {"tier": "disk", "model": "m"},
        ),
        ({"alert": "PrefixcacheResetStorm", "subject": None, "model": ""}, {}),
    ],
)
def test_labels_are_those_of_the_rules(columns: dict[str, object], labels: dict[str, str]) -> None:
    [alert] = firing([drop(**columns)], "")
    assert alert.labels == {"alertname": columns["alert"], "severity": "ticket", **labels}
    assert alert.annotations["runbook_url"] == "docs/runbooks/PrefixcacheHitDrop.md"


def test_pending_alerts_are_not_told() -> None:
    assert firing([drop(state="pending"), drop(state="inactive")], "") == []


def test_what_was_refused_is_told_again(tmp_path: Path, webhook: Server) -> None:
    state = tmp_path / "told.json"
    now = firing([drop(), drop(alert="PrefixcacheResetStorm", subject=None)], "")
    hook = f"{webhook.url}/hook"
    webhook.answers["POST /hook"] = Answer("busy", 503)
    with pytest.raises(
        PrefixscopeError, match=r"did not take PrefixcacheHitDrop \(it answered 503"
    ):
        tell(hook, state, now, NOW, "")
    with pytest.raises(PrefixscopeError) as refused:
        tell("http://127.0.0.1:9/hook/secret?token=secret", state, now, NOW, "")
    assert "secret" not in str(refused.value)
    webhook.answers["POST /hook"] = Answer("ok")
    assert tell(hook, state, now, NOW, "") == 2
    assert tell(hook, state, now, NOW, "") == 0


def test_a_damaged_file_says_what_to_do(tmp_path: Path) -> None:
    state = tmp_path / "told.json"
    state.write_text('[{"labels": {}}]')
    with pytest.raises(PrefixscopeError, match="remove it, and what fires is told once more"):
        Told.load(state)


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    told = Told({}).after(firing([drop(), drop(model='a "quoted" ☂')], ""))
    told.save(tmp_path / "told.json")
    assert Told.load(tmp_path / "told.json") == told
    assert all(isinstance(alert, Alert) for alert in told.alerts.values())
