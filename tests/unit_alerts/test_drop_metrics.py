"""What /metrics says of drops: bounded, one definition, a class that is no label of the alert."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from exporter.drops import MOST_SERIES, Drop, DropSettings, add_drops, judge
from exporter.metrics import Page
from exporter.store.store import Store
from tests.unit_alerts.hours import MONDAY, RATIOS, put_hour

END = MONDAY + timedelta(hours=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Four Mondays as in test_peak_drop, in a store."""
    opened = Store.open(tmp_path)
    for week, ratio in enumerate(RATIOS, 1):
        put_hour(opened.cursor(), MONDAY - timedelta(weeks=week), ratio, tenant="acme")
    yield opened
    opened.close()


def lines(drops: list[Drop]) -> dict[str, float]:
    page = Page()
    add_drops(page, drops)
    return {
        f"{family.name}{{{labels}}}": value
        for family in page.families()
        for _, labels, value in family.lines
    }


def test_a_drop_is_judged_by_model_and_by_what_dropped(store: Store) -> None:
    put_hour(store.cursor(), MONDAY, 0.1, tenant="acme")
    found = judge(store.cursor(), DropSettings(), END)
    labels = {drop.labels: drop for drop in found}
    assert set(labels) == {
        ("log", "m", "", "", ""), ("log", "m", "", "t", ""), ("log", "m", "", "", "acme"),
    }  # fmt: skip
    whole = labels["log", "m", "", "", ""]
    assert whole.drop_ratio == pytest.approx(0.7)
    assert (whole.kind, whole.severity) == ("reuse stopped", "page")


def test_without_a_drop_only_models_have_a_series(store: Store) -> None:
    put_hour(store.cursor(), MONDAY, 0.85, tenant="acme")
    [drop] = judge(store.cursor(), DropSettings(), END)
    assert drop.drop_ratio == pytest.approx(-0.05)
    assert (drop.kind, drop.severity) == (None, None)


def test_without_rows_there_is_nothing(store: Store) -> None:
    assert judge(store.cursor(), DropSettings(), END + timedelta(days=1)) == []


def test_series_are_bounded(store: Store) -> None:
    for number in range(30):
        for week in range(5):
            put_hour(store.cursor(), MONDAY - timedelta(weeks=week), 0.8 if week else 0.1,
                     tenant=f"t{number}")  # fmt: skip
    assert len(judge(store.cursor(), DropSettings(), END)) == MOST_SERIES


def test_the_class_is_a_label_of_info_alone() -> None:
    shown = ("log", "m", "", 'a "quoted" one', "")
    drops = [Drop(shown, 0.25, "reset", "ticket"), Drop(("log", "n", "", "", ""), -0.1, None, None)]
    other = 'basis="log",model="n",route="",template="",tenant=""'
    named = r'basis="log",model="m",route="",template="a \"quoted\" one",tenant=""'
    assert lines(drops) == {
        f"prefixcache_peak_hit_drop_ratio{{{named}}}": 0.25,
        f"prefixcache_peak_hit_drop_severity{{{named}}}": 1,
        f'prefixcache_peak_hit_drop_info{{{named},class="reset"}}': 1,
        f"prefixcache_peak_hit_drop_ratio{{{other}}}": -0.1,
    }


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(ValidationError, match="'Moon/Base' is no time zone; write UTC or Europe"):
        DropSettings(zone="Moon/Base")
