"""The page Now draws the same screen as `/now` and the terminal, and nothing on it is markup."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import on_call
from dashboard.figures.over_time import ratio_with_load
from queries.on_call.chart import Mark
from queries.on_call.expected import Expected
from tests.unit_dashboard.loopback import HOSTILE, Exporter, Open, words
from tests.unit_now.scenes import CLOCK, SINCE, template

RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks"
WINDOW = {"since": f"{SINCE:%Y-%m-%dT%H:%M:%SZ}", "until": f"{CLOCK:%Y-%m-%dT%H:%M:%SZ}"}


def figures(app: AppTest) -> list[dict[str, Any]]:
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


@pytest.fixture
def night(exporter: Exporter) -> Exporter:
    """The scene in which checkout came as v8 at 02:20."""
    exporter.connection = template().connection
    return exporter


def test_the_verdict_its_parts_and_its_marks(night: Exporter, open_page: Open) -> None:
    for weeks, evicted in ((0, 210), (1, 80)):
        night.insert(
            "cause_minutes",
            minute=CLOCK - timedelta(weeks=weeks, minutes=30),
            model="m",
            prompt_tokens=1000,
            cached_tokens=1000 - evicted,
            evicted_tokens=evicted,
        )
    app = open_page(**WINDOW)
    assert not app.exception
    said = words(app)
    assert "Missed tokens: evicted 8 % → 21 % of the prompt tokens; in all +13.0 points" in said
    assert "Hit ratio 46 %, expected " in said
    assert "since 02:20. Not memory pressure. 82 % of the drop is template `checkout v8`." in said
    assert ":red-badge[Drop that hurts]" in said
    assert "**-21.4 points** template `checkout`: its ratio 72 % → 29 %" in said
    assert "**A** 02:20 template `checkout`: `v7` → `v8`" in said
    assert "**It hurts: slow first tokens" in said
    [figure] = figures(app)
    assert [note["text"] for note in figure["layout"]["annotations"]] == ["A"]
    assert "expected" in [trace.get("name") for trace in figure["data"]]


def test_the_runbook_stands_beside_the_verdict(night: Exporter, open_page: Open) -> None:
    """The words of docs/runbooks, without its title and its links to other files."""
    app = open_page(**WINDOW)
    [runbook] = [each for each in app.expander if each.label.startswith("What to do")]
    assert runbook.label == "What to do: PrefixcachePeakHitDrop"
    said = runbook.markdown[0].value
    assert said.startswith("###### Meaning")
    for line in (RUNBOOKS / "PrefixcachePeakHitDrop.md").read_text().splitlines()[2:]:
        assert line.removeprefix("## ") in said


def test_links_of_a_runbook_become_words(exporter: Exporter) -> None:
    """One names another runbook, whose file the dashboard does not serve."""
    linking = (RUNBOOKS / "PrefixcacheCrossScopeReuse.md").read_text()
    assert "[PrefixcacheStaleReuse](PrefixcacheStaleReuse.md)" in linking
    said = on_call._runbook(exporter.url, "PrefixcacheCrossScopeReuse")
    assert "PrefixcacheStaleReuse" in said
    assert "](" not in said


def test_letters_that_the_chart_does_not_reach_are_not_explained(
    night: Exporter, open_page: Open
) -> None:
    app = open_page(since="2026-11-29T02:30:00Z", until=WINDOW["until"])
    assert "template `checkout`: `v7` → `v8`" not in words(app)


def test_a_contributor_is_one_click_away(night: Exporter, open_page: Open) -> None:
    app = open_page(**WINDOW)
    app = app.button(key="part-template-checkout").click().run()
    assert app.query_params["template"] == "checkout"
    assert "Hit ratio 29 %" in words(app)


def test_names_stay_names(night: Exporter, open_page: Open) -> None:
    for column in ("template", "template_version", "route"):
        night.connection.execute(f"UPDATE requests SET {column} = {column} || ?", [HOSTILE])
    night.connection.execute("UPDATE hour_rollup SET template = template || ?", [HOSTILE])
    app = open_page(**WINDOW)
    assert not app.exception
    for element in [*app.markdown, *app.caption, *app.warning]:
        if "onerror" in element.value:
            # Within a code span, whose backticks were replaced.
            before = element.value.partition("onerror")[0]
            assert before.count("`") % 2 == 1, element.value


def test_the_band_is_an_area_between_its_ends() -> None:
    since = datetime(2026, 11, 29, 2, tzinfo=UTC)
    until = since + timedelta(hours=1)
    figure = ratio_with_load(
        [], [], step_seconds=60, since=since, until=until, label="ratio",
        bands=[Expected(since, until, 0.6, 0.8, 0.7)],
        marks=[Mark("A", since, "<b>reset</b>")],
    ).to_dict()  # fmt: skip
    low, high = figure["data"][:2]
    assert (list(low["y"]), list(high["y"])) == ([0.6, 0.6], [0.8, 0.8])
    assert high["fill"] == "tonexty"
    assert high["customdata"][0] == "60.0 % to 80.0 %"
    [note] = [one for one in figure["layout"]["annotations"] if "hovertext" in one]
    assert (note["text"], note["hovertext"]) == ("A", "&lt;b&gt;reset&lt;/b&gt;")
    # Above the plot is the legend, which begins there.
    assert (note["y"], note["yanchor"]) == (1, "top")
    assert figure["layout"]["legend"]["y"] == 1
