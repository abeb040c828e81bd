"""From rows to sums: what a row says of itself decides what its tokens count as."""

from datetime import timedelta

import numpy as np
import pytest

from exporter.errors import PrefixscopeError
from prefixscope.output import Output
from prefixscope.waterfall.attribution import Assumed, waterfall
from prefixscope.waterfall.audit_output import Audits
from prefixscope.waterfall.heard import Heard
from prefixscope.waterfall.output import as_json, write
from replay.rules import RULES
from replay.traffic import Moments, Stays
from tests.unit_causes.told import NOON, ours, row, table_of, taken

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


def test_the_first_row_with_a_chain_begins_what_is_known() -> None:
    """A log that had rows before it had chains."""
    day, bare = 86_400.0, {"block_hashes": None, "block_size": None, "prompt_tokens": 100}
    rows = [
        row([], 0.0, cached_tokens=64, **bare),
        row([], 10 * day, cached_tokens=None, **bare),
        row([], 10 * day, ineligible_reason="caching_off", **bare),
        row([1, 2, 3], 10 * day, cached_tokens=16, template="t"),
        row([4, 5], 16.9 * day, template="t"),
        row([6], 17.1 * day, template="t"),
    ]
    found = waterfall(table_of(rows), Assumed(), by="template")
    total = found.total
    # Of 48, 32 and 16 tokens the last block is computed anyhow: 16, 16 and 0 are new.
    assert (total.causes["new"], total.details["new_warming"]) == (32, 32)
    assert total.warm_before_log_tokens == 16
    assert (total.chainless_requests, total.chainless_prompt_tokens) == (1, 100)
    assert (total.unreported_requests, total.causes["ineligible"]) == (1, 100)
    assert found.groups["t"].chainless_requests == 0
    late = row([7, 8], 17.1 * day)
    total = waterfall(table_of([*rows, late]), Assumed()).total
    assert (total.causes["new"], total.details["new_warming"]) == (48, 32)


def test_chains_of_text_before_the_first_of_tokens_tell_nothing_of_them() -> None:
    text = row([1, 2], 0.0, text_bytes=128, hash_key_id="k")
    rows = [text, row([3, 4], 8 * 86_400.0, template="t")]
    later = waterfall(table_of(rows), Assumed(), by="template").groups["t"]
    # The second of two blocks is computed anyhow.
    assert (later.causes["new"], later.details["new_warming"]) == (16, 16)


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


def test_hours_follow_each_other_in_time() -> None:
    sizes = {0: 5, 3: 50, 1: 20}
    rows = [row(HUNDRED[:blocks], 3600.0 * hour) for hour, blocks in sizes.items()]
    hours = list(waterfall(table_of(rows), Assumed(), by="hour").groups)
    assert hours == [f"2026-03-02T{hour}:00:00Z" for hour in (12, 13, 15)]


def test_requests_go_round_by_their_place_in_the_file_whatever_rule_they_have() -> None:
    rows = [
        row(HUNDRED[:4], float(turn), grain=grain, cached_tokens=None)
        for turn, grain in enumerate((16, 32, 16, 32))
    ]
    groups = waterfall(table_of(rows), Assumed(replicas=2), by="replica").groups
    prompt = {name: sums.prompt_tokens for name, sums in groups.items()}
    assert prompt == {"0": 2 * 64, "1": 2 * 128}


def test_a_trace_of_a_cache_that_counts_token_by_token() -> None:
    rows = [row(HUNDRED[:5], float(turn), cached_tokens=None) for turn in (0, 1)]
    total = waterfall(table_of(rows), Assumed(RULES["llama_cpp"])).total
    assert total.cached_tokens == 79
    assert taken(total.causes) == {"new": 79, "rounding": 2}


def test_a_memory_size_says_nothing_of_hosted_rows_beside_ones_own() -> None:
    hosted = row(HUNDRED, provider="anthropic", cache_write_tokens=1600)
    mine = [row(HUNDRED, 4.0, replica="a"), row(HUNDRED, 9.0, replica="a", cached_tokens=160)]
    compared = waterfall(table_of([hosted, *mine]), Assumed(capacity_blocks=10)).compared
    assert compared is not None
    assert (compared.requests, compared.differing_requests) == (2, 0)


def test_a_lifetime_is_not_modelled() -> None:
    """By --rule it is refused, and rows of a hosted cache stay without a count."""
    bare = [row(HUNDRED, float(turn), cached_tokens=None) for turn in (0, 1)]
    with pytest.raises(PrefixscopeError, match="name another --rule"):
        waterfall(table_of(bare), Assumed(RULES["anthropic"]))
    with pytest.raises(PrefixscopeError, match="without --capacity-blocks"):
        waterfall(table_of([row(HUNDRED)]), Assumed(RULES["anthropic"], capacity_blocks=9))
    hosted = row(HUNDRED, 5.0, provider="anthropic", cached_tokens=None)
    total = waterfall(table_of([*bare, hosted]), Assumed()).total
    assert (total.requests, total.unreported_requests) == (2, 1)


@pytest.mark.parametrize(
    ("assumed", "remedy"),
    [
        (Assumed(block_tokens=24), "give another --block-tokens"),
        (Assumed(RULES["openai"]), "the rule openai is fixed, so name another with --rule"),
    ],
)
def test_blocks_that_do_not_go_into_each_other_name_the_way_out(
    assumed: Assumed, remedy: str
) -> None:
    with pytest.raises(PrefixscopeError, match=remedy):
        waterfall(table_of([row(HUNDRED, grain=20)]), assumed)


def test_rows_whose_blocks_do_not_fit_are_left_out_beside_others() -> None:
    """A provider's blocks of 128 tokens, and a hash of 20."""
    odd = row(HUNDRED, grain=20, provider="azure", replica=None)
    found = waterfall(table_of([ours([1, 2, 3]), odd, ours([1, 2, 3], 9.0)]), Assumed())
    assert (found.unfit_requests, found.total.requests, found.total.prompt_tokens) == (1, 2, 96)
    assert as_json(found, None)["unfit_requests"] == 1
    assert waterfall(table_of([ours([1, 2, 3])]), Assumed()).unfit_requests == 0
    with pytest.raises(PrefixscopeError, match="name another with --rule"):
        waterfall(table_of([odd]), Assumed())


def test_rows_that_name_no_replica_get_no_name_from_a_reset() -> None:
    reset = Heard(("vllm-0",), Moments.of([(0, NOON.timestamp() + 1.0)]))
    rows = [row(HUNDRED[:5], 10.0 * turn) for turn in (0, 1)]
    found = waterfall(table_of(rows), Assumed(), reset, by="replica")
    assert list(found.groups) == [""]
    assert found.total.causes["reset"] == 0


def heard_of(sizes: dict[str, int]) -> Heard:
    """Replicas whose events told of a block that no row has."""
    stays = Stays(
        np.array([5], np.uint64), np.array([0]), np.array([1.0]), np.array([2.0]), np.array([0])
    )
    return Heard(tuple(sizes), stays=stays, block_tokens=sizes)


def test_the_events_of_each_replica_tell_its_own_block() -> None:
    """Of 48 tokens that were there, blocks of 16 could serve 32, and one of 64 none."""
    rows = [ours([1, 2, 3], 5.0 * turn, replica=name) for name in "ab" for turn in (0, 1)]
    groups = waterfall(table_of(rows), Assumed(), heard_of({"a": 16, "b": 64}), "replica").groups
    assert groups["a"].causes["evicted"] == 32
    assert taken(groups["b"].causes) == {"rounding": 96}


def test_rows_without_any_count_beside_several_ranks_are_no_error() -> None:
    rows = [row(HUNDRED[:4]), row(HUNDRED[:4], 1.0, grain=32, cached_tokens=None)]
    total = waterfall(table_of(rows), Assumed(), heard_of({"a/0": 16, "a/1": 16})).total
    assert (total.requests, total.unreported_requests) == (1, 1)


def test_only_what_was_new_within_seven_days_of_the_first_row_may_be_older_than_the_log() -> None:
    """64 new tokens at first, 80 more a second before the seven days are over, 96 at their end."""
    week = 7 * 86_400.0
    rows = [row(HUNDRED[:5]), row(HUNDRED[20:26], week - 1), row(HUNDRED[40:47], week)]
    found = waterfall(table_of(rows), Assumed(), by="tenant")
    assert found.total.causes["new"] == 64 + 80 + 96
    assert found.total.details["new_warming"] == 64 + 80
    assert found.groups[""].details["new_warming"] == 64 + 80
    later = waterfall(table_of(rows), Assumed(), since=(NOON + timedelta(7)).replace(tzinfo=None))
    assert later.total.causes["new"] == 96
    assert not later.warming


def test_rows_judged_by_another_block_than_stated_are_counted() -> None:
    rows = [ours([7, 8, 9], 5.0 * turn, replica=name) for name in "ab" for turn in (0, 1)]
    assert waterfall(table_of(rows), Assumed()).overruled_requests == 0
    assert waterfall(table_of(rows), Assumed(block_tokens=64)).overruled_requests == 4
    # Events win over rows, and --block-tokens over both.
    told = heard_of({"a": 16, "b": 64})
    assert waterfall(table_of(rows), Assumed(), told).overruled_requests == 2
    unstated = [each | {"block_size": None} for each in rows]
    assert waterfall(table_of(unstated), Assumed(), told).overruled_requests == 0
    assert waterfall(table_of(unstated), Assumed(block_tokens=16), told).overruled_requests == 2
    # A trace's hashes stand for the block it states, and the cache's may be another.
    trace = [row(HUNDRED[:5], float(turn), grain=32, cached_tokens=None) for turn in (0, 1)]
    assert waterfall(table_of(trace), Assumed(block_tokens=16)).overruled_requests == 0


def test_requests_that_no_rank_shows_are_counted_and_taken_for_the_first() -> None:
    """Block 5 of the events is in neither of the requests."""
    rows = [row(HUNDRED[:4]), row(HUNDRED[:4], 5.0)]
    found = waterfall(table_of(rows), Assumed(), heard_of({"a/0": 16, "a/1": 16}), by="replica")
    assert found.unplaced_requests == 2
    assert list(found.groups) == ["a/0"]


def test_what_a_cache_of_other_blocks_had_is_known_of_it() -> None:
    """b, with blocks of 64, computes 80 tokens; then a, with blocks of 16, is asked for them."""
    rows = [
        ours([1, 2, 3, 4, 5], replica="b", block_size=64),
        ours([1, 2, 3, 4, 6], 5.0, replica="a", block_size=16),
        ours([1, 2, 3, 4, 7], 10.0, replica="b", block_size=64),
    ]
    found = waterfall(table_of(rows), Assumed(), by="replica")
    assert taken(found.groups["a"].causes) == {"routed": 64, "rounding": 16}
    assert taken(found.groups["b"].causes) == {"new": 64, "evicted": 64, "rounding": 32}
    assert found.total.requests == 3


def test_a_request_is_taken_to_be_over_after_an_hour() -> None:
    """However long its row says it took, its prompt is not under way for ever."""
    for slow in ({"e2e_seconds": 1e9}, {"ttft_seconds": 1e9}, {"ttft_seconds": float("inf")}):
        for second, cause in ((3599.0, "concurrent"), (3601.0, "evicted")):
            rows = [ours([1, 2, 3], **slow), ours([1, 2, 3], second)]
            found = waterfall(table_of(rows), Assumed()).total
            assert taken(found.causes) == {"new": 32, cause: 32, "rounding": 32}


def test_a_group_that_tells_no_cached_tokens_is_no_row_of_zeros(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of `chat` 16 tokens were cached of 32; of `batch` nobody knows, which is not 0."""
    rows = [row([1, 2], cached_tokens=16, template="chat"),
            row([3, 4], 1.0, cached_tokens=None, template="batch")]  # fmt: skip
    found = waterfall(table_of(rows), Assumed(), by="template")
    write(found, "template", Output.TABLE, Audits())
    shown = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert shown["chat"][:2] == ["32", "16"]
    assert set(shown["batch"]) == {"–"}
    write(found, "template", Output.CSV, Audits())
    assert set(capsys.readouterr().out.splitlines()[-1].split(",")) == {"batch", "0", ""}
