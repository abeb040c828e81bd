"""Tells a webhook what fires and what is over, as Alertmanager does (its version "4" body).

What was told is kept in a small file, so that a run of cron tells only what is new: alerts that
began, and alerts that are over. An alert is known by its labels. Class and figures are no labels: a
drop that changes its class is the same alert, and is not told again.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode, urlsplit

import requests

from exporter.errors import PrefixscopeError

Row = Mapping[str, object]
Status = Literal["firing", "resolved"]

POST_TIMEOUT_SECONDS = (3.0, 10.0)  # to connect, to answer
STILL_ON = "0001-01-01T00:00:00Z"  # how Alertmanager writes an end that is not there yet
_NAMED = ("model", "route", "template", "tenant", "replica")
# What `subject` is, for alerts whose series have one more label in Prometheus.
_SUBJECTS = {
    "PrefixcachePeakHitDrop": "basis",
    "PrefixcacheHitDrop": "basis",
    "PrefixcacheOffloadNotPaying": "tier",
    "PrefixcacheStaleReuse": "reason",
    "PrefixcacheStaleReuseLikely": "reason",
    "PrefixscopeTargetDown": "target",
    "PrefixscopeRejecting": "source",
    "PrefixscopeLabelsFolded": "label",
}


@dataclass(frozen=True)
class Alert:
    """One alert that fires, or fired and is over. Times are ISO, UTC."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at: str
    ends_at: str = STILL_ON

    @property
    def name(self) -> str:
        """The alert's name."""
        return self.labels["alertname"]

    @property
    def fingerprint(self) -> str:
        """Names the labels; the same in every run."""
        text = json.dumps(sorted(self.labels.items()), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def status(self) -> Status:
        """Whether it is over."""
        return "firing" if self.ends_at == STILL_ON else "resolved"

    def body(self) -> dict[str, object]:
        """As Alertmanager writes it."""
        return {
            "status": self.status,
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            "startsAt": self.starts_at,
            "endsAt": self.ends_at,
            "generatorURL": self.annotations.get("dashboard_url", ""),
            "fingerprint": self.fingerprint,
        }


def firing(rows: Iterable[Row], external_url: str) -> list[Alert]:
    """The alerts that fire, from rows of the question `alerts`. Without an address of the exporter
    the runbook is a path in the project."""
    base = external_url.rstrip("/") + "/" if external_url else ""
    return [_alert(row, base) for row in rows if row["state"] == "firing"]


def _alert(row: Row, base: str) -> Alert:
    labels = {"alertname": str(row["alert"]), "severity": str(row["severity"])}
    # A name that was not given is an empty label, which Prometheus leaves out.
    labels |= {name: str(row[name]) for name in _NAMED if row[name]}
    labels |= _subject(str(row["alert"]), row["subject"])
    annotations = {
        "summary": str(row["summary"]),
        "description": str(row["description"]),
        "runbook_url": f"{base}{row['runbook']}",
    }
    if base:
        place = urlencode({name: labels[name] for name in _NAMED if name in labels})
        annotations["dashboard_url"] = f"{base}now" + (f"?{place}" if place else "")
    return Alert(labels, annotations, str(row["since"]))


def _subject(alert: str, subject: object) -> dict[str, str]:
    if not subject:
        return {}
    if alert == "PrefixscopeMetricMissing":
        target, _, metric = str(subject).rpartition(" ")
        return {"target": target, "metric": metric}
    return {_SUBJECTS[alert]: str(subject)}


@dataclass(frozen=True)
class Told:
    """What the webhook took last: the alerts that fired then, by fingerprint."""

    alerts: Mapping[str, Alert]

    @classmethod
    def load(cls, file: Path) -> "Told":
        """From its file; nothing was told where there is none."""
        try:
            kept = json.loads(file.read_text(encoding="utf-8"))
            alerts = [Alert(one["labels"], one["annotations"], one["startsAt"]) for one in kept]
        except FileNotFoundError:
            return cls({})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PrefixscopeError(
                f"{file} does not hold what alerts were told: remove it, and what fires is told "
                "once more"
            ) from error
        return cls({alert.fingerprint: alert for alert in alerts})

    def save(self, file: Path) -> None:
        """Whole or not at all."""
        text = json.dumps([alert.body() for alert in self.alerts.values()], indent=1)
        beside = file.with_name(f"{file.name}.{os.getpid()}")
        try:
            beside.write_text(text + "\n", encoding="utf-8")
            beside.replace(file)
        except OSError as error:
            raise PrefixscopeError(
                f"cannot keep in {file} what was told: {error.strerror or error}; name another "
                "file with --state"
            ) from error

    def news(self, now: Iterable[Alert], moment: datetime) -> dict[str, list[Alert]]:
        """By name of the alert the groups with something new: all that fire, each since when it
        was first told, and those that are over. Groups without news are left out."""
        current = {alert.fingerprint: self._since_told(alert) for alert in now}
        ends = moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
        over = [
            replace(alert, ends_at=ends)
            for mark, alert in self.alerts.items()
            if mark not in current
        ]
        begun = [alert for mark, alert in current.items() if mark not in self.alerts]
        changed = sorted({alert.name for alert in (*begun, *over)})
        everything = [*current.values(), *over]
        return {name: [alert for alert in everything if alert.name == name] for name in changed}

    def _since_told(self, alert: Alert) -> Alert:
        before = self.alerts.get(alert.fingerprint)
        return alert if before is None else replace(alert, starts_at=before.starts_at)

    def after(self, group: Iterable[Alert]) -> "Told":
        """What is told once the webhook took this group."""
        alerts = dict(self.alerts)
        for alert in group:
            if alert.status == "firing":
                alerts[alert.fingerprint] = alert
            else:
                del alerts[alert.fingerprint]
        return Told(alerts)


def body(name: str, alerts: list[Alert], external_url: str) -> dict[str, object]:
    """One group as Alertmanager posts it."""
    status: Status = "firing" if any(a.status == "firing" for a in alerts) else "resolved"
    return {
        "version": "4",
        "groupKey": f'{{}}:{{alertname="{name}"}}',
        "truncatedAlerts": 0,
        "status": status,
        "receiver": "prefixscope",
        "groupLabels": {"alertname": name},
        "commonLabels": _common([alert.labels for alert in alerts]),
        "commonAnnotations": _common([alert.annotations for alert in alerts]),
        "externalURL": external_url,
        "alerts": [alert.body() for alert in alerts],
    }


def _common(all_pairs: list[Mapping[str, str]]) -> dict[str, str]:
    """What all have alike."""
    return dict(set.intersection(*(set(pairs.items()) for pairs in all_pairs)))


def tell(webhook: str, file: Path, now: Iterable[Alert], moment: datetime, link: str) -> int:
    """Post what is new and keep what was taken; returns how many groups that were.

    A group that was not taken is told again by the next run; the error comes after the others.
    """
    told = Told.load(file)
    groups = told.news(now, moment)
    refused: list[str] = []
    for name, alerts in groups.items():
        problem = _post(webhook, body(name, alerts, link))
        if problem:
            refused.append(f"{name} ({problem})")
            continue
        told = told.after(alerts)
        told.save(file)
    if refused:
        raise PrefixscopeError(
            f"the webhook at {_shown(webhook)} did not take {', '.join(refused)}: the next run "
            "tells it again"
        )
    return len(groups)


def _post(webhook: str, content: Mapping[str, object]) -> str:
    """Why it was not taken, '' if it was. A redirect is no taking: it would become a GET."""
    try:
        response = requests.post(
            webhook, json=content, timeout=POST_TIMEOUT_SECONDS, allow_redirects=False
        )
    except requests.RequestException as error:
        return type(error).__name__
    return "" if response.status_code // 100 == 2 else f"it answered {response.status_code}"


def _shown(webhook: str) -> str:
    """Its host alone: paths and queries of webhooks are secrets."""
    return urlsplit(webhook).hostname or "that address"
