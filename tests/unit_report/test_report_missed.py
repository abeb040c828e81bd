"""Why tokens missed, in the weekly report: sums by hand, in every form, and what is missing.

In the week 2,000 tokens have causes: 1,200 cached, 500 evicted, 200 new and 100 in another scope;
of template a 1,500 (900 cached, 400 evicted, 200 new), of b 500 (300 cached, 100 evicted, 100 in
another scope). In the week before 1,000: 800 cached, 50 evicted, 150 new. So evicted grew from 5 to
25 %, isolated from nothing to 5 %, new fell from 15 to 10 %: 20 points more missed in all.
"""

import json
import re
from dataclasses import replace

import pytest

from dashboard.report import FORMATS, Week, WeekReport, charts, missed_shown, render
from dashboard.report.asking import Asking
from dashboard.report.missed import grown_causes, why_missed
from dashboard.report.missing import missing
from replay.causes import CAUSES
from tests.unit_report.conftest import Memory, at, same
from tests.unit_report.test_report_shown import NAMES, SCRIPT, Page

COUNTS = (*(f"{cause}_tokens" for cause in CAUSES), "cached_tokens", "chainless_requests",
          "chainless_prompt_tokens", "late_requests", "late_prompt_tokens", "unreported_requests",
          "unreported_prompt_tokens", "new_warming_tokens")  # fmt: skip


def sums(**tokens: object) -> dict[str, object]:
    return {**dict.fromkeys(COUNTS, 0), "model": "m", "requests": 1, "prompt_tokens": 0, **tokens}


def finding(name: str, gain: int, **columns: object) -> dict[str, object]:
    return {
        "window_since": at("11-29 05:00"), "window_until": at("11-30 05:00"), "model": "m",
        "template": name, "segment": "", "kind": "unknown", "frequency": "request",
        "from_token": 16, "until_token": 32, "requests": 9, "template_requests": 10,
        "prompt_tokens": 1000, "lost_tokens": gain, "gain_tokens": gain, "since": None,
        "warm_again_by": None, "advice": "Something changes with every request.",
        "command": "prefixscope lint FILE  # template a", **columns,
    }  # fmt: skip


def explained(names: tuple[str, str] = ("a", "b")) -> Memory:
    memory = Memory()
    a = sums(prompt_tokens=1500, cached_tokens=900, evicted_tokens=400, new_tokens=200)
    b = sums(prompt_tokens=500, cached_tokens=300, evicted_tokens=100, isolated_tokens=100,
             late_requests=3, late_prompt_tokens=400, chainless_requests=1,
             chainless_prompt_tokens=100)  # fmt: skip
    before = sums(prompt_tokens=1000, cached_tokens=800, evicted_tokens=50, new_tokens=150)
    for hour, template, row in (
        ("11-25 10:00", names[0], a), ("11-25 10:00", names[1], b), ("11-18 09:00", "a", before),
    ):  # fmt: skip
        memory.insert("cause_minutes", [{"minute": at(hour), "replica": "r", **row}])
        memory.insert("cause_hours", [{"hour": at(hour), "template": template, **row}])
    return memory


def again(report: WeekReport, memory: Memory, week: str = "2026-W48") -> WeekReport:
    """The report with the section of another store, which is much cheaper than all of it."""
    made = why_missed(Asking(memory, Week.parse(week, "UTC")), report.headline)
    gaps = tuple(gap for gap in report.missing if gap.section != "missed")
    return replace(report, missed=made, missing=gaps)


@pytest.fixture(scope="module")
def report() -> WeekReport:
    memory = explained()
    for day in ("11-18 10:00", "11-25 10:00"):
        memory.insert("requests", same(1, day, prompt_tokens=1000, cached_tokens=600))
    memory.insert("layout_findings", [
        finding("a", 300), finding("b", 700, kind="tool_order"), finding("c", 200),
        finding("d", 100), finding("e", 0, frequency="", kind="short_prefix"),
    ])  # fmt: skip
    told = {"minute": at("11-25 10:00"), "model": "m", "replica": "r", "scope": "s",
            "cannot_tell_requests": 0, "cannot_tell_tokens": 0, "checked_requests": 4}  # fmt: skip
    memory.insert("cross_scope_minutes", [
        {**told, "tenant": "x", "checked_cached_tokens": 400, "reused_requests": 2,
         "reused_at_least_tokens": 96, "reused_at_most_tokens": 111, "found": True},
        {**told, "tenant": "y", "checked_cached_tokens": 400, "reused_requests": 0,
         "reused_at_least_tokens": 0, "reused_at_most_tokens": 0, "found": False},
    ])  # fmt: skip
    return memory.report()


def test_causes_add_up_and_change_in_points(report: WeekReport) -> None:
    made = report.missed
    assert made.sentence == (
        "Of 2,000 prompt tokens 60.0 % were cached. Missed most: 25.0 % evicted (lost to make "
        "room), 10.0 % new (never seen before), 5.0 % isolated (in another scope)."
    )
    assert made.cached_tokens + sum(each.tokens for each in made.causes) == made.prompt_tokens
    assert [(c.cause, c.tokens, c.prompt_ratio_before, c.change_ratio) for c in made.causes] == [
        ("evicted", 500, 0.05, pytest.approx(0.20)),
        ("isolated", 100, 0.0, pytest.approx(0.05)),
        ("new", 200, 0.15, pytest.approx(-0.05)),
    ]
    assert made.missed_change_ratio == pytest.approx(0.2)
    # 2,000 of 2,500 tokens that report a count.
    assert made.explained_ratio == 0.8
    assert [(each.reason, each.requests, each.prompt_tokens) for each in made.not_explained] == [
        ("chainless", 1, 100), ("late", 3, 400),
    ]  # fmt: skip


def test_templates_that_missed_most_come_first(report: WeekReport) -> None:
    rows = [(t.template, t.missed_tokens, t.missed_ratio, t.cause) for t in report.missed.templates]
    assert rows == [("a", 600, 0.4, "evicted"), ("b", 200, 0.4, "evicted")]
    assert report.missed.templates[0].cause_ratio == pytest.approx(400 / 1500)


def test_findings_that_win_most_end_with_the_command(report: WeekReport) -> None:
    """Of five, one wins nothing and one is the fourth."""
    assert [each.template for each in report.missed.layout] == ["b", "a", "c"]
    text = render(report, "html").decode()
    assert "(tool order, always, changes per request)" in text
    assert "<code>prefixscope lint FILE # template a</code>" in text
    assert "prompts from Sun 2026-11-29 05:00 to Mon 2026-11-30 05:00" in text


def test_reuse_across_scopes_is_told_where_there_was_any(report: WeekReport) -> None:
    [crossed] = report.missed.crossed
    assert (crossed.tenant, crossed.reused_at_least_tokens) == ("x", 96)
    line = "at least 96 cached tokens in 2 requests of tenant x on replica r came from another"
    assert all(line in render(report, form).decode() for form in ("html", "md"))


def test_every_form_says_it_and_says_it_the_same_twice(report: WeekReport) -> None:
    html, text = render(report, "html").decode(), render(report, "md").decode()
    for said in (html.replace("\N{NO-BREAK SPACE}", " "), text.replace("\\", "")):
        assert missed_shown.HEADING in said
        assert report.missed.sentence in said
        assert "Missed in all +20.0 points against the same part of the week before." in said
        assert "80.0 % of reported prompt tokens have causes; 100 tokens without a chain" in said
    assert "| evicted | lost to make room | 500 | 25.0 % | 5.0 % | +20.0 points |" in text
    told = json.loads(render(report, "json"))["missed"]
    assert [each["cause"] for each in told["causes"]] == ["evicted", "isolated", "new"]
    first, second = (again(report, explained()) for _ in range(2))
    assert all(render(first, form) == render(second, form) for form in FORMATS)


def test_the_waterfall_ends_where_the_prompt_ends(report: WeekReport) -> None:
    """From 90 to 660, 570 for 2,000 tokens: cached, evicted, isolated and new in a row."""
    svg = charts.waterfall(report.missed)
    bars = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg)
    assert [(float(x), float(width)) for x, width in bars] == [
        (90, 342), (432, 142.5), (574.5, 28.5), (603, 57),
    ]  # fmt: skip


def test_a_first_week_has_no_change(report: WeekReport) -> None:
    memory = explained()
    for table, column in (("cause_minutes", "minute"), ("cause_hours", "hour")):
        memory.connection.execute(f"DELETE FROM {table} WHERE {column} < '2026-11-20'")
    report = again(report, memory)
    assert [(c.prompt_ratio_before, c.change_ratio) for c in report.missed.causes] == [
        (None, None)
    ] * 3
    assert "Nothing is explained of the same part of the week before." in missed_shown.markdown(
        report
    )


def test_nothing_explained_is_one_line_with_the_next_step(
    report: WeekReport, memory: Memory
) -> None:
    """Most tokens of what has no causes say why; an empty store has no such section at all."""
    nothing = again(report, memory)
    assert (missed_shown.html(nothing), missed_shown.markdown(nothing)) == (None, "")
    steps = ["prefixscope tap --upstream URL"]
    for tokens, reason in enumerate(("chainless", "late", "unreported"), 900):
        named = {f"{reason}_requests": 2, f"{reason}_prompt_tokens": tokens}
        memory.insert("cause_minutes", [{"minute": at("11-25 10:00"), **sums(**named)}])
        made = again(report, memory)
        made = replace(made, missing=missing(made))
        [gap] = made.missing_of("missed")
        steps.append(gap.step)
        text, html = missed_shown.markdown(made), missed_shown.html(made) or ""
        assert text == f"## Why tokens missed\n\n> {gap.what} Next: `{gap.step}`"
        assert f"{gap.what} Next: <code>{gap.step}</code>" in html
        assert "svg" not in html
    assert [gap.step for gap in missing(nothing) if gap.section == "missed"] == steps[:1]
    assert steps[1:] == ["prefixscope tap --upstream URL", "prefixscope attribute --since 7d",
                         "prefixscope doctor"]  # fmt: skip


def test_findings_of_another_time_are_not_of_this_week(report: WeekReport) -> None:
    """Of prompts of 7 and 8 December: nothing of the week that ended on 29 November, but of the
    next, whose report may be made until the one after it is over."""
    memory = explained()
    late = {"window_since": at("12-07 05:00"), "window_until": at("12-08 05:00")}
    memory.insert("layout_findings", [finding("a", 300, **late)])
    assert again(report, memory).missed.layout == ()
    memory.connection.execute(
        "UPDATE cause_minutes SET minute = minute + INTERVAL 7 DAYS WHERE minute > '2026-11-20'"
    )
    [found] = again(report, memory, "2026-W49").missed.layout
    assert found.template == "a"


def test_names_from_outside_stay_text(report: WeekReport) -> None:
    memory = explained(NAMES[:2])
    memory.insert("layout_findings", [
        finding(name, 300, command=f"prefixscope lint FILE  # template {name}") for name in NAMES
    ])  # fmt: skip
    made = again(report, memory)
    page = Page()
    page.feed(missed_shown.html(made) or "")
    assert page.open == []
    assert not {tag for tag, _ in page.tags} & {"script", "a", "b"}
    assert "<script" not in missed_shown.markdown(made).replace("\\<script", "")
    text = "".join(page.text)
    assert SCRIPT in text
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in text
    assert all(len(each.template) <= 60 and len(each.command) <= 300 for each in made.missed.layout)


@pytest.mark.parametrize("kind", [None, "telemetry", "no cause found"])
def test_the_hour_that_cost_most_says_which_causes_grew(memory: Memory, kind: str | None) -> None:
    """100 of 1,000 tokens evicted where none were, in Berlin at ten by the clock: the day before
    the clocks change it is eight in UTC, a week later nine."""
    for minute, tokens in (("10-24 08:30", 0), ("10-31 09:30", 100), ("10-24 09:30", 900)):
        row = sums(prompt_tokens=1000, cached_tokens=1000 - tokens, evicted_tokens=tokens)
        memory.insert("cause_minutes", [{"minute": at(minute), "replica": "r", **row}])
    ask = Asking(memory, Week.parse("2026-W44", "Europe/Berlin"))
    judged = {"ts": at("10-31 09:00"), "model": "m", "class": kind}
    assert grown_causes(ask, judged) == (
        "Missed tokens: evicted 0 % → 10 % of the prompt tokens; in all +10.0 points, against the "
        "same hour a week ago."
        if kind == "no cause found"
        else ""
    )
