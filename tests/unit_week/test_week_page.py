"""The page Week through the entry file: a log, engines only, nothing, odd names, no exporter."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from streamlit.testing.v1 import AppTest

from dashboard import answers
from dashboard.client import QuestionRefused
from dashboard.figures.safe import code_span
from dashboard.report import Week, WeekReport, build
from dashboard.report.missed_values import CauseShare, TemplateMissed
from dashboard.report.week import Change
from dashboard.week import data as week_data
from dashboard.week.page_one import who_address
from tests import empty_store
from tests.unit_dashboard.loopback import HOSTILE, Exporter, Open, tile, words

DAY_MINUTES = 24 * 60
# For all of this file, so that no week ends while a test goes on.
VERSION, NOW = answers.data_version(), answers.version_time()
THIS = Week.of(NOW, "UTC")
LAST = THIS.back(1)


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (answers, week_data):
        monkeypatch.setattr(module, "data_version", lambda: VERSION)


def minutes_since(moment: datetime) -> float:
    return (datetime.now(UTC) - moment) / timedelta(minutes=1)


def two_weeks(exporter: Exporter, **columns: object) -> None:
    """Last week 2,300 of 4,000 reported tokens cached (57.5 %) and 1,000 not reported (coverage
    80 %); the week before 1,400 of 2,000 (70 %); something now, so that last week is whole."""
    tuesday = minutes_since(LAST.since + timedelta(days=1, hours=9))
    given = {"template": "checkout", "ttft_point": "client", "ttft_seconds": 0.2, **columns}
    exporter.request(tuesday, 1000, 800, tenant="a", **given)
    exporter.request(tuesday - 30, 3000, 1500, tenant="b", **given)
    exporter.request(tuesday - 60, 1000, None, tenant="b", **given)
    exporter.request(tuesday + 7 * DAY_MINUTES, 2000, 1400, tenant="a", **given)
    exporter.request(tuesday + 20 * DAY_MINUTES, 10, 0, **given)
    exporter.request(minutes_since(NOW), 10, 0, **given)


def charts(app: AppTest) -> list[dict[str, Any]]:
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


def test_the_page_tells_what_the_report_tells(exporter: Exporter, open_page: Open) -> None:
    two_weeks(exporter)
    app = open_page("week")
    assert not app.exception
    assert not app.error
    told = words(app)
    assert f"Cache report {LAST.name}" in told
    assert (
        f"Token hit ratio 57.5 % in {LAST.name} (2,300 of 4,000 prompt tokens from cache)" in told
    )
    assert "-12.5 points against the week before (70.0 %); 80.0 % of the eligible" in told
    assert "Three different things: they are not added up." in told
    assert "`checkout`" in told
    assert "70.0 % → 57.5 %, 500 tokens more computed" in told  # 12.5 % of 4,000
    assert [chart["data"][0]["type"] for chart in charts(app)] == ["bar", "heatmap"]
    assert [button.label for button in app.get("download_button")] == ["HTML", "MD", "JSON"]
    assert [expander.label for expander in app.expander] == [
        "What happened", "Who", "Why tokens missed", "Latency", "Memory and offload", "Prices",
        "Data quality", "Definitions",
    ]  # fmt: skip
    assert tile(app, "Prefill avoided (estimate)")[0] == "–"  # six requests tell no speed
    assert "Next:" not in told
    assert "prefixscope query prices" in [code.value for code in app.code]
    asked = len(exporter.asked)
    app.run()
    assert len(exporter.asked) == asked, "the same answers serve every reader"


def test_engines_only(exporter: Exporter, open_page: Open) -> None:
    exporter.sample(minutes_since(LAST.since) - 600, prompt_tokens=10_000, cached_tokens=4_500)
    exporter.sample(minutes_since(NOW), prompt_tokens=10, cached_tokens=0)
    app = open_page("week")
    assert not app.exception
    assert f"Token hit ratio by engine counters 45.0 % in {LAST.name}" in words(app)
    assert "Engine counters know models and replicas only" in words(app)


def test_an_empty_store_says_the_first_step(exporter: Exporter, open_page: Open) -> None:
    app = open_page("week")
    assert not app.exception
    assert "The store is empty" in words(app)
    assert not charts(app)


@pytest.fixture(scope="module")
def made() -> WeekReport:
    """The report of last week over the same rows, to be changed and shown."""
    exporter = Exporter(empty_store.in_memory())
    two_weeks(exporter)

    class Direct:
        def ask(self, name: str, params: Mapping[str, object]) -> pa.Table:
            return exporter.answer(name, {key: str(value) for key, value in params.items()})

    return build(Direct(), LAST)


@pytest.fixture
def show(
    exporter: Exporter, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., AppTest]:
    """Shows a report in place of the one the page would build."""

    def shown(report: WeekReport, **address: str) -> AppTest:
        two_weeks(exporter)
        monkeypatch.setattr(week_data, "build", lambda _answers, _week: report)
        app = open_page("week", **address)
        assert not app.exception
        return app

    return shown


Show = Callable[..., AppTest]


def test_what_makes_it_less_stands_on_top(show: Show, made: WeekReport) -> None:
    data = replace(made.data, demo=True, partial="it is not over")
    app = show(replace(made, data=data))
    assert ["Synthetic demo data." in app.info[0].value, app.warning[0].value] == [
        True, "Partial week: it is not over.",
    ]  # fmt: skip


def test_the_week_under_way_is_offered_and_said(show: Show, made: WeekReport) -> None:
    app = show(made, week=THIS.name)
    [picker] = [box for box in app.selectbox if box.label == "Week"]
    assert picker.value == THIS
    assert picker.options[0].endswith(", so far)")
    assert len(picker.options) == 5  # the oldest row is three weeks before the last one


def test_a_week_is_chosen_and_stands_in_the_address(show: Show, made: WeekReport) -> None:
    app = show(made)
    picker = next(box for box in app.selectbox if box.label == "Week")
    assert picker.value == LAST
    picker.select(LAST.back(1)).run()
    assert app.query_params["week"] == LAST.back(1).name
    picker = next(box for box in app.selectbox if box.label == "Week")
    picker.select(LAST).run()
    assert "week" not in app.query_params


def test_t78_the_zone_is_explicit(show: Show, made: WeekReport) -> None:
    app = show(made, zone="Asia/Tokyo")
    picker = next(box for box in app.selectbox if box.label == "Week")
    assert picker.value.zone == "Asia/Tokyo"
    app = show(made, zone="Mars/<b>Olympus")
    assert "This is no time zone; the week is shown in UTC." in app.warning[0].value


def test_changes_show_bounds_basis_and_step(show: Show, made: WeekReport) -> None:
    step, overlaps = "router: session affinity", "may be the same tokens as 1"
    change = Change("replica spread", "t", "Keep it together", 12_000, 18_000, "estimated",
                    "It was spread.", step, overlaps)  # fmt: skip
    app = show(replace(made, changes=(change,)))
    told = words(app)
    assert "**12,000–18,000 tokens a day (estimated)**" in told
    assert "It was spread. May be the same tokens as 1." in told
    assert step in [code.value for code in app.code]


def test_why_tokens_missed_is_a_waterfall_with_its_tables(show: Show, made: WeekReport) -> None:
    """600 of 1,000 cached, 250 evicted and 150 new; a change needs a week before."""
    causes = (CauseShare("evicted", "lost to make room", 250, 0.25, 0.15, 0.1),
              CauseShare("new", "never seen before", 150, 0.15, None, None))  # fmt: skip
    templates = (TemplateMissed(HOSTILE, 1000, 400, 0.4, "evicted", 0.25),)
    missed = replace(made.missed, sentence="Of 1,000 prompt tokens.", caution="All have causes.",
                     prompt_tokens=1000, cached_tokens=600, missed_change_ratio=0.1,
                     causes=causes, templates=templates)  # fmt: skip
    app = show(replace(made, missed=missed))
    assert "Missed in all +10.0 points against the week before. All have causes." in words(app)
    bars = charts(app)[-1]["data"][0]
    assert (bars["y"], bars["base"]) == (["cached", "evicted", "new"], [0.0, 0.6, 0.85])
    table = next(each.value for each in app.dataframe if "change_ratio" in each.value)
    assert list(table["tokens"]) == [250, 150]
    assert table["change_ratio"][0] == pytest.approx(10)
    assert table["change_ratio"].isna()[1]
    assert "<img" not in json.dumps(charts(app))


def test_names_are_no_markup(show: Show, made: WeekReport) -> None:
    """Outside a code span or plain text they stand nowhere, and in charts their tags are text."""
    mover = replace(made.down[0], name=HOSTILE, why=HOSTILE)
    change = Change("x", HOSTILE, HOSTILE, 1, 2, "estimated", HOSTILE, HOSTILE, HOSTILE)
    point = replace(made.weeks[-1], incidents=1, incident_words=HOSTILE)
    app = show(replace(made, down=(mover,), changes=(change,), weeks=(*made.weeks[:-1], point)))
    risky = [*app.markdown, *app.caption, *app.info, *app.warning]
    for part in risky:
        for said in (part.value, getattr(part, "help", "") or ""):
            assert "onerror" not in said.replace(code_span(HOSTILE), "")
    assert "<img" not in json.dumps(charts(app))


def test_links_lead_to_the_mover(made: WeekReport) -> None:
    assert who_address(made, made.down[0]) == {
        "since": f"{LAST.since:%Y-%m-%d}T00:00:00Z", "until": f"{LAST.until:%Y-%m-%d}T00:00:00Z",
        "compare": "week", "template": "checkout",
    }  # fmt: skip
    assert "template" not in who_address(made, replace(made.down[0], name="x" * 59 + "…"))
    assert who_address(made, replace(made.down[0], name="(not given)"))["template"] == ""
    assert "replica" not in who_address(made, replace(made.down[0], by="replica"))


def test_the_sentence_does_not_wait_for_the_rest(
    exporter: Exporter, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_given: object) -> None:
        raise QuestionRefused("The exporter could not answer peak_drop (status 503).")

    two_weeks(exporter)
    monkeypatch.setattr(week_data, "build", refused)
    app = open_page("week")
    assert "Token hit ratio 57.5 %" in words(app)
    assert app.error[0].value == "The exporter could not answer peak_drop (status 503)."


def test_no_exporter_no_traceback(exporter: Exporter, open_page: Open) -> None:
    exporter.broken = True
    app = open_page("week")
    assert not app.exception
    assert "No exporter answers" in app.error[0].value
    assert "This page asks again every 60 s" in words(app)
