"""The schedule of reports: when, which weeks, each once, whatever fails in between.

Time is given and nothing waits. 30 November 2026 is a Monday: 2026-W48 ends with it in UTC. What is
in a report is tested elsewhere; here it is its week.
"""

import json
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import duckdb
import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient

from dashboard.report import Week
from exporter.server import Services, build_app
from exporter.server_settings import ServerSettings
from exporter.store.store import Store
from prefixscope.weekly import schedule as scheduled_report
from prefixscope.weekly.schedule import ReportSchedule, ReportWorker, StoreAnswers, due_at
from prefixscope.weekly.settings import ReportSettings
from prefixscope.weekly.webhook import chat_text
from tests.loopback_answers import Answer, Server, answering

HOOK = "POST /hook-of-a-secret-name"
DUE = datetime(2026, 11, 30, 6, tzinfo=UTC)
WEEK = timedelta(days=7)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store.open(tmp_path_factory.mktemp("store"))
    yield store
    store.close()


@pytest.fixture
def store(opened: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with one fact, long ago, and no memory of reports."""
    with opened.write() as cursor:
        cursor.execute("DELETE FROM meta WHERE key = 'scheduled_reports'")
        cursor.execute("DELETE FROM engine_samples")
    put_fact(opened, DUE - 20 * WEEK)
    monkeypatch.setattr(scheduled_report, "build", lambda _answers, week: week)
    monkeypatch.setattr(
        scheduled_report, "render", lambda week, name: f"{week.name} {name}".encode()
    )
    monkeypatch.setattr(scheduled_report, "summary", lambda week: f"summary of {week.name}")
    return opened


@pytest.fixture
def hook() -> Iterator[Server]:
    with answering({HOOK: Answer("")}) as server:
        yield server


def put_fact(store: Store, ts: datetime) -> None:
    with store.write() as cursor:
        cursor.execute(
            "INSERT INTO engine_samples BY NAME SELECT 'r' AS target, 'r' AS replica,"
            " 'vllm' AS engine, 'unified' AS role, false AS reset, false AS gap, ? AS ts",
            [ts.replace(tzinfo=None)],
        )


def schedule(store: Store, folder: Path, **settings: object) -> ReportSchedule:
    """As a process that has just started has it."""
    return ReportSchedule(store, StoreAnswers(store), ReportSettings(folder=folder, **settings))


def posted(hook: Server) -> list[str]:
    return [json.loads(body)["week"] for body in hook.bodies]


def webhook(hook: Server) -> str:
    return f"{hook.url}{HOOK.removeprefix('POST ')}"


def weeks_in(folder: Path) -> list[str]:
    return sorted(file.stem.removeprefix("cache-report-") for file in folder.iterdir())


def test_made_at_its_hour_once_and_whole(store: Store, tmp_path: Path) -> None:
    made = schedule(store, tmp_path / "new", formats=["html", "md"])
    made.run(DUE - timedelta(seconds=1))
    assert weeks_in(tmp_path / "new") == ["2026-W47", "2026-W47"]  # the latest that was due
    made.run(DUE)
    file = tmp_path / "new" / "cache-report-2026-W48.html"
    assert file.read_bytes() == b"2026-W48 html"
    assert file.with_suffix(".md").read_bytes() == b"2026-W48 md"
    assert [f.name for f in file.parent.iterdir() if f.name.startswith(".")] == []
    file.unlink()
    schedule(store, tmp_path / "new").run(DUE + timedelta(days=6))
    assert not file.exists()  # somebody removed it: that is no reason to make it again


def test_t78_due_by_the_clocks_of_its_zone() -> None:
    """Kolkata is 5:30 ahead. New York went back on 1 November: from UTC-4 to UTC-5."""
    settings = ReportSettings(weekday="tuesday", hour=7)
    due = {
        zone: due_at(Week.parse("2026-W44", zone), settings)
        for zone in ("UTC", "Asia/Kolkata", "America/New_York")
    }
    assert due == {
        "UTC": datetime(2026, 11, 3, 7, tzinfo=UTC),
        "Asia/Kolkata": datetime(2026, 11, 3, 1, 30, tzinfo=UTC),
        "America/New_York": datetime(2026, 11, 3, 12, tzinfo=UTC),
    }


def test_runs_missed_are_made_up_in_order_and_bounded(
    store: Store, tmp_path: Path, hook: Server
) -> None:
    schedule(store, tmp_path, webhook=webhook(hook)).run(DUE)
    schedule(store, tmp_path, webhook=webhook(hook)).run(DUE + 3 * WEEK)
    assert weeks_in(tmp_path) == ["2026-W48", "2026-W49", "2026-W50", "2026-W51"]
    assert posted(hook) == weeks_in(tmp_path)
    schedule(store, tmp_path, webhook=webhook(hook)).run(DUE + 23 * WEEK)
    late = [f"2027-W{number:02}" for number in range(11, 19)]  # the last eight of twenty
    assert weeks_in(tmp_path)[4:] == late
    assert posted(hook)[4:] == late


def test_the_first_run_makes_no_past(store: Store, tmp_path: Path) -> None:
    """Weeks before somebody set a schedule were not missed."""
    schedule(store, tmp_path).run(DUE + timedelta(days=2))
    assert weeks_in(tmp_path) == ["2026-W48"]


def test_weeks_before_the_first_fact_have_no_report(store: Store, tmp_path: Path) -> None:
    with store.write() as cursor:
        cursor.execute("DELETE FROM engine_samples")
    made = schedule(store, tmp_path)
    made.run(DUE)
    put_fact(store, DUE)
    made.run(DUE + timedelta(days=1))
    assert (weeks_in(tmp_path), made.problems) == ([], [])
    made.run(DUE + WEEK)
    assert weeks_in(tmp_path) == ["2026-W49"]


def test_a_crash_between_file_and_webhook_is_made_good(
    store: Store, tmp_path: Path, hook: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that ended had written the files, and never came to post."""

    def ends(*_given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(scheduled_report, "post", ends)
        with pytest.raises(KeyboardInterrupt):
            schedule(store, tmp_path, webhook=webhook(hook)).run(DUE)
    assert (weeks_in(tmp_path), posted(hook)) == (["2026-W48"], [])
    schedule(store, tmp_path, webhook=webhook(hook)).run(DUE + timedelta(hours=1))
    assert posted(hook) == ["2026-W48"]
    schedule(store, tmp_path, webhook=webhook(hook)).run(DUE + timedelta(hours=2))
    assert posted(hook) == ["2026-W48"]


def test_a_crash_before_the_last_file_is_made_good(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(_week: Week, name: str) -> bytes:
        if name == "json":
            raise KeyboardInterrupt
        return b"first"

    with monkeypatch.context() as patched:
        patched.setattr(scheduled_report, "render", ends)
        with pytest.raises(KeyboardInterrupt):
            schedule(store, tmp_path, formats=["html", "json"]).run(DUE)
    schedule(store, tmp_path, formats=["html", "json"]).run(DUE)
    assert (tmp_path / "cache-report-2026-W48.html").read_bytes() == b"2026-W48 html"
    assert (tmp_path / "cache-report-2026-W48.json").exists()


def test_the_webhook_hears_the_summary(store: Store, tmp_path: Path, hook: Server) -> None:
    schedule(store, tmp_path, webhook=webhook(hook), formats=["html", "json"]).run(DUE)
    assert json.loads(hook.bodies[0]) == {
        "text": "summary of 2026-W48",
        "week": "2026-W48",
        "files": ["cache-report-2026-W48.html", "cache-report-2026-W48.json"],
    }


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer("", 500), "the webhook answers 500"),
        (Answer("", 302, headers={"Location": "/elsewhere"}), "the webhook answers 302"),
    ],
)
def test_a_failing_webhook_is_tried_again_more_and_more_seldom(
    store: Store, tmp_path: Path, hook: Server, answer: Answer, said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """After 1, 2, 4 minutes; the file is there meanwhile. Its address is in no message."""
    hook.answers[HOOK] = answer
    made = schedule(store, tmp_path, webhook=webhook(hook))
    with caplog.at_level(logging.INFO):
        tried = []
        for minute in range(8):
            made.run(DUE + timedelta(minutes=minute))
            tried.append(len(hook.asked))
    assert tried == [1, 2, 2, 3, 3, 3, 3, 4]
    assert weeks_in(tmp_path) == ["2026-W48"]
    assert made.problems == [
        f"the report of 2026-W48 cannot be posted: {said}; again at 2026-11-30 06:15 UTC"
    ]
    assert said in caplog.text
    assert "secret-name" not in caplog.text + str(made.problems)
    hook.answers[HOOK] = Answer("")
    made.run(DUE + timedelta(minutes=15))
    assert (made.problems, posted(hook)[-1]) == ([], "2026-W48")


def test_it_is_tried_at_least_every_hour(store: Store, tmp_path: Path, hook: Server) -> None:
    hook.answers[HOOK] = Answer("", 500)
    made = schedule(store, tmp_path, webhook=webhook(hook))
    for minute in range(60 * 24):
        made.run(DUE + timedelta(minutes=minute))
    # At 0, 1, 3, 7, 15, 31, 63 minutes, then every hour: 22 more up to 24 h.
    assert len(hook.asked) == 7 + 22


def test_nobody_listening_names_no_address(store: Store, tmp_path: Path) -> None:
    with answering({}) as gone:
        address = webhook(gone)
    made = schedule(store, tmp_path, webhook=address)
    made.run(DUE)
    [problem] = made.problems
    assert problem.startswith("the report of 2026-W48 cannot be posted: the webhook gives Conn")
    assert address not in problem


def test_a_new_week_does_not_wait_for_a_webhook_that_fails(
    store: Store, tmp_path: Path, hook: Server
) -> None:
    hook.answers[HOOK] = Answer("", 500)
    made = schedule(store, tmp_path, webhook=webhook(hook))
    made.run(DUE)
    made.run(DUE + WEEK)
    assert weeks_in(tmp_path) == ["2026-W48", "2026-W49"]
    hook.answers[HOOK] = Answer("")
    hook.bodies.clear()
    made.run(DUE + WEEK + timedelta(hours=1))
    assert posted(hook) == ["2026-W48", "2026-W49"]


def test_a_webhook_set_later_hears_no_past(store: Store, tmp_path: Path, hook: Server) -> None:
    schedule(store, tmp_path).run(DUE)
    made = schedule(store, tmp_path, webhook=webhook(hook))
    made.run(DUE + timedelta(days=1))
    assert posted(hook) == []
    made.run(DUE + WEEK)
    assert posted(hook) == ["2026-W49"]


def test_a_folder_that_cannot_be_written_is_said_and_tried_again(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "in-the-way").write_text("a file")
    made = schedule(store, tmp_path / "in-the-way")
    made.run(DUE)
    [problem] = made.problems
    assert problem.startswith(
        "the report of 2026-W48 cannot be made (FileExistsError, see the log); "
    )
    (tmp_path / "in-the-way").unlink()
    made.run(DUE + timedelta(minutes=1))
    assert (made.problems, weeks_in(tmp_path / "in-the-way")) == ([], ["2026-W48"])


def test_a_broken_report_ends_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_given: object) -> None:
        raise duckdb.OutOfMemoryException("no room")

    monkeypatch.setattr(scheduled_report, "build", breaks)
    made = schedule(store, tmp_path)
    made.run(DUE)
    assert "(OutOfMemoryException, see the log)" in made.problems[0]


def test_a_week_that_cannot_be_built_keeps_no_other_waiting(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried on, and made when it can be."""
    schedule(store, tmp_path).run(DUE)
    broken = "2026-W49"

    def breaks(_answers: object, week: Week) -> Week:
        if week.name == broken:
            raise ValueError("poison")
        return week

    monkeypatch.setattr(scheduled_report, "build", breaks)
    made = schedule(store, tmp_path)
    made.run(DUE + 3 * WEEK)
    assert weeks_in(tmp_path) == ["2026-W48", "2026-W50", "2026-W51"]
    [problem] = made.problems
    assert problem.startswith("the report of 2026-W49 cannot be made (ValueError, see the log)")
    broken = ""
    schedule(store, tmp_path).run(DUE + 4 * WEEK)
    assert weeks_in(tmp_path) == [f"2026-W{number}" for number in range(48, 53)]


def test_what_fails_for_months_is_given_up_and_said(
    store: Store, tmp_path: Path, hook: Server, caplog: pytest.LogCaptureFixture
) -> None:
    hook.answers[HOOK] = Answer("", 500)
    made = schedule(store, tmp_path, webhook=webhook(hook))
    for week in range(12):
        made.run(DUE + week * WEEK)
    assert len(made.problems) == 8
    assert "the report of 2026-W51 cannot be posted; it is given up" in caplog.text
    assert "the report of 2026-W52 cannot be posted; it is given up" not in caplog.text


@pytest.mark.parametrize("status", [400, 404, 413])
def test_a_refused_message_is_not_sent_again_and_keeps_no_other_waiting(
    store: Store, tmp_path: Path, hook: Server, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    hook.answers[HOOK] = Answer("", status)
    made = schedule(store, tmp_path, webhook=webhook(hook))
    made.run(DUE)
    made.run(DUE + timedelta(hours=2))
    assert posted(hook) == ["2026-W48"]
    assert f"the report of 2026-W48 is not posted: the webhook answers {status}" in caplog.text
    hook.answers[HOOK] = Answer("")
    made.run(DUE + WEEK)
    assert posted(hook) == ["2026-W48", "2026-W49"]


@pytest.mark.parametrize("status", [408, 429, 503])
def test_what_may_pass_is_tried_again_beside_the_next_week(
    store: Store, tmp_path: Path, hook: Server, status: int
) -> None:
    hook.answers[HOOK] = Answer("", status)
    made = schedule(store, tmp_path, webhook=webhook(hook))
    made.run(DUE)
    hook.answers[HOOK] = Answer("")
    made.run(DUE + WEEK)
    assert posted(hook) == ["2026-W48", "2026-W48", "2026-W49"]


def test_names_in_the_text_call_nobody_and_hide_no_address() -> None:
    told = chat_text("Down: <!channel> <https://evil.example|click> & @all")
    assert told == (
        "Down: &lt;!channel&gt; &lt;https://evil.example|click&gt; &amp; @\N{ZERO WIDTH SPACE}all"
    )


def test_the_text_stays_within_600_characters_in_whole_lines() -> None:
    """Each < becomes four characters: the last line does not fit any more."""
    text = "\n".join(["first", "<" * 100, "<" * 60])
    assert chat_text(text) == "first\n" + "&lt;" * 100


def test_the_webhook_hears_no_raw_names(
    store: Store, tmp_path: Path, hook: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduled_report, "summary", lambda _week: "Up: <!channel>")
    schedule(store, tmp_path, webhook=webhook(hook)).run(DUE)
    assert json.loads(hook.bodies[0])["text"] == "Up: &lt;!channel&gt;"


def test_old_weeks_are_removed_and_nothing_else(store: Store, tmp_path: Path) -> None:
    for name in ("cache-report-2025-W01.json", "cache-report-2026-W46.html", "cache-report-.html",
                 "notes-2020-W01.html", "cache-report-2026-W47.html"):  # fmt: skip
        (tmp_path / name).write_text("old")
    schedule(store, tmp_path, keep=2).run(DUE)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "cache-report-.html", "cache-report-2026-W47.html", "cache-report-2026-W48.html",
        "notes-2020-W01.html",
    ]  # fmt: skip


def test_the_worker_makes_it_and_stops(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduled_report, "TICK_SECONDS", 0.0)
    written = threading.Event()
    monkeypatch.setattr(scheduled_report, "write_whole", lambda *_given: written.set())
    worker = ReportWorker(store, ReportSettings(folder=tmp_path))
    worker.start()
    assert written.wait(30)
    assert worker.alive
    worker.stop()
    assert not worker.alive


def test_stopping_ends_the_question_in_hand(store: Store) -> None:
    answers = StoreAnswers(store)
    answers.stop()
    with pytest.raises(scheduled_report.Stopped):
        answers.ask("store_state", {})


def test_the_report_itself_reaches_folder_and_webhook(
    opened: Store, tmp_path: Path, hook: Server
) -> None:
    """Nothing in place of anything: built from the store, rendered, told."""
    with opened.write() as cursor:
        cursor.execute("DELETE FROM meta WHERE key = 'scheduled_reports'")
    put_fact(opened, DUE - timedelta(days=3))
    made = schedule(opened, tmp_path, webhook=webhook(hook), formats=["html", "md", "json"])
    made.run(DUE)
    assert made.problems == []
    assert len(list(tmp_path.iterdir())) == 3
    assert json.loads((tmp_path / "cache-report-2026-W48.json").read_bytes())
    text = json.loads(hook.bodies[0])["text"]
    assert "2026-W48" in text
    assert len(text) <= 600


def test_health_says_what_does_not_work(opened: Store) -> None:
    services = Services(
        opened, Mock(), Mock(), "1", problems=lambda: ["the weekly report cannot be posted"]
    )
    answer = TestClient(build_app(services, ServerSettings())).get("/-/healthy")
    assert answer.status_code == 200
    assert answer.text == "prefixscope ok\nthe weekly report cannot be posted\n"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"zone": "Mars/Olympus"}, "is no time zone"),
        ({"webhook": "ftp://x-secret/"}, "is not a URL"),
        ({"webhook": "https://x-secret/", "folder": None}, "a webhook needs a folder"),
        ({"hour": 24}, "less than or equal to 23"),
        ({"formats": ["pdf"]}, "'html', 'md' or 'json'"),
    ],
)
def test_settings_say_what_is_wrong_and_no_secret(given: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError) as refused:
        ReportSettings.model_validate({"folder": "reports", **given})
    told = refused.value.errors(include_input=False, include_url=False)[0]["msg"]
    assert reason in told
    assert "x-secret" not in told
