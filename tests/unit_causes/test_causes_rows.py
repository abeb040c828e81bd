"""From rows to sums: what a row says of itself decides what its tokens count as."""

from prefixscope.attribution import Assumed, waterfall
from tests.unit_causes.told import row, table_of

HUNDRED = list(range(100))


def test_what_stands_behind_the_last_breakpoint_leaves_its_request_eligible() -> None:
    """1,600 prompt tokens of which 1,590 are marked: written once, then read three times. All
    that the reads miss is ineligible, and yet a cache served them."""
    marked = {"provider": "anthropic", "cache_write_tokens": 0}
    reads = [row(HUNDRED, 10.0 * turn, cached_tokens=1590, **marked) for turn in (1, 2, 3)]
    first = row(HUNDRED, provider="anthropic", cache_write_tokens=1590)
    total = waterfall(table_of([first, *reads]), Assumed()).total
    assert total.causes["ineligible"] == 4 * 10
    assert total.eligible_prompt_tokens == 4 * 1600
    assert total.token_hit_ratio == 3 * 1590 / (4 * 1600)


def test_tokens_cached_in_spite_of_no_cache_are_in_no_ratio() -> None:
    off = row(HUNDRED, cached_tokens=1000, ineligible_reason="caching_off")
    total = waterfall(table_of([off, row(HUNDRED, 5.0)]), Assumed()).total
    assert total.cached_tokens == 1000
    assert (total.eligible_cached_tokens, total.eligible_prompt_tokens) == (0, 1600)
    assert total.token_hit_ratio == 0
    assert total.causes["ineligible"] == 600


def test_a_request_that_marked_nothing_for_a_cache_is_in_no_ratio() -> None:
    unmarked = row(HUNDRED, provider="anthropic", cache_write_tokens=0)
    total = waterfall(table_of([unmarked]), Assumed()).total
    assert total.causes["ineligible"] == 1600
    assert total.token_hit_ratio is None
