"""From a request row to the pager: the shipped configuration in a real Prometheus and Alertmanager.

Four weeks of one template at 80 % are loaded, then an hour in which its new version reaches 10 %
and keeps people waiting. The exporter judges, Prometheus evaluates, Alertmanager tells a webhook;
then the ratio recovers and it is told that too. Beside it an engine never answers, a ticket. The
exporter judges every second here, else on the minute; minutes of rules and grouping are seconds
(see monitoring.py).
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import requests

from exporter import drops
from exporter.server_settings import ServerSettings
from exporter.sources.scrape import ScrapeSettings
from exporter.sources.target_settings import StaticTarget, TargetSettings
from prefixscope.serve import running as serving
from prefixscope.settings import Settings, StoreSection
from tests.loopback_answers import Answer, Server, answering
from tests.unit_alerts import monitoring

pytestmark = pytest.mark.skipif(
    None in (monitoring.PROMETHEUS, monitoring.ALERTMANAGER), reason=monitoring.MISSING
)

TOKEN = "token-of-this-test"
DEADLINE_SECONDS = 180
PAGE, TICKET = "PrefixcachePeakHitDrop", "PrefixcacheHitDrop"
DOWN = "PrefixscopeTargetDown"
HISTORY_RATIOS = (0.81, 0.79, 0.80, 0.80)  # one to four weeks before


class Lab:
    """The exporter, the two servers behind it, and what the webhooks were told."""

    def __init__(self, exporter: str, prometheus: str, alertmanager: str, hook: Server) -> None:
        self.exporter, self.prometheus, self.alertmanager = exporter, prometheus, alertmanager
        self.hook = hook
        self._rows = 0

    def post(self, until: datetime, count: int, ratio: float, ttft: float, version: str) -> None:
        """`count` requests of 2,500 tokens over the hour before `until`, as a file of rows."""
        lines = []
        for place in range(count):
            moment = until - timedelta(seconds=3600 * (place + 0.5) / count)
            self._rows += 1
            lines.append(json.dumps({
                "ts": moment.isoformat(), "request_id": f"r{self._rows}", "model": "m",
                "template": "checkout", "template_version": version, "stream": True,
                "prompt_tokens": 2500, "cached_tokens": round(2500 * ratio), "ttft_seconds": ttft,
            }))  # fmt: skip
        reply = requests.post(
            f"{self.exporter}/v1/requests?source=gateway&format=ndjson&input=file",
            data="\n".join(lines).encode() + b"\n",
            headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60,
        )  # fmt: skip
        assert reply.ok, reply.text
        assert reply.json()["accepted"] == count

    def told(self, receiver: str, alert: str, status: str) -> list[dict[str, Any]]:
        """Alerts of that name and state in everything that a webhook was sent."""
        sent = [json.loads(body) for body in list(self.hook.bodies)]
        return [
            one
            for message in sent
            if message["receiver"] == receiver
            for one in message["alerts"]
            if (one["labels"]["alertname"], one["status"]) == (alert, status)
        ]

    def value(self, expression: str) -> list[dict[str, Any]]:
        """The present samples of an expression, as the Prometheus has them."""
        reply = requests.get(
            f"{self.prometheus}/api/v1/query", params={"query": expression}, timeout=30
        )
        found: list[dict[str, Any]] = reply.json()["data"]["result"]
        return found

    def alerts(self, name: str) -> list[dict[str, Any]]:
        """Alerts of that name which Alertmanager knows."""
        reply = requests.get(f"{self.alertmanager}/api/v2/alerts", timeout=30)
        return [one for one in reply.json() if one["labels"]["alertname"] == name]

    def state(self) -> str:
        """For a failure: what each of them has."""
        judged = {name: self.value(f"prefixcache_peak_hit_drop_{name}")
                  for name in ("ratio", "severity", "info")}  # fmt: skip
        firing = self.value('ALERTS{alertname=~"Prefix.+"}')
        return json.dumps([judged, firing, self.alerts(PAGE), self.hook.asked], indent=1)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("alert")
    ours, theirs = folder / "prometheus", folder / "alertmanager"
    for made in (ours, theirs):
        made.mkdir()
    settings = Settings(
        store=StoreSection(directory=folder / "store"),
        server=ServerSettings(listen="127.0.0.1:0", token=TOKEN),
        scrape=ScrapeSettings(
            targets=TargetSettings(static=[StaticTarget(url=monitoring.loopback(), name="gone")]),
            interval_seconds=1,
        ),
    )
    at, beside = monitoring.loopback(), monitoring.loopback()
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(drops, "_seconds_to_next_minute", lambda _: 1.0)
        hook = stack.enter_context(
            answering({"POST /page": Answer("{}"), "POST /ticket": Answer("{}")})
        )
        exporter = stack.enter_context(serving(settings))
        receivers = {name: f"{hook.url}/{name}" for name in ("page", "ticket")}
        config = monitoring.write_alertmanager(theirs, receivers)
        alertmanager = stack.enter_context(monitoring.alertmanager(theirs, config, beside))
        config = monitoring.write_prometheus(
            ours,
            {"exporter:9465": exporter.url.removeprefix("http://"), "alertmanager:9093": beside,
             "localhost:9090": at},
            {"/run/secrets/prefixscope_token": TOKEN},
        )  # fmt: skip
        prometheus = stack.enter_context(monitoring.prometheus(ours, config, at))
        yield Lab(exporter.url, prometheus, alertmanager, hook)


def eventually(lab: Lab, what: str, ready: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE_SECONDS
    while not ready():
        if time.monotonic() > end:
            pytest.fail(f"no {what} within {DEADLINE_SECONDS} s; there is {lab.state()}")
        time.sleep(0.2)


def test_a_drop_is_told_to_the_pager_and_so_is_its_end(lab: Lab) -> None:
    now = datetime.now(UTC)
    for week, ratio in enumerate(HISTORY_RATIOS, 1):
        lab.post(now - timedelta(weeks=week) + timedelta(minutes=10), 70, ratio, 0.2, "v7")
    lab.post(now, 30, 0.8, 0.2, "v7")
    eventually(lab, "scraped judgement", lambda: lab.value("prefixcache_peak_hit_drop_ratio"))
    assert lab.value("prefixcache_peak_hit_drop_severity") == []
    assert lab.told("page", PAGE, "firing") == []

    lab.post(now, 40, 0.1, 0.9, "v8")
    eventually(lab, "page at the webhook", lambda: lab.told("page", PAGE, "firing"))
    page = lab.told("page", PAGE, "firing")[0]
    assert (page["labels"]["severity"], page["labels"]["model"]) == ("page", "m")
    assert "template version or layout" in page["annotations"]["description"]
    for link, shown in (("dashboard_url", "checkout"), ("runbook_url", f"# {PAGE}")):
        opened = requests.get(page["annotations"][link], auth=("on call", TOKEN), timeout=60)
        assert (opened.status_code, shown in opened.text) == (200, True), page["annotations"]
    # The ticket of the same drop fires as well, and is held back by the page.
    eventually(lab, "ticket in Alertmanager", lambda: lab.alerts(TICKET))
    eventually(
        lab, "inhibited ticket", lambda: all(a["status"]["inhibitedBy"] for a in lab.alerts(TICKET))
    )
    assert lab.told("ticket", TICKET, "firing") == []
    eventually(lab, "ticket of the engine", lambda: lab.told("ticket", DOWN, "firing"))
    down = lab.told("ticket", DOWN, "firing")
    assert {(one["labels"]["target"], one["labels"]["replica"]) for one in down} == {("gone",) * 2}

    lab.post(now, 400, 0.9, 0.2, "v9")
    eventually(lab, "end of the page at the webhook", lambda: lab.told("page", PAGE, "resolved"))
