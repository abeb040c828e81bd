"""What is summed of a found template follows its name, however often it gets another."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.store.store import Store
from exporter.templates_found.find import find_templates
from exporter.templates_found.keep import give_name

CHECKOUT, SEARCH = "auto:00000001", "auto:00000002"
HOUR = "TIMESTAMP '2026-03-02 12:00:00'"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Two found templates of which only sums are left: rows are no longer hot."""
    opened = Store.open(tmp_path / "store")
    with opened.write() as cursor:
        cursor.execute(
            f"""INSERT INTO found_templates BY NAME
            SELECT name, 1::UBIGINT AS prefix, 'k' AS hash_key_id, 16 AS prefix_tokens,
                {HOUR} AS first_seen, {HOUR} AS last_seen, 1 AS requests
            FROM (VALUES ('{CHECKOUT}'), ('{SEARCH}')) AS t(name)"""
        )
    _sum(opened, CHECKOUT, 40)
    _sum(opened, SEARCH, 7)
    yield opened
    opened.close()


def _sum(store: Store, template: str, tokens: int) -> None:
    with store.write() as cursor:
        for table in ("hour_rollup", "cause_hours"):
            cursor.execute(
                f"INSERT INTO {table} BY NAME SELECT {HOUR} AS hour, $template AS template,"
                " $tokens AS prompt_tokens",
                {"template": template, "tokens": tokens},
            )


def _sums(store: Store) -> list[dict[str, int]]:
    return [
        dict(
            store.cursor()
            .execute(f"SELECT template, sum(prompt_tokens)::INT FROM {table} GROUP BY ALL")
            .fetchall()
        )
        for table in ("hour_rollup", "cause_hours")
    ]


def test_both_sums_follow_from_name_to_name(store: Store) -> None:
    for name in ("checkout", "pay", CHECKOUT, "checkout"):
        give_name(store, CHECKOUT, name)
        assert _sums(store) == [{name: 40, SEARCH: 7}] * 2


def test_a_minute_sealed_while_it_was_renamed_follows_later(store: Store) -> None:
    give_name(store, CHECKOUT, "checkout")
    give_name(store, CHECKOUT, "pay")
    _sum(store, CHECKOUT, 2)
    _sum(store, "checkout", 1)
    find_templates(store)
    assert _sums(store) == [{"pay": 43, SEARCH: 7}] * 2


def test_sums_of_rows_with_that_label_stay(store: Store) -> None:
    _sum(store, "shop", 5)
    give_name(store, CHECKOUT, "shop")
    assert _sums(store) == [{"shop": 45, SEARCH: 7}] * 2
    give_name(store, CHECKOUT, "pay")
    assert _sums(store) == [{"shop": 45, SEARCH: 7}] * 2, "nothing tells them apart any more"


def test_a_label_that_rows_brought_later_stays(store: Store) -> None:
    give_name(store, CHECKOUT, "checkout")
    with store.write() as cursor:
        cursor.execute(
            f"""INSERT INTO requests BY NAME SELECT {HOUR} AS ts, {HOUR} AS arrived, 1 AS attempt,
                'log' AS source, 'test' AS source_format, 'ok' AS status, 'miss' AS outcome,
                'inclusive' AS prompt_basis, 'checkout' AS template, 1 AS batch, 0 AS position"""
        )
    find_templates(store)
    with store.write() as cursor:
        cursor.execute("DELETE FROM requests")
    give_name(store, CHECKOUT, "pay")
    assert _sums(store) == [{"checkout": 40, SEARCH: 7}] * 2


def test_what_two_had_under_one_name_stays(store: Store) -> None:
    """What two had under one name cannot be taken apart; names that one had alone can."""
    give_name(store, CHECKOUT, "checkout")
    give_name(store, SEARCH, "search")
    give_name(store, SEARCH, "checkout")
    assert _sums(store) == [{"checkout": 47}] * 2
    give_name(store, CHECKOUT, "pay")
    _sum(store, CHECKOUT, 3)
    find_templates(store)
    assert _sums(store) == [{"checkout": 47, "pay": 3}] * 2


def test_a_name_is_shared_before_anything_is_summed_under_it(store: Store) -> None:
    with store.write() as cursor:
        cursor.execute("DELETE FROM hour_rollup")
        cursor.execute("DELETE FROM cause_hours")
    give_name(store, CHECKOUT, "shop")
    give_name(store, SEARCH, "shop")
    _sum(store, "shop", 9)
    give_name(store, SEARCH, "search")
    give_name(store, CHECKOUT, "checkout")
    assert _sums(store) == [{"shop": 9}] * 2
