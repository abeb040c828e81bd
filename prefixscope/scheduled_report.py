"""The report of each ended week: made once, told to a webhook once, made up after downtime.

What was done is in the store: the newest week whose files are written and the newest one the
webhook took. Files are written first, so that whatever ends the process in between, the next start
goes on where it stopped. Only a webhook that took a summary and whose answer got lost hears it
twice.
"""

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import duckdb
import pyarrow as pa
import requests

from dashboard.report import FORMATS, Week, WeekReport, build, last_full_week, render, summary
from exporter.store.store import Store
from prefixscope.report_settings import ReportSettings, Weekday
from queries import registry

_log = logging.getLogger(__name__)

TICK_SECONDS = 30.0
# After a longer downtime only these weeks are made up: a report is read for what is new.
MOST_MADE_UP = 8
FIRST_RETRY, LAST_RETRY = timedelta(minutes=1), timedelta(hours=1)
POST_TIMEOUT_SECONDS = (3.0, 10.0)  # to connect, to answer
FILE_NAME = "cache-report-{week}.{format}"
_DAYS = get_args(Weekday)


class Stopped(Exception):
    """The exporter is being stopped."""


class NothingYet(Exception):
    """A week is due, and the store holds nothing from before its end."""


class StoreAnswers:
    """Asks the store of this process. `stop` ends the question in hand, and all further ones."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asking: duckdb.DuckDBPyConnection | None = None
        self._stopped = False

    def ask(self, name: str, params: Mapping[str, object]) -> pa.Table:
        """The answer to one question, on a cursor of its own."""
        self._asking = self._store.cursor()
        try:
            if self._stopped:
                raise Stopped
            return registry.run(self._asking, name, params)
        except duckdb.InterruptException:
            raise Stopped from None
        finally:
            asked, self._asking = self._asking, None
            asked.close()

    def stop(self) -> None:
        """From another thread."""
        self._stopped = True
        asking = self._asking
        if asking is not None:
            asking.interrupt()


@dataclass
class Attempts:
    """Tries again after one minute, then two, four… up to an hour."""

    problem: str = ""
    _failures: int = 0
    _not_before: datetime | None = None

    def may(self, now: datetime) -> bool:
        """Whether it is time to try."""
        return self._not_before is None or now >= self._not_before

    def failed(self, now: datetime, problem: str) -> None:
        """Once more; `problem` is for people and holds no secret."""
        pause = min(LAST_RETRY, FIRST_RETRY * 2**self._failures)
        self._failures = min(self._failures + 1, 16)
        self._not_before = now + pause
        self.problem = f"{problem}; again at {self._not_before:%Y-%m-%d %H:%M} UTC"
        _log.error("%s", self.problem)

    def rest(self, now: datetime) -> None:
        """Nothing is wrong; look again after the longest pause."""
        self.passed()
        self._not_before = now + LAST_RETRY

    def passed(self) -> None:
        """Nothing is wrong any more."""
        self.problem, self._failures, self._not_before = "", 0, None


class ReportSchedule:
    """What is due at a moment, and the doing of it. Used by one thread at a time."""

    def __init__(self, store: Store, answers: StoreAnswers, settings: ReportSettings) -> None:
        assert settings.folder is not None, "without a folder there is no schedule"
        self._folder: Path = settings.folder
        self._settings = settings
        self._marks = Marks(store)
        self._answers = answers
        self._summaries: dict[Week, str] = {}
        self._making, self._posting = Attempts(), Attempts()

    @property
    def problems(self) -> list[str]:
        """What does not work at present, in words."""
        return [each.problem for each in (self._making, self._posting) if each.problem]

    def run(self, now: datetime) -> None:
        """Make what is due and not made, post what is made and not posted."""
        if self._making.may(now):
            self._attempt(self._making, now, "cannot be made", lambda: self._make_due(now))
        if self._posting.may(now):
            self._attempt(self._posting, now, "cannot be posted", self._post_due)

    def _attempt(
        self, attempts: Attempts, now: datetime, what: str, step: Callable[[], None]
    ) -> None:
        try:
            step()
        except Stopped:
            return
        except NothingYet:
            attempts.rest(now)
        except WebhookRefused as error:
            attempts.failed(now, f"the weekly report {what}: {error}")
        except Exception as error:  # noqa: BLE001 - a report must not end what runs beside it
            _log.exception("the weekly report %s", what)
            attempts.failed(now, f"the weekly report {what} ({type(error).__name__}, see the log)")
        else:
            attempts.passed()

    def _make_due(self, now: datetime) -> None:
        for week in self._due(now):
            report = build(self._answers, week)
            self._write(week, report)
            self._marks.made(week, posted=self._settings.webhook is None)
            self._summaries = {week: summary(report)}
            _log.info("the report of %s is in %s", week.name, self._folder)
            self._forget(week)

    def _due(self, now: datetime) -> list[Week]:
        """Weeks that are over and not made, oldest first. The first time only the latest: what was
        before the schedule was not missed. Weeks before the first fact have no report."""
        zone = self._settings.zone
        newest = last_full_week(now, zone)
        if now < due_at(newest, self._settings):
            newest = newest.back(1)
        made = self._marks.newest_made(zone)
        missed = 1 if made is None else (newest.monday - made.monday).days // 7
        if missed <= 0:
            return []
        weeks = [newest.back(back) for back in reversed(range(min(missed, MOST_MADE_UP)))]
        first = self._first_fact()
        if first is None or first >= newest.until:
            raise NothingYet
        return [week for week in weeks if first < week.until]

    def _first_fact(self) -> datetime | None:
        [state] = self._answers.ask("store_state", {}).to_pylist()
        moments = [state[column] for column in ("first_ts", "engine_first_ts") if state[column]]
        return min(moments).replace(tzinfo=UTC) if moments else None

    def _write(self, week: Week, report: WeekReport) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for name in self._settings.formats:
            write_whole(self._folder / file_name(week, name), render(report, name))

    def _forget(self, newest: Week) -> None:
        """Reports of weeks beyond those to keep, whatever their format; no other files."""
        if self._settings.keep is None:
            return
        oldest = newest.back(self._settings.keep - 1).name
        for name in FORMATS:
            for file in self._folder.glob(FILE_NAME.format(week="[0-9]*-W[0-9]*", format=name)):
                if file.stem.removeprefix("cache-report-") < oldest:
                    file.unlink()

    def _post_due(self) -> None:
        webhook = self._settings.webhook
        if webhook is None:
            return
        for week in self._marks.unposted(self._settings.zone):
            text = self._summaries.get(week) or summary(build(self._answers, week))
            self._summaries[week] = text
            files = [file_name(week, name) for name in self._settings.formats]
            post(webhook.get_secret_value(), {"text": text, "week": week.name, "files": files})
            self._marks.posted(week)


class Marks:
    """How far the schedule has come, as the store remembers it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def newest_made(self, zone: str) -> Week | None:
        """The newest week whose files are written."""
        return self._get("report_made", zone)

    def made(self, week: Week, *, posted: bool) -> None:
        """Its files are written; `posted` = nobody is to be told."""
        if posted:
            self.posted(week)
        elif self._get("report_posted", week.zone) is None:
            self.posted(week.back(1))  # the first one made is the first one told
        self._store.set_meta("report_made", week.name)

    def posted(self, week: Week) -> None:
        """The webhook took it."""
        self._store.set_meta("report_posted", week.name)

    def unposted(self, zone: str) -> list[Week]:
        """Weeks made and not posted, oldest first."""
        made, posted = self.newest_made(zone), self._get("report_posted", zone)
        if made is None or posted is None:
            return []
        count = max(0, (made.monday - posted.monday).days // 7)
        return [made.back(back) for back in reversed(range(min(count, MOST_MADE_UP)))]

    def _get(self, key: str, zone: str) -> Week | None:
        cursor = self._store.cursor()
        try:
            row = cursor.execute("SELECT value FROM meta WHERE key = ?", [key]).fetchone()
        finally:
            cursor.close()
        return None if row is None else Week.parse(row[0], zone)


class WebhookRefused(Exception):
    """The webhook did not take a summary; the message names no address."""


def post(webhook: str, message: Mapping[str, object]) -> None:
    """Post a message; anything but a 2xx is WebhookRefused, redirects too."""
    try:
        answer = requests.post(
            webhook, json=message, timeout=POST_TIMEOUT_SECONDS, allow_redirects=False
        )
    except (requests.RequestException, ValueError) as error:
        # Its own text holds the address, which is a secret.
        raise WebhookRefused(f"the webhook gives {type(error).__name__}") from None
    if not 200 <= answer.status_code < 300:
        raise WebhookRefused(f"the webhook answers {answer.status_code}")


def due_at(week: Week, settings: ReportSettings) -> datetime:
    """When the report of a week is to be made, in UTC."""
    day = week.monday + timedelta(days=7 + _DAYS.index(settings.weekday))
    return (
        week.local(week.until)
        .replace(
            year=day.year, month=day.month, day=day.day, hour=settings.hour, minute=0, second=0
        )
        .astimezone(UTC)
    )


def file_name(week: Week, name: str) -> str:
    """The file of a week's report in a format."""
    return FILE_NAME.format(week=week.name, format=name)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that whoever looks sees the old one or the new one, never half of it."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


class ReportWorker:
    """Runs the schedule in the background until stopped."""

    def __init__(self, store: Store, settings: ReportSettings) -> None:
        self._answers = StoreAnswers(store)
        self._schedule = ReportSchedule(store, self._answers, settings)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="report", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; a report in hand is left and made at the next start."""
        self._stopped.set()
        self._answers.stop()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether it is running."""
        return self._thread.is_alive()

    @property
    def problems(self) -> list[str]:
        """What does not work at present, in words."""
        return self._schedule.problems

    def _run(self) -> None:
        while not self._stopped.wait(TICK_SECONDS):
            self._schedule.run(datetime.now(UTC))
