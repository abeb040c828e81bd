"""From rows to sums: what a row says of itself decides what its tokens count as."""

import pytest

from prefixscope.attribution import Assumed, waterfall
from tests.unit_causes.told import ours, row, table_of, taken

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


def test_each_cache_is_judged_by_the_block_its_rows_state() -> None:
    """Of 48 tokens that stood there before, blocks of 16 could serve 32 and one of 64 none."""
    large = [ours([1, 2, 3, 4, 5], 3.0 * turn, block_size=64, model="a") for turn in range(3)]
    small = [ours([7, 8, 9], 20.0 + turn, model="b") for turn in range(2)]
    for rows in (small, [*large, *small]):
        found = waterfall(table_of(rows), Assumed(), by="model").groups["b"]
        assert taken(found.causes) == {"new": 32, "evicted": 32, "rounding": 32}
    both = waterfall(table_of([*large, *small]), Assumed(), by="model")
    assert taken(both.groups["a"].causes) == {"new": 64, "evicted": 128, "rounding": 48}
    assert len(both.rules) == 2


def test_a_row_without_a_block_size_is_judged_like_the_others_of_its_model() -> None:
    rows = [
        ours([1, 2, 3, 4, 5], block_size=64, model="a"),
        ours([1, 2, 3, 4, 5], 1.0, block_size=None, model="a"),
        *(ours([7, 8, 9], 20.0 + turn, model="b") for turn in range(3)),
    ]
    found = waterfall(table_of(rows), Assumed(), by="model").groups["a"]
    assert taken(found.causes) == {"new": 64, "evicted": 64, "rounding": 32}


def test_openai_said_of_ones_own_server_is_no_hosted_cache() -> None:
    """320 tokens are below the minimum of the provider, and 304 of them were there."""
    own = {"provider": "openai", "replica": "vllm-0"}
    found = waterfall(
        table_of([row(HUNDRED[:20], 3.0 * turn, **own) for turn in (0, 1)]), Assumed()
    )
    assert taken(found.total.causes) == {"new": 304, "evicted": 304, "rounding": 32}


@pytest.mark.parametrize("provider", ["openai", "azure", "azure_openai", "Azure.AI.OpenAI"])
def test_hosted_caches_have_the_rule_of_their_provider(provider: str) -> None:
    hosted = ours(HUNDRED[:20], provider=provider, block_size=None)
    found = waterfall(table_of([hosted]), Assumed())
    assert taken(found.total.causes) == {"ineligible": 320}
    assert "1,024 tokens" in found.rules[0]


def test_a_row_without_a_chain_is_judged_by_its_own_provider() -> None:
    bare = row([], 5.0, provider="anthropic", prompt_tokens=800, block_hashes=None, block_size=None)
    total = waterfall(table_of([row(HUNDRED), bare]), Assumed()).total
    assert total.causes["ineligible"] == 800


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"model": "m"}, {"model": ""}),
        ({"model_fingerprint": ""}, {"model_fingerprint": "f"}),
        ({"replica": "a", "model_fingerprint": "f"}, {"replica": "b", "model_fingerprint": ""}),
    ],
)
def test_a_column_that_begins_to_be_filled_is_no_new_version(
    first: dict[str, str], second: dict[str, str]
) -> None:
    total = waterfall(
        table_of([row(HUNDRED[:5], **first), row(HUNDRED[:5], 5.0, **second)]), Assumed()
    ).total
    assert total.causes["redeployed"] == 0
    assert total.causes["evicted"] + total.causes["routed"] == 64


def test_of_two_known_versions_a_row_without_one_is_of_neither() -> None:
    versions = [{"model_fingerprint": name} for name in ("f", "g", "")]
    rows = [row(HUNDRED[:5], 5.0 * turn, **each) for turn, each in enumerate(versions)]
    assert waterfall(table_of(rows), Assumed()).total.causes["redeployed"] == 128


def test_a_hosted_cache_is_one_whatever_block_its_rows_state() -> None:
    hosted = {"provider": "anthropic", "cache_write_tokens": 1600}
    rows = [ours(HUNDRED, **hosted), ours(HUNDRED, 5.0, block_size=32, **hosted)]
    total = waterfall(table_of(rows), Assumed()).total
    assert taken(total.causes) == {"new": 1599, "unserved": 1599, "rounding": 2}
