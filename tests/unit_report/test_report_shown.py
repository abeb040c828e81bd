"""How a report is written: safe with hostile names, self-contained, bounded, always the same."""

import json
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.report import (
    FORMATS,
    Week,
    WeekReport,
    charts,
    detail_values,
    missed_values,
    quality_values,
    render,
    summary,
    week,
    words,
)
from dashboard.report.detail_values import HourCell
from dashboard.report.markdown_parts import escaped
from dashboard.report.markup import bdi, joined, tag, void
from dashboard.report.text import told
from dashboard.report.week import Change, Mover
from tests.unit_report.conftest import Memory, same

SCRIPT = "<script>alert(1)</script>"
OVERRIDE = "\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe"
ARABIC = "قالب"
LINK = "[a](http://evil.example) `x` | y & <b>"
LONG = "x" * 5_000
NAMES = (SCRIPT, OVERRIDE, ARABIC, LINK, LONG)
VOID = {"meta", "br"}


class Page(HTMLParser):
    """Tags with their attributes, in order; complains about what is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def report() -> WeekReport:
    """Two weeks in which every hostile template loses, and a reset of a hostile replica."""
    made = Memory()
    for name in NAMES:
        columns = {"template": name, "tenant": name, "model": name, "source": name}
        made.insert("requests", same(30, "11-18 10:00", prompt_tokens=1000, cached_tokens=900,
                                     **columns))  # fmt: skip
        made.insert("requests", same(30, "11-25 10:00", prompt_tokens=1000, cached_tokens=100,
                                     **columns))  # fmt: skip
    made.insert("block_resets", [{"ts": same(1, "11-25 09:00")[0]["ts"], "replica": SCRIPT,
                                  "reason": "sleep"}])  # fmt: skip
    made.insert("rejects", [{"arrived": same(1, "11-25 09:00")[0]["ts"], "source": LINK,
                             "reason": SCRIPT}])  # fmt: skip
    return made.report()


@pytest.fixture(scope="module")
def held(report: WeekReport) -> Callable[[], WeekReport]:
    """The report, in a wrapper that is short where a property test prints its arguments."""
    return lambda: report


@pytest.fixture(scope="module")
def page(report: WeekReport) -> Page:
    parsed = Page()
    parsed.feed(render(report, "html").decode())
    assert parsed.open == []
    return parsed


def test_html_runs_nothing_and_fetches_nothing(page: Page) -> None:
    names = {name for name, _ in page.tags}
    assert not names & {"script", "img", "link", "iframe", "object", "form", "a", "b", "base"}
    attributes = {key for _, given_ in page.tags for key in given_}
    assert not {key for key in attributes if key.startswith("on")}
    assert not attributes & {"src", "href", "xlink:href", "action"}
    policy = next(a for n, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"
    style = page.text[page.text.index(next(t for t in page.text if "@media print" in t))]
    assert "url(" not in style
    assert "@import" not in style


def test_hostile_names_are_shown_as_they_are_and_bounded(page: Page) -> None:
    text = "\n".join(page.text)
    assert SCRIPT in text
    assert LINK in text
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in text
    assert LONG[:59] + "…" in text
    assert LONG[:60] not in text
    named = [place for place, (name, _) in enumerate(page.tags) if name == "bdi"]
    assert named, "names keep their writing direction to themselves"


def test_charts_say_what_they_show(page: Page) -> None:
    charts = [given_ for name, given_ in page.tags if name == "svg"]
    assert len(charts) >= 2
    ids = {given_["id"] for _, given_ in page.tags if "id" in given_}
    for chart in charts:
        assert chart["role"] == "img"
        assert set(str(chart["aria-labelledby"]).split()) <= ids


def test_markdown_makes_no_markup_of_names(report: WeekReport) -> None:
    text = render(report, "md").decode()
    assert "\\<script\\>alert\\(1\\)\\</script\\>" in text
    assert "<script" not in text.replace("\\<script", "")
    assert "](http" not in text.replace("\\]\\(http", "")
    lines = text.splitlines()
    heading = next(line for line in lines if line.startswith("| template "))
    row = next(line for line in lines if line.startswith("| \\[a\\]"))
    assert _cells(row) == _cells(heading) > 4


def _cells(line: str) -> int:
    """Bars that part cells: those no backslash stands before."""
    return len(re.findall(r"(?<!\\)\|", line))


def test_json_has_every_field_and_no_number_that_is_none(report: WeekReport) -> None:
    said = json.loads(render(report, "json"), parse_constant=pytest.fail)
    assert list(said) == ["schema", *(each.name for each in fields(WeekReport))]
    assert said["schema"] == "prefixscope.report/1"
    assert said["week"] == {
        "name": "2026-W48", "zone": "UTC", "hours": 168.0,
        "since": "2026-11-23T00:00:00Z", "until": "2026-11-30T00:00:00Z",
    }  # fmt: skip
    assert said["headline"]["token_hit_ratio"] == 0.1
    assert said["segments"][0]["by"] == "template"


@pytest.mark.parametrize("form", FORMATS)
def test_the_same_report_is_the_same_bytes(report: WeekReport, form: str) -> None:
    assert render(report, form) == render(replace(report), form)


def test_unknown_form_names_the_known_ones(report: WeekReport) -> None:
    with pytest.raises(ValueError, match="html, md, json"):
        render(report, "pdf")


def test_changes_are_at_most_three_with_range_and_basis(report: WeekReport) -> None:
    change = Change("layout", "checkout", "Put the date behind the rules", 12_000, 18_500,
                    "replayed", "Of 40 prompts.", "prefixscope lint x.jsonl", "")  # fmt: skip
    html = render(replace(report, changes=(change,)), "html").decode()
    assert "12,000–18,500 tokens a day (replayed)" in html
    assert "prefixscope lint x.jsonl" in html
    none = render(replace(report, changes=()), "html").decode()
    assert words.NO_CHANGES in none
    assert words.NO_CHANGES not in html


@settings(max_examples=60)
@given(st.text(max_size=900), st.text(max_size=900), st.integers(0, 10**15))
def test_a_summary_fits_600_characters_and_keeps_the_sentence(
    held: Callable[[], WeekReport], name: str, why: str, tokens: int
) -> None:
    report = held()
    mover = Mover("template", name, -tokens, 0.1, 0.2, 0.3, why)
    change = Change("kind", name, why, tokens, None, "estimated", why, name, why)
    quality = replace(report.quality, revised=why)
    made = replace(report, down=(mover,), changes=(change,), quality=quality)
    text = summary(made)
    assert len(text) <= 600
    assert report.headline.sentence in text
    assert all(line.isprintable() for line in text.split("\n"))


@given(st.text())
def test_text_from_outside_makes_no_tag(text: str) -> None:
    parsed = Page()
    parsed.feed(tag("p", bdi(text), title=text))
    parsed.close()
    assert [name for name, _ in parsed.tags] == ["p", "bdi"]
    assert "".join(parsed.text).replace("\r", "\n") == text.replace("\r", "\n")


@given(st.text(), st.integers(1, 500))
def test_a_told_sentence_is_one_printable_line(text: str, longest: int) -> None:
    line = told(text, longest)
    assert len(line) <= longest
    assert line.isprintable()


def test_markup_is_what_was_made_here() -> None:
    assert joined("<b>", None, tag("b", "&")) == "&lt;b&gt;<b>&amp;</b>"
    assert void("rect", x="1", stroke_width="2") == '<rect x="1" stroke-width="2"/>'
    assert escaped("a*b|<c> http://x www.y") == "a\\*b\\|\\<c\\> http\\://x www\\.y"


def test_the_documented_fields_are_those_of_the_json(report: WeekReport) -> None:
    """Every name in code marks in the table of docs/report.md, against the dataclasses."""
    page = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    lines = page.split("## JSON", 1)[1].splitlines()
    named = {
        name for line in lines if line.startswith("| `") for name in re.findall(r"`(\w+)`", line)
    }
    held = [
        kind
        for module in (week, detail_values, missed_values, quality_values)
        for kind in vars(module).values()
        if is_dataclass(kind)
    ]
    there = {each.name for kind in held for each in fields(kind)} - {"monday"}
    assert named - {"schema"} == there | {"name", "zone", "hours", "since", "until"}


@pytest.mark.parametrize(("name", "hours", "skipped"), [("2026-W13", 167, 1), ("2026-W43", 169, 0)])
def test_t78_the_week_by_hour_shows_the_hours_its_clocks_show(
    report: WeekReport, name: str, hours: int, skipped: int
) -> None:
    """An hour that comes twice is two cells, one that is skipped an empty frame."""
    berlin = Week.parse(name, "Europe/Berlin")
    cells = tuple(
        HourCell(slot, berlin.since, 0.5, 1.0, 100, 100, False, None, None)
        for slot in berlin.slots()
    )
    made = replace(report, week=berlin, hours=cells)
    chart = charts.heat_map(made)
    assert chart.count(">50</text>") == hours
    assert chart.count('stroke-dasharray="2 2"') == skipped
    table = render(made, "md").decode()
    assert ("02 again" in table) is (hours == 169)
    assert f"{hours} hours: the clocks change" in table
    assert len(re.findall(r"\| 50(?= )", table)) == hours
