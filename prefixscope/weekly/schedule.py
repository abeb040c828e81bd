"""The report of each ended week: made once, told to a webhook once, made up after downtime.

What is left to do is in the store. A week's files are written before anybody is told of it, so that
whatever ends the process in between, the next start goes on where it stopped. Only a webhook that
took a summary and whose answer got lost hears it twice. A week that fails keeps no other waiting.
"""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import get_args

import duckdb
import pyarrow as pa

from dashboard.report import FORMATS, Week, WeekReport, build, last_full_week, render, summary
from exporter.background import Background
from exporter.store.store import Store
from prefixscope.weekly import progress as report_progress
from prefixscope.weekly.progress import Progress
from prefixscope.weekly.settings import ReportSettings, Weekday
from prefixscope.weekly.webhook import WebhookFailed, WebhookRefused, chat_text, post
from queries import registry

_log = logging.getLogger(__name__)

TICK_SECONDS = 30.0
# After a longer downtime only these weeks are made up: a report is read for what is new.
MOST_MADE_UP = 8
FIRST_RETRY, LAST_RETRY = timedelta(minutes=1), timedelta(hours=1)
FILE_NAME = "cache-report-{week}.{format}"
_PLANNED = "weekly reports cannot be planned"
_MADE, _POSTED = "the report of {} cannot be made", "the report of {} cannot be posted"
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
        self._store = store
        self._answers = answers
        self._summaries: dict[Week, str] = {}
        self._attempts: dict[str, Attempts] = {}

    @property
    def problems(self) -> list[str]:
        """What does not work at present, in words."""
        return [each.problem for each in list(self._attempts.values()) if each.problem]

    def run(self, now: datetime) -> None:
        """Make what is due and not made, post what is made and not posted."""
        try:
            self._attempt(_PLANNED, now, partial(self._plan, now))
            for week in self._progress().to_make:
                self._attempt(_MADE.format(week.name), now, partial(self._make, week))
            for week in self._progress().to_post:
                self._attempt(_POSTED.format(week.name), now, partial(self._post, week))
        except Stopped:
            return

    def _attempt(self, name: str, now: datetime, step: Callable[[], None]) -> None:
        attempts = self._attempts.setdefault(name, Attempts())
        if not attempts.may(now):
            return
        try:
            step()
        except NothingYet:
            attempts.rest(now)
        except WebhookFailed as error:
            attempts.failed(now, f"{name}: {error}")
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001 - a report must not end what runs beside it
            _log.exception("%s", name)
            attempts.failed(now, f"{name} ({type(error).__name__}, see the log)")
        else:
            self._attempts.pop(name, None)

    def _progress(self) -> Progress:
        return report_progress.load(self._store, self._settings.zone)

    def _keep(self, progress: Progress) -> None:
        """Remember it; of what fails for months only the newest weeks are tried on."""
        kept = progress.bounded(MOST_MADE_UP)
        report_progress.save(self._store, kept)
        for names, before, after in (
            (_MADE, progress.to_make, kept.to_make), (_POSTED, progress.to_post, kept.to_post)
        ):  # fmt: skip
            for week in before[: len(before) - len(after)]:
                _log.error("%s; it is given up", names.format(week.name))
                self._attempts.pop(names.format(week.name), None)

    def _plan(self, now: datetime) -> None:
        """Put weeks that are over on the list. The first time only the latest: what was before the
        schedule was not missed. Weeks before the first fact have no report."""
        newest = last_full_week(now, self._settings.zone)
        if now < due_at(newest, self._settings):
            newest = newest.back(1)
        progress = self._progress()
        last = progress.newest
        missed = 1 if last is None else (newest.monday - last.monday).days // 7
        if missed <= 0:
            return
        first = self._first_fact()
        if first is None or first >= newest.until:
            raise NothingYet
        weeks = (newest.back(back) for back in range(min(missed, MOST_MADE_UP)))
        due = [week for week in weeks if first < week.until]
        self._keep(progress.due(due, newest))

    def _first_fact(self) -> datetime | None:
        [state] = self._answers.ask("store_state", {}).to_pylist()
        moments = [state[column] for column in ("first_ts", "engine_first_ts") if state[column]]
        return min(moments).replace(tzinfo=UTC) if moments else None

    def _make(self, week: Week) -> None:
        report = build(self._answers, week)
        self._write(week, report)
        tell = self._settings.webhook is not None
        if tell:
            self._summaries[week] = summary(report)
        self._keep(self._progress().made(week, tell=tell))
        _log.info("the report of %s is in %s", week.name, self._folder)
        self._forget()

    def _write(self, week: Week, report: WeekReport) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for name in self._settings.formats:
            write_whole(self._folder / file_name(week, name), render(report, name))

    def _forget(self) -> None:
        """Reports of weeks beyond those to keep, whatever their format; no other files."""
        newest = self._progress().newest
        if self._settings.keep is None or newest is None:
            return
        oldest = newest.back(self._settings.keep - 1).name
        for name in FORMATS:
            for file in self._folder.glob(FILE_NAME.format(week="[0-9]*-W[0-9]*", format=name)):
                if file.stem.removeprefix("cache-report-") < oldest:
                    file.unlink()

    def _post(self, week: Week) -> None:
        """Tell the webhook; where there is none any more, or it refuses, the week is done with."""
        webhook = self._settings.webhook
        if webhook is not None:
            text = self._summaries.get(week) or summary(build(self._answers, week))
            self._summaries[week] = text
            files = [file_name(week, name) for name in self._settings.formats]
            message = {"text": chat_text(text), "week": week.name, "files": files}
            try:
                post(webhook.get_secret_value(), message)
            except WebhookRefused as error:
                _log.error("the report of %s is not posted: %s", week.name, error)
        self._keep(self._progress().posted(week))
        self._summaries.pop(week, None)


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


class ReportWorker(Background):
    """Runs the schedule in the background until stopped."""

    def __init__(self, store: Store, settings: ReportSettings) -> None:
        super().__init__("report")
        self._answers = StoreAnswers(store)
        self._schedule = ReportSchedule(store, self._answers, settings)

    def stop(self) -> None:
        """End; a report in hand is left and made at the next start."""
        self._stopped.set()
        self._answers.stop()
        super().stop()

    @property
    def problems(self) -> list[str]:
        """What does not work at present, in words."""
        return self._schedule.problems

    def _run(self) -> None:
        while not self._stopped.wait(TICK_SECONDS):
            self._schedule.run(datetime.now(UTC))
