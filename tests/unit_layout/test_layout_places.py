"""Places found in generated traffic with a known defect; prompts compared by brute force."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.layout_chains.findings import layout_findings
from replay.layout_chains.groups import groups_of
from replay.layout_chains.prompts import Prompts, reused_tokens
from replay.layout_chains.ranges import ranges_of
from replay.layout_chains.words import advice_on
from replay.lru import modelled_cached_tokens
from replay.rules import RULES
from replay.traffic import Chains, Traffic
from tests.token_pieces import pieces_of
from tests.unit_layout.inject_token_defects import inject
from tests.unit_layout.told_from_tokens import VLLM, chains_of, found_in, is_right, prompts_of

# Contents of blocks as small numbers: equal numbers are equal tokens.
CONTENTS = st.lists(st.lists(st.integers(1, 4), max_size=6), min_size=1, max_size=8)
PLACE_KINDS = (
    "tool_order", "retrieved", "template_version", "thinking_removed", "tokenizer_join", "unknown",
)  # fmt: skip
OTHER_KINDS = ("below_minimum", "short_prefix", "key_lineage", "routing_key", "no_local_cause")
FREQUENCIES = ("once", "request", "session", "user", "day")


# bench_layout has all kinds and many seeds; frequencies are told of small traffic below.
@pytest.mark.parametrize(
    "defect",
    ["value_request", "tool_order", "template_version", "thinking_removed", "tokenizer_join"],
)
def test_a_defect_is_found_with_its_kind_frequency_and_place(defect: str) -> None:
    injected = inject(101, defect)
    found = found_in(injected)
    assert [is_right(each, injected.truth) for each in found] == [True], found


@pytest.mark.parametrize("defect", ["value_request", "tool_order"])
def test_the_gain_told_is_what_mending_it_really_wins(defect: str) -> None:
    """The same traffic with the value moved to the end, or the tools in one order. Blocks that a
    value shares with its neighbours count as lost, so that a little less is told."""
    before, after = (prompts_of(inject(103, defect, mended).requests) for mended in (False, True))
    (found,) = layout_findings(before, VLLM)
    reused = [int(reused_tokens(each.contents, each.scope, 16).sum()) for each in (before, after)]
    assert found.gain_tokens == pytest.approx(reused[1] - reused[0], rel=0.03)


@pytest.mark.parametrize("seed", [101, 102])
def test_a_template_without_a_defect_has_no_finding(seed: int) -> None:
    assert found_in(inject(seed, None)) == []


def test_no_text_and_no_token_id_reaches_a_finding() -> None:
    """All that is handed over are hashes; a finding is numbers and words of ours."""
    (found,) = found_in(inject(101, "value_request"))
    assert {type(value) for value in vars(found).values()} <= {str, int, float, bool, type(None)}
    assert (found.kind, found.frequency) == ("unknown", "request")


def prompts_of_contents(contents: list[list[int]], **columns: object) -> Prompts:
    """Blocks of 16 tokens; chain names are made here, in the plainest way."""
    chains = [[hash(tuple(own[: end + 1])) % 2**63 for end in range(len(own))] for own in contents]
    return Prompts.of(
        Chains.of(chains, 16, contents),
        prompt_tokens=[16 * len(own) + 1 for own in contents],
        **{"started": [*range(len(contents))], **columns},  # type: ignore[arg-type]
    )


def shared(one: list[int], other: list[int]) -> int:
    depth = 0
    while depth < min(len(one), len(other)) and one[depth] == other[depth]:
        depth += 1
    return depth


@settings(max_examples=30, deadline=None)
@given(CONTENTS)
def test_what_could_be_reused_is_the_longest_beginning_seen_before(
    contents: list[list[int]],
) -> None:
    told = prompts_of_contents(contents)
    expected = [
        16 * max((shared(own, before) for before in contents[:row]), default=0)
        for row, own in enumerate(contents)
    ]
    space = np.zeros(len(contents), np.int64)
    assert reused_tokens(told.contents, space, 16).tolist() == expected
    traffic = Traffic(
        prompt_tokens=told.prompt_tokens, cached_tokens=told.cached_tokens,
        chains=Chains.of([chain.tolist() for chain in told.chains], 16),
    )  # fmt: skip
    modelled = modelled_cached_tokens(traffic, RULES["full"].of_blocks(16), None)
    assert modelled.tolist() == expected


@settings(max_examples=30, deadline=None)
@given(CONTENTS)
def test_ranges_count_requests_as_loops_do(contents: list[list[int]]) -> None:
    found = ranges_of(prompts_of_contents(contents))
    blocks = max(len(own) for own in contents)
    # So few requests: the shares of two ranges differ by more than a fiftieth, or not at all.
    for block in range(blocks):
        (own,) = [each for each in found if each.from_token <= 16 * block < each.until_token]
        have = [row for row in contents if len(row) > block]
        heads = [tuple(row[: block + 1]) for row in have]
        assert own.requests == len(have)
        assert own.same_requests == max(map(heads.count, heads))
        assert own.reuse_requests == sum(heads.count(head) > 1 for head in heads)
        assert own.content_requests == sum(
            any(row[block] in other for other in contents if other is not row) for row in have
        )
    assert sum(each.until_token - each.from_token for each in found) == 16 * blocks


def test_a_new_version_costs_each_replica_its_text_once() -> None:
    """40 blocks of instructions, the 11th of which changes on the tenth request; two replicas."""
    head, tail = list(range(100, 110)), list(range(200, 229))
    contents = [[*head, 1 if row < 10 else 2, *tail, 1000 + row] for row in range(20)]
    told = prompts_of_contents(
        contents,
        started=[60.0 * row for row in range(20)],
        ready=[60.0 * row + 5 for row in range(20)],
        replica=["ab"[row % 2] for row in range(20)],
    )
    (found,) = layout_findings(told, VLLM)
    assert (found.kind, found.frequency, found.from_token) == ("template_version", "once", 160)
    # Blocks 10 to 39 on each replica; b sees it first with request 11, whose first token ends it.
    assert found.lost_tokens == 2 * 30 * 16
    assert (found.since, found.warm_again_by) == (600.0, 665.0)
    assert found.gain_tokens == 0


@pytest.mark.parametrize(
    ("value", "frequency"),
    [
        (lambda row: row, "request"),
        (lambda row: row // 3, "session"),
        (lambda row: row % 4, "user"),
        (lambda row: 0 if row < 20 else 1, "day"),
    ],
)
def test_how_often_a_value_changes(value: Callable[[int], int], frequency: str) -> None:
    """Sessions of three requests, tenants that come in turn, a midnight between rows 19 and 20."""
    rows = range(40)
    contents = [
        [1, 2, 10_000 + value(row), *range(100, 130), 20_000 + row, 30_000 + row] for row in rows
    ]
    told = prompts_of_contents(
        contents,
        started=[86_400.0 * 100 + 600 * (row - 19.5) for row in rows],
        session=[row // 3 if frequency == "session" else row for row in rows],
        tenant=[f"tenant {row % 4}" for row in rows],
    )
    (found,) = layout_findings(told, VLLM)
    assert (found.kind, found.frequency, found.from_token) == ("unknown", frequency, 32)
    # Each further value costs the instructions behind it once more.
    values = len({value(row) for row in rows})
    assert found.gain_tokens == (values - 1) * 30 * 16


def test_own_text_behind_an_equal_beginning_is_no_finding() -> None:
    contents = [[*range(1, 21), *range(1000 * row, 1000 * row + 30)] for row in range(1, 12)]
    assert layout_findings(prompts_of_contents(contents), VLLM) == []


def test_requests_of_no_template_are_put_together_by_what_they_hold() -> None:
    """A number of its own in front of each; one request shares nothing."""
    contents = [[10 + row, *range(100 + 50 * (row % 2), 120 + 50 * (row % 2))] for row in range(7)]
    told = prompts_of_contents([*contents, [900, 901]])
    assert [group.tolist() for group in groups_of(told)] == [[0, 2, 4, 6], [1, 3, 5]]


@settings(max_examples=25, deadline=None)
@given(CONTENTS, st.data())
def test_whatever_prompts_hold_findings_are_within_bounds(
    contents: list[list[int]], data: st.DataObject
) -> None:
    """No content makes it fail, sessions, counts, scopes and pieces as they come."""
    count = len(contents)

    def column(values: st.SearchStrategy[object]) -> list[object]:
        return data.draw(st.lists(values, min_size=count, max_size=count))

    told = prompts_of_contents(
        contents,
        started=column(st.integers(0, 400_000)),
        session=column(st.sampled_from(["", "s", "t"])),
        tenant=column(st.sampled_from(["", "a", "b"])),
        scope=column(st.sampled_from(["", "x", "y", "z"])),
        cached_tokens=column(st.integers(-1, 64)),
        output_tokens=column(st.integers(0, 400)),
        pieces=pieces_of(contents) if data.draw(st.booleans()) else None,
    )
    for rule in (VLLM, RULES["openai"], RULES["vllm"].of_blocks(64)):
        for each in layout_findings(told, rule, is_hosted=rule.name == "openai"):
            assert each.kind in (*PLACE_KINDS, *OTHER_KINDS)
            assert each.frequency in (*FREQUENCIES, "")
            assert (each.frequency == "") == (each.kind in OTHER_KINDS)
            assert 0 <= each.from_token <= each.until_token
            assert 0 < each.requests <= each.template_requests == count
            assert 0 <= each.gain_tokens <= told.prompt_tokens.sum()
            assert advice_on(each, int(told.prompt_tokens.sum()), 16)


def test_nothing_and_one_request_have_no_findings() -> None:
    for contents in ([], [[]], [[1, 2, 3]]):
        told = prompts_of_contents(contents)
        assert layout_findings(told, VLLM) == []
        assert groups_of(told) == []
    assert ranges_of(prompts_of_contents([])) == []


def test_what_fills_no_block_of_the_cache_is_no_rewritten_history() -> None:
    """Caches of blocks of 64 tokens name 64 at once; what is behind the last of a prompt has no
    name, and comes back with one once the conversation goes on."""
    sent = inject(101, None).requests
    whole = [chains_of([each.token_ids]).cut(np.array([len(each.token_ids) // 64 * 4]))
             for each in sent]  # fmt: skip
    contents = [own.contents for own in whole if own.contents is not None]
    prompts = Prompts.of(
        Chains.of([own.names.tolist() for own in whole], 16, [own.tolist() for own in contents]),
        prompt_tokens=[len(each.token_ids) for each in sent],
        output_tokens=[len(each.answer_ids) for each in sent],
        started=[each.started for each in sent],
        session=[each.session for each in sent],
    )
    assert layout_findings(prompts, VLLM) == []
