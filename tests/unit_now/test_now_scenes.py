"""Whole nights: the questions over a store, the words over the answers, and the drawn surfaces.

In the scene `template` the last hour has 45,000 tokens at 0.72 and 135,000 at 0.15 of checkout,
and 45,000 at 0.72 and 135,000 at 0.60 of search: 0.2925 and 0.63, together 0.46125. A week before
both had 0.72. In the median of four weeks they had 0.725, so own losses are 0.4325 and 0.095
times the same tokens: 82 % is checkout's.
"""

import io
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from rich.console import Console

from exporter.endpoints import now
from prefixscope import now_terminal
from queries.on_call.onset import Onset
from queries.on_call.screen import Looking, Screen, look
from queries.on_call.words import Rows
from tests.unit_now.scenes import BEGAN, CLOCK, SCENES, Night

HOSTILE = "<script>alert('x')</script>\"&\x1b[2J\u202e"


@cache
def night(name: str) -> Night:
    return SCENES[name]()


@cache
def screen(name: str) -> Screen:
    return look(night(name).ask, Looking(), CLOCK)


def page(shown: Screen) -> str:
    return now.render(shown, "1.2.3")


def printed(shown: Screen) -> str:
    """As it comes out of a terminal of 80 columns."""
    console = Console(file=io.StringIO(), width=80, highlight=False, force_terminal=True)
    now_terminal.show(console, shown)
    assert isinstance(console.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())


@pytest.mark.parametrize(
    ("name", "tone", "says"),
    [
        ("healthy", "good", "As expected: hit ratio 72 %, expected"),
        ("template", "page", "Not memory pressure. 82 % of the drop is template checkout v8."),
        ("pressure", "good", "As expected: 52 % at 91 % KV pressure; usual for Sunday 03:05 is 7"),
        ("no-cause", "page", "Not memory pressure. Dropped; no cause found."),
        ("telemetry", "ticket", "Telemetry fault, no finding about the cache: coverage 33 %"),
        ("no-data", "unknown", "No data yet."),
        ("engine-only", "good", "As expected: hit ratio by engine counters 72 %"),
    ],
)
def test_the_verdict_of_a_night(name: str, tone: str, says: str) -> None:
    assert screen(name).tone == tone
    assert says in screen(name).verdict


def test_a_drop_is_told_with_its_start_and_its_parts() -> None:
    shown = screen("template")
    assert shown.verdict.startswith("Hit ratio 46 %, expected ")
    assert " for Sunday 03:05 at this load, since 02:20. " in shown.verdict
    assert shown.onset == Onset(BEGAN)
    parts = [(part.name, part.change_ratio) for part in shown.contributors.parts]
    assert parts == [
        ("checkout", pytest.approx((0.2925 - 0.72) / 2)), ("search", pytest.approx(-0.045)),
    ]  # fmt: skip
    assert shown.contributors.change_ratio == pytest.approx(0.46125 - 0.72)
    assert shown.runbook == "PrefixcachePeakHitDrop"
    assert shown.pain is not None
    # 1.2 s instead of 0.4 s.
    assert "+200 % of the usual 400 ms" in shown.pain.measures[0].against
    assert shown.chart is not None
    [mark] = shown.chart.marks
    assert (mark.letter, mark.words) == ("A", "template checkout: v7 → v8")
    assert BEGAN <= mark.at < BEGAN + timedelta(minutes=1)


def test_telemetry_faults_stand_first() -> None:
    shown = screen("telemetry")
    assert shown.faults[0] == "Not answering: b (timed out)."
    html, text = page(shown), printed(shown)
    for surface in (html, text):
        assert surface.index("Not answering: b (") < surface.index("Telemetry fault, no finding")
    assert "what follows may be wrong" in html
    assert 'role="alert"' in html
    assert 'role="alert"' not in page(screen("healthy"))


def test_the_chart_has_six_hours_over_a_band() -> None:
    chart = screen("healthy").chart
    assert chart is not None
    assert len(chart.bands) == 6
    assert chart.ratios == pytest.approx([0.72] * 72)
    assert [band.until - band.since for band in chart.bands] == [timedelta(hours=1)] * 6


@pytest.mark.parametrize("name", SCENES)
def test_every_night_is_a_small_page_that_needs_nothing(name: str) -> None:
    html = page(screen(name))
    assert len(html.encode()) < 50_000
    assert "<script" not in html
    for outside in ("http:", "https:", "//", "@import", "url("):
        assert outside not in html, outside
    assert "NaN" not in html
    assert "None" not in html
    assert "prefers-color-scheme:dark" in html


@pytest.mark.parametrize("name", SCENES)
def test_page_and_terminal_say_the_same(name: str) -> None:
    shown = screen(name)
    html, text = page(shown), " ".join(printed(shown).split())
    bound = shown.verdict.replace(" %", "\N{NO-BREAK SPACE}%")
    assert bound.replace("<", "&lt;") in html
    assert shown.verdict in text
    for _, value in shown.strip:
        assert value in html
        assert value in text


def test_the_terminal_draws_the_chart() -> None:
    shown = screen("template")
    assert shown.chart is not None
    lines = now_terminal.chart_lines(shown.chart)
    assert max(map(len, lines)) <= 78
    by_label = {line[:5]: line for line in lines if line.strip()}
    # 0.72 is in the eighth of ten rows, the mean of 0.15 and 0.60 in the fourth.
    assert lines[2].count("●") == 63
    assert lines[6].count("●") == 9
    assert "░" in lines[2] + lines[3]
    # By engine counters the load is even: full blocks.
    assert "█" in by_label["load "[:5]]
    assert lines[-2].index("A") == 6 + 63
    assert "22:00" in lines[-1]
    narrow = now_terminal.chart_lines(shown.chart, 30)
    assert max(map(len, narrow)) == 36
    assert narrow[6] == f"{'':27}{'●' * 9}"


def test_other_alerts_are_listed_and_the_drop_itself_is_not_said_twice() -> None:
    shown = look(night("template").ask_all, Looking(), CLOCK)
    assert [(row["alert"], row["template"]) for row in shown.alerts] == [
        ("PrefixcacheTemplateHitCollapse", "checkout")
    ]
    assert [row["about"] for row in shown.alerts] == ["model llama, template checkout"]
    assert shown.runbook == "PrefixcachePeakHitDrop"
    html, text = page(shown), printed(shown)
    assert 'href="docs/runbooks/PrefixcacheTemplateHitCollapse.md"' in html
    assert 'href="docs/runbooks/PrefixcachePeakHitDrop.md"' in html
    assert "PrefixcacheTemplateHitCollapse" in text
    assert "(model llama, template checkout): " in html
    assert shown.chart is not None
    assert [mark.words for mark in shown.chart.marks] == [
        "alert PrefixcacheTemplateHitCollapse", "template checkout: v7 → v8",
    ]  # fmt: skip


def test_reuse_of_stale_kv_is_among_the_alerts() -> None:
    made = SCENES["healthy"]()
    [rule] = [row for row in made.ask_all("alerts", {"until": CLOCK, "part": "stale", "all": 1})
              if row["alert"] == "PrefixcacheStaleReuse"]  # fmt: skip
    asked: list[object] = []

    def ask(name: str, params: Mapping[str, object]) -> Rows:
        if name != "alerts" or params.get("part") != "stale":
            return made.ask(name, params)
        asked.append(params["until"])
        return [{**rule, "state": "firing", "since": "2026-11-29T02:00:00Z", "model": "llama"}]

    shown = look(ask, Looking(), CLOCK)
    # Shared by all who ask within ten minutes.
    assert asked == [CLOCK.replace(minute=0)]
    assert [row["alert"] for row in shown.alerts] == ["PrefixcacheStaleReuse"]
    assert "PrefixcacheStaleReuse" in page(shown)


def test_demo_data_is_labelled() -> None:
    shown = replace(screen("healthy"), demo=True)
    assert "Demo data" in page(shown)
    assert "Demo data" in printed(shown)
    assert "Demo data" not in page(screen("healthy"))


def test_by_engine_counters_the_replica_that_fell_is_the_contributor() -> None:
    made = SCENES["engine-only"]()
    made.connection.execute(
        "UPDATE engine_samples SET cached_tokens = 1500 WHERE replica = 'b' AND since >= ?",
        [CLOCK.replace(tzinfo=None) - timedelta(hours=1)],
    )
    shown = look(made.ask, Looking(), CLOCK)
    assert shown.lead is not None
    assert shown.lead["is_drop"]
    # Half of the tokens fell from 0.72 to 0.10, and nothing else moved.
    [part] = shown.contributors.parts
    assert (part.dimension, part.value) == ("replica", "b")
    assert part.change_ratio == pytest.approx((0.10 - 0.72) / 2)
    assert shown.contributors.change_ratio == pytest.approx((0.10 - 0.72) / 2)
    assert "its ratio 10 %, expected 72 %" in page(shown)


def test_hours_are_told_in_the_zone_of_the_settings() -> None:
    made = SCENES["engine-only"]()
    made.connection.execute("INSERT INTO meta VALUES ('zone', 'Asia/Kolkata')")
    shown = look(made.ask, Looking(), CLOCK)
    assert ("time", "Sunday 2026-11-29 08:35 (Asia/Kolkata)") in shown.strip
    assert "for Sunday 08:35" in shown.verdict
    other = look(made.ask, Looking(zone=ZoneInfo("Europe/Berlin")), CLOCK)
    assert "for Sunday 04:05" in other.verdict


def test_old_data_is_stale_and_its_own_last_hour_is_shown() -> None:
    shown = look(night("engine-only").ask, Looking(), CLOCK + timedelta(days=3, hours=1))
    assert shown.verdict.startswith("Stale: the newest data is 3 days old. At that time: ")
    assert shown.faults[0] == "The newest data is 3 days old."
    assert shown.until - CLOCK == timedelta(seconds=1)


def test_an_earlier_moment_is_shown_as_it_was() -> None:
    shown = look(night("template").ask, Looking(at=BEGAN), CLOCK)
    assert (shown.until, shown.tone) == (BEGAN, "good")
    assert 'http-equiv="refresh"' not in page(shown)
    assert 'http-equiv="refresh" content="30"' in page(screen("template"))


def test_filters_reach_every_figure() -> None:
    asked: list[tuple[str, Mapping[str, object]]] = []

    def ask(name: str, params: Mapping[str, object]) -> Rows:
        asked.append((name, params))
        return night("template").ask(name, params)

    shown = look(ask, Looking(filters={"template": "search"}), CLOCK)
    assert "ratio 63 %" in shown.verdict
    named = {name for name, params in asked if params.get("template") == "search"}
    assert {
        "peak_drop",
        "hit_ratio_over_time",
        "load_over_time",
        "pain",
        "version_changes",
    } <= named
    assert "template=" in page(shown)
    nobody = look(night("template").ask, Looking(filters={"template": "nobody"}), CLOCK)
    assert (
        nobody.verdict == "No traffic with these filters in the hour to Sunday 03:05: no hit ratio."
    )


def test_t58_an_hour_without_traffic_is_no_drop() -> None:
    made = SCENES["no-cause"]()
    made.connection.execute("DELETE FROM requests WHERE ts >= ?", [CLOCK - timedelta(hours=1)])
    made.connection.execute("DELETE FROM engine_samples WHERE ts > ?", [CLOCK - timedelta(hours=1)])
    made.connection.execute(
        "UPDATE engine_samples SET ts = ? WHERE ts = (SELECT max(ts) FROM engine_samples)", [CLOCK]
    )
    shown = look(made.ask, Looking(filters={"route": "shop"}), CLOCK)
    assert (shown.tone, shown.onset) == ("unknown", None)
    assert "No traffic with these filters in the hour" in shown.verdict


def test_nothing_from_outside_becomes_markup_or_steers_the_terminal() -> None:
    made = SCENES["template"]()
    for table, columns in (
        ("requests", ("template_version", "model", "replica", "route", "source")),
        ("engine_samples", ("replica", "target", "model")),
    ):
        for column in columns:
            made.connection.execute(f"UPDATE {table} SET {column} = {column} || ?", [HOSTILE])
    made.connection.execute("UPDATE requests SET template = template || ?", [HOSTILE])
    made.connection.execute("DELETE FROM hour_rollup")
    made.connection.execute("UPDATE targets SET up = false, target = target || ?", [HOSTILE])
    made.fold()
    shown = look(made.ask, Looking(), CLOCK)
    assert "checkout" in shown.verdict
    html, text = page(shown), printed(shown)
    assert "<script" not in html
    assert html.count("&lt;script&gt;") > 5
    for surface in (html, text):
        assert "\x1b" not in surface
        assert "\u202e" not in surface


def test_several_models_are_listed_and_the_one_that_dropped_leads() -> None:
    made = SCENES["template"]()
    made.connection.execute(
        "INSERT INTO requests SELECT * REPLACE ('quiet' AS model, 72 * prompt_tokens // 100 "
        "AS cached_tokens, 0.1 AS ttft_seconds) FROM requests"
    )
    made.connection.execute("DELETE FROM hour_rollup")
    made.fold()
    shown = look(made.ask, Looking(), CLOCK)
    assert [row["model"] for row in shown.models] == ["llama", "quiet"]
    assert "checkout v8" in shown.verdict
    # Further figures are of the model that leads: the other's 0.1 s would halve the p90.
    assert shown.pain is not None
    assert shown.pain.measures[0].value == "1.20 s"
    assert "now?model=quiet" in page(shown)
    alone = look(made.ask, Looking(filters={"model": "quiet"}), CLOCK)
    assert (alone.models, alone.tone) == ((), "good")


def test_t58_idle_engines_are_no_traffic_and_silent_ones_are_not() -> None:
    """Both have no ratio: only counters that stand at nothing say that nobody asked."""
    idle, silent = Night(), Night()
    idle.pages(CLOCK - timedelta(hours=1), 0.0, steps=12, prompt_tokens=0, cached_tokens=0)
    silent.pages(CLOCK - timedelta(hours=1), 0.0, steps=12, cached_tokens=None)
    said = [look(each.ask, Looking(), CLOCK).verdict for each in (idle, silent)]
    assert said == [
        "No traffic in the hour to Sunday 03:05: no hit ratio.",
        (
            "No hit ratio: nothing in the hour to Sunday 03:05 reported how many of its prompt "
            "tokens were cached."
        ),
    ]
