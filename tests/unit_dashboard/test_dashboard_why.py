"""The Why page: the waterfall, what is left out, findings, scopes and routing."""

import json
from datetime import datetime
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dashboard import missed_words
from dashboard.figures import causes
from dashboard.filters import Window
from dashboard.why.causes import _no_groups
from replay.causes import CAUSES
from tests.unit_dashboard.loopback import HOSTILE, Exporter, Open, ago, words

TABS = ("causes", "prompts", "scopes", "routing")


def explained(exporter: Exporter, **tokens: int) -> None:
    """An hour of one template, in both roll-ups: 600 of 1,000 tokens cached unless said."""
    sums = dict.fromkeys([f"{cause}_tokens" for cause in CAUSES], 0)
    sums |= {"requests": 10, "prompt_tokens": 1000, "cached_tokens": 600, "evicted_tokens": 250,
             "routed_tokens": 100, "rounding_tokens": 50, "late_prompt_tokens": 0,
             "chainless_prompt_tokens": 0, "unreported_prompt_tokens": 0,
             "new_warming_tokens": 0, "remembered_seconds": 7 * 86_400} | tokens  # fmt: skip
    at = ago(30).replace(second=0, microsecond=0)
    exporter.insert("cause_minutes", minute=at, model="m", replica="r1", route="chat", **sums)
    exporter.insert("cause_hours", hour=at.replace(minute=0), model="m", route="chat",
                    template=HOSTILE, tenant="a", **sums)  # fmt: skip
    exporter.request(30, 1000, 600, route="chat")


def charts(app: AppTest) -> list[dict[str, Any]]:
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


def test_the_waterfall_adds_up_to_the_prompt(exporter: Exporter, open_page: Open) -> None:
    explained(exporter)
    app = open_page("why")
    assert not app.exception
    assert "Of 1,000 prompt tokens **60.0 % were cached**" in words(app)
    assert "**25.0 % evicted** (lost to make room), **10.0 % routed**" in words(app)
    bars = charts(app)[0]["data"][0]
    assert bars["y"] == ["cached", "evicted", "routed", "rounding"]
    assert bars["base"] == [0.0, 0.6, 0.85, 0.95]
    assert bars["base"][-1] + bars["x"][-1] == pytest.approx(1.0)
    assert bars["text"] == ["60.0 %", "25.0 %", "10.0 %", "5.0 %"]
    assert list(app.dataframe[0].value["tokens"]) == [250, 100, 50]


def test_groups_show_names_as_text(exporter: Exporter, open_page: Open) -> None:
    """A template's name is whatever a caller sent: never markup in a chart."""
    explained(exporter)
    app = open_page("why")
    shown = json.dumps(charts(app)[-1])
    assert "<script" not in shown
    assert "&lt;" in shown
    assert list(app.dataframe[1].value["evicted_tokens"]) == [250]


@pytest.mark.parametrize(
    ("since", "until", "hourless"),
    [
        ("23:03", "23:33", True), ("23:00", "23:30", False), ("22:59", "23:01", False),
        ("22:30", "23:00", True),
    ],
)  # fmt: skip
def test_a_window_in_which_no_hour_begins_says_so(
    since: str, until: str, *, hourless: bool
) -> None:
    """Template and tenant are kept by the hours that begin in [since, until)."""
    ends = (datetime.fromisoformat(f"2026-11-30T{end}:00Z") for end in (since, until))
    window = Window(*ends)
    assert ("are kept by the hour" in _no_groups("template", window)) == hourless
    assert "are kept by the hour" not in _no_groups("replica", window)


def test_what_is_not_explained_is_said(exporter: Exporter, open_page: Open) -> None:
    """1,000 of 1,600 reported tokens have causes: 62.5 %."""
    explained(exporter, late_prompt_tokens=400, chainless_prompt_tokens=200, new_warming_tokens=5,
              remembered_seconds=3600)  # fmt: skip
    said = words(open_page("why"))
    assert "62.5 % of reported prompt tokens have causes" in said
    assert "200 tokens without a chain" in said
    assert "400 tokens came after their minute was sealed" in said
    assert "the log is young (1 h are known)" in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"chainless_prompt_tokens": 500}, "carry no chains of block hashes"),
        ({"late_prompt_tokens": 500}, "came after their minutes were sealed"),
        ({"unreported_prompt_tokens": 500}, "reports its cached tokens"),
        ({}, "causes are named two minutes late"),
    ],
)
def test_nothing_explained_says_why_and_what_to_do(
    exporter: Exporter, open_page: Open, given: dict[str, int], said: str
) -> None:
    nothing = dict.fromkeys(("requests", "prompt_tokens", "cached_tokens", "evicted_tokens",
                             "routed_tokens", "rounding_tokens"), 0)  # fmt: skip
    explained(exporter, **nothing | given)
    assert said in words(open_page("why"))


@pytest.mark.parametrize("tab", TABS)
def test_every_tab_opens_without_findings(exporter: Exporter, open_page: Open, tab: str) -> None:
    explained(exporter)
    app = open_page("why", tab=tab)
    assert not app.exception
    assert not app.error


def test_a_leak_is_the_first_thing_said(exporter: Exporter, open_page: Open) -> None:
    explained(exporter)
    told = {"minute": ago(20), "model": "m", "replica": "r1", "scope": "s", "tenant": "a",
            "checked_requests": 4, "cannot_tell_requests": 0, "cannot_tell_tokens": 0}  # fmt: skip
    none = {"reused_requests": 0, "reused_at_least_tokens": 0, "reused_at_most_tokens": 0}
    exporter.insert("cross_scope_minutes", **told, **none, checked_cached_tokens=544, found=False)
    app = open_page("why", tab="scopes")
    assert not app.error
    assert "None: all of 544 cached tokens that could be checked" in words(app)
    assert "none has looked yet" in words(app), "an audit of what scopes keep apart has not run"
    some = {"reused_requests": 1, "reused_at_least_tokens": 96, "reused_at_most_tokens": 111}
    exporter.insert("cross_scope_minutes", **told, **some, checked_cached_tokens=96, found=True)
    st.cache_data.clear()
    app = open_page("why", tab="scopes")
    assert "At least 96 cached tokens were computed in another scope" in app.error[0].value
    assert list(app.dataframe[0].value["reused_at_most_tokens"]) == [111]


def test_every_cause_has_its_words_and_colour() -> None:
    assert set(causes.MEANINGS) == set(CAUSES)
    nothing = missed_words.sentence({"prompt_tokens": 5, "cached_tokens": 5})
    assert nothing == "Of 5 prompt tokens 100.0 % were cached. Nothing missed."


def test_over_time_is_a_share_of_the_same_minutes() -> None:
    rows = [
        {"bucket": "2026-11-30T10:00:00Z", "cause": "new", "tokens": 30, "prompt_tokens": 120},
        {"bucket": "2026-11-30T10:00:00Z", "cause": "routed", "tokens": 60, "prompt_tokens": 120},
    ]
    figure = causes.over_time(rows, step_seconds=60, since=rows[0]["bucket"],
                              until="2026-11-30T11:00:00Z")  # fmt: skip
    assert [(bar.name, list(bar.y)) for bar in figure.data] == [("routed", [0.5]), ("new", [0.25])]
