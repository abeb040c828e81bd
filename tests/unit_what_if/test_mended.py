"""Prompts as if their layout had been mended: what a replay of them wins is what findings tell, and
what the same traffic wins that was really mended."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay import mended as mending
from replay.known_blocks import numbered
from replay.layout_chains.findings import layout_findings
from replay.layout_chains.prompts import Prompts as Layout
from replay.mended import NOTHING_WON, Mended, mended, with_mended
from replay.prompts import Prompts
from replay.recorded import Labels, Recorded
from replay.recorded_rows import recorded_rows
from replay.routers import Router
from replay.traffic import Chains
from replay.untimed import serve
from tests.unit_layout.inject_token_defects import Sent, inject
from tests.unit_layout.told_from_tokens import VLLM, chains_of, prompts_of

BEGIN = datetime(2026, 11, 23, 9)  # noqa: DTZ001 - times of the store are UTC without a zone


def replayed(prompts: Prompts) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Cached tokens of each in a cache that never loses a block."""
    return serve(prompts, VLLM, Router(name="round-robin"), 1, None).cached_tokens


def as_prompts(sent: Sequence[Sent]) -> Prompts:
    chains = chains_of([each.token_ids for each in sent])
    started = np.array([each.started for each in sent])
    return Prompts(
        arrived=started - started[0],
        prompt_tokens=np.array([len(each.token_ids) for each in sent]),
        output_tokens=np.array([len(each.answer_ids) for each in sent]),
        blocks=numbered(chains.names)[0],
        starts=chains.starts,
        block_tokens=16,
    )


@cache
def world_of(defect: str | None, seed: int, is_mended: bool = False) -> list[Sent]:
    return inject(seed, defect, is_mended).requests


def mended_of(sent: Sequence[Sent], by_pieces: bool = False) -> Mended:
    """Of requests of one template and scope."""
    nothing = np.zeros(len(sent), np.int64)
    template = Labels(nothing, ["support"])
    return mended(as_prompts(sent), prompts_of(sent, by_pieces), template, nothing)


def won(sent: Sequence[Sent], better: Prompts | None) -> int:
    assert better is not None
    return int((replayed(better) - replayed(as_prompts(sent))).sum())


# Little traffic each. Of a value that comes again and of a date, blocks of its neighbours count as
# lost, so that findings tell it roughly.
@pytest.mark.parametrize(
    ("defect", "seed"),
    [
        ("value_request", 52),
        ("value_session", 19),
        ("value_user", 11),
        ("value_day", 18),
        ("tool_order", 19),
        ("retrieved", 17),
        ("thinking_removed", 53),
        ("tokenizer_join", 18),
    ],
)
def test_a_replay_wins_what_findings_tell_and_mending_really_wins(defect: str, seed: int) -> None:
    world, really = world_of(defect, seed), world_of(defect, seed, True)
    (found,) = [each for each in layout_findings(prompts_of(world), VLLM) if each.frequency]
    gain = won(world, mended_of(world).prompts)
    assert gain == pytest.approx(found.gain_tokens, rel=0.002)
    true_gain = won(world, as_prompts(really))
    if found.in_turns:  # the generator's engine keeps answers too
        cached = [sum(each.cached_tokens for each in sent) for sent in (world, really)]
        true_gain = cached[1] - cached[0]
    assert gain == pytest.approx(true_gain, rel=0.06)


def test_each_mended_place_is_said_as_its_finding_says_it() -> None:
    world = world_of("value_request", 52)
    (found,) = layout_findings(prompts_of(world), VLLM)
    place = f"tokens {found.from_token:,} to {found.until_token - 1:,}"
    changes = "changes with every request, as if it stood behind what stays the same"
    assert mended_of(world).words == [f"support: something within {place}, which {changes}"]


NOTHING = "no layout finding that comes always: there is nothing to mend"


@pytest.mark.parametrize(("defect", "seed"), [("template_version", 12), (None, 18)])
def test_where_nothing_is_mended_it_says_why(defect: str | None, seed: int) -> None:
    assert mended_of(world_of(defect, seed)) == Mended(None, [NOTHING])


def test_later_turns_find_the_whole_prompt_and_answer_that_they_go_on() -> None:
    """What opens an answer is left out of history: by hand, the whole blocks of the prompt before
    and of its answer but for its last token, beyond those that two prompts share."""
    world = world_of("thinking_removed", 53)
    last: dict[str, Sent] = {}
    expected = 0
    for each in world:
        before = last.get(each.session)
        last[each.session] = each
        if before is None:
            continue
        had = len(before.token_ids) + len(before.answer_ids) - 1
        usable = min(had, len(each.token_ids) - 1) // 16 * 16
        common = 0
        while each.token_ids[: common + 16] == before.token_ids[: common + 16]:
            common += 16
        expected += usable - common
    assert expected > 0
    assert won(world, mended_of(world).prompts) == expected


def written(
    sessions: int,
    turns: int,
    value_tokens: Sequence[int],
    is_mended: bool = False,
    request_tokens: int = 0,
) -> list[Sent]:
    """Conversations behind one system prompt of three parts with a value of the session in front
    of the second, and one of the request in front of the third; mended, behind all three, and at
    the end of the prompt."""
    draw = random.Random(5)

    def text(tokens: int) -> list[int]:
        return [draw.randrange(100, 50_000) for _ in range(tokens)]

    parts, sent = [text(tokens) for tokens in (600, 700, 300)], []
    for session in range(sessions):
        value, talk = text(value_tokens[session % len(value_tokens)]), list[int]()
        for turn in range(turns):
            talk, asked = talk + text(70), text(request_tokens)
            laid_out = [*parts, value, talk, asked]
            if not is_mended:
                laid_out = [parts[0], value, parts[1], asked, parts[2], talk]
            prompt = [token for part in laid_out for token in part]
            sent.append(Sent(prompt, [], 100.0 * session + turn, f"session {session}", "t"))
    return sent


def test_places_behind_each_other_win_together_what_each_alone_does_not() -> None:
    world, really = (written(24, 3, [20], better, 20) for better in (False, True))
    found = layout_findings(prompts_of(world), VLLM)
    assert {each.frequency for each in found} == {"session", "request"}
    gain = won(world, mended_of(world).prompts)
    assert gain == pytest.approx(won(world, as_prompts(really)), rel=0.04)
    assert gain > 1.1 * sum(each.gain_tokens for each in found)


def test_requests_beyond_the_sample_are_mended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mending, "MOST_REQUESTS", 24)
    world, really = (written(40, 2, [20, 23], better) for better in (False, True))
    gain = won(world, mended_of(world).prompts)
    # One request of each session but the first finds the 62 whole blocks behind the value.
    assert gain == 39 * 62 * 16
    assert gain == pytest.approx(won(world, as_prompts(really)), rel=0.02)


def test_where_blocks_show_nothing_pieces_do() -> None:
    """Values of twelve lengths, each once: no two requests cut what follows alike."""
    world, really = (written(12, 2, range(20, 32), better) for better in (False, True))
    assert mended_of(world).prompts is None
    gain = won(world, mended_of(world, by_pieces=True).prompts)
    assert gain == pytest.approx(won(world, as_prompts(really)), rel=0.12)


def of_contents(
    contents: list[list[int]], space: Sequence[int], session: Sequence[object]
) -> tuple[Prompts, Layout]:
    """Requests of whole blocks of these contents and one token more, a second apart."""
    chains = [
        [hash((int(space[row]), *own[: end + 1])) % 2**63 for end in range(len(own))]
        for row, own in enumerate(contents)
    ]
    told = Layout.of(
        Chains.of(chains, 16, contents),
        prompt_tokens=[16 * len(own) + 1 for own in contents],
        started=[*range(len(contents))],
        session=session,
    )
    return Prompts(
        arrived=np.arange(len(contents), dtype=np.float64),
        prompt_tokens=told.prompt_tokens,
        output_tokens=told.output_tokens,
        blocks=numbered(Chains.of(chains, 16).names)[0],
        starts=Chains.of(chains, 16).starts,
        block_tokens=16,
    ), told


@pytest.mark.parametrize(("spaces", "wins"), [([0, 1, 0], False), ([0, 0, 0], True)])
def test_what_costs_more_than_it_wins_is_left_as_it_is(spaces: list[int], wins: bool) -> None:
    """Behind a block that all have stands a value of each request, and behind it what the first two
    share. To move it to the end wins four blocks, if both were served by the same version of the
    model's weights, and costs one: the third request has the first one's value."""
    contents = [[1, 7, 3, 4, 5, 6], [1, 8, 3, 4, 5, 6], [1, 7, 9]]
    prompts, told = of_contents(contents, spaces, ["a", "b", "c"])
    found = mended(prompts, told, Labels(np.zeros(3, np.int64), ["t"]), np.array(spaces))
    if not wins:
        assert found == Mended(None, [NOTHING_WON])
        return
    assert found.prompts is not None
    assert (replayed(found.prompts) - replayed(prompts)).tolist() == [0, 64, -16]
    assert replayed(prompts).tolist() == [0, 16, 32]


CONTENTS = st.lists(st.lists(st.integers(1, 4), max_size=9), min_size=1, max_size=12)


@settings(max_examples=60)
@given(CONTENTS, st.data())
def test_whatever_is_mended_the_requests_stay_the_same(
    contents: list[list[int]], data: st.DataObject
) -> None:
    """As many blocks of each, nothing is shared across spaces, and more is found than before."""
    count = len(contents)
    labels = st.lists(st.integers(0, 2), min_size=count, max_size=count)
    space, session = (np.array(data.draw(labels), np.int64) for _ in range(2))
    prompts, told = of_contents(contents, space, session.tolist())
    found = mended(prompts, told, None, space)
    if found.prompts is None:
        assert len(found.words) == 1
        return
    assert replayed(found.prompts).sum() > replayed(prompts).sum()
    assert found.prompts.lengths.tolist() == prompts.lengths.tolist()
    owner = np.repeat(space, np.diff(found.prompts.starts))
    for number in range(found.prompts.distinct_blocks):
        assert len(np.unique(owner[found.prompts.blocks == number])) == 1


def rows_of(sent: Sequence[Sent], template: str, scope: str, first: int) -> list[dict[str, object]]:
    """Rows of `request_chains`, as a store answers."""
    chains = chains_of([each.token_ids for each in sent], [scope] * len(sent))
    found = []
    for number, each in enumerate(sent):
        span = slice(chains.starts[number], chains.starts[number + 1])
        assert chains.contents is not None
        found.append({
            "ts": BEGIN + timedelta(seconds=each.started), "session": f"{scope} {each.session}",
            "template": template, "scope": scope, "tenant": scope, "model": "m", "replica": "",
            "model_fingerprint": "", "ineligible_reason": "", "trace_id": None,
            "hash_scope": "global", "hash_key_id": "k", "block_size": None, "text_bytes": None,
            "prompt_tokens": len(each.token_ids), "cached_tokens": None, "output_tokens": None,
            "batch": 1, "position": first + number, "block_hashes": chains.names[span].tolist(),
            "content_hashes": chains.contents[span].tolist(), "piece_hashes": None,
            "piece_lengths": None,
        })  # fmt: skip
    return found


def table_of(rows: list[dict[str, object]]) -> pa.Table:
    names, whole = pa.list_(pa.uint64()), pa.int64()
    types = {
        "ts": pa.timestamp("us"), "block_hashes": names, "content_hashes": names,
        "piece_hashes": names, "piece_lengths": pa.list_(pa.uint8()), "block_size": pa.int32(),
        "text_bytes": whole, "prompt_tokens": whole, "cached_tokens": whole,
        "output_tokens": whole, "batch": whole, "position": whole,
    }  # fmt: skip
    schema = pa.schema([(name, types.get(name, pa.string())) for name in rows[0]])
    return pa.Table.from_pylist(sorted(rows, key=lambda row: str(row["ts"])), schema)


@pytest.fixture(scope="module")
def two_templates() -> pa.Table:
    """One of them, of two trust scopes, with a value in front of what stays the same."""
    clean = [
        Sent([*range(900), *range(1000 * number, 1000 * number + 200)], [], 90.0 * number, "", "")
        for number in range(1, 11)
    ]
    return table_of([
        *rows_of(written(20, 2, [20]), "mended", "a", 0),
        *rows_of(written(20, 2, [20]), "mended", "b", 100),
        *rows_of(clean, "clean", "a", 200),
    ])  # fmt: skip


def recorded(rows: pa.Table) -> Recorded:
    found = recorded_rows(rows)
    assert found is not None
    return found.recorded


def test_rows_of_a_store_are_mended_by_template_and_within_their_scope(
    two_templates: pa.Table,
) -> None:
    told = with_mended(recorded(two_templates), two_templates)
    assert told.mended is not None
    assert told.template is not None
    assert [words.split(":")[0] for words in told.mended_words] == ["mended"]
    change = replayed(told.mended) - replayed(told.prompts)
    clean = told.template.codes == told.template.names.index("clean")
    assert not change[clean].any()
    # In each scope one request of each session but the first.
    assert change.sum() == 2 * 19 * 62 * 16


def test_rows_that_do_not_tell_contents_share_what_they_shared(two_templates: pa.Table) -> None:
    """Every third row of both: its blocks have the names of others that tell."""
    column = two_templates.schema.get_field_index("content_hashes")
    told = two_templates["content_hashes"].to_pylist()
    some = [None if number % 3 == 0 else own for number, own in enumerate(told)]
    rows = two_templates.set_column(column, "content_hashes", pa.array(some, pa.list_(pa.uint64())))
    found = with_mended(recorded(rows), rows)
    assert found.mended is not None
    assert found.template is not None
    clean = found.template.codes == found.template.names.index("clean")
    assert (replayed(found.mended) - replayed(found.prompts))[clean].tolist() == [0] * 10


def test_chains_alone_say_that_contents_are_missing(two_templates: pa.Table) -> None:
    bare = two_templates
    nothing = pa.nulls(len(bare), pa.list_(pa.uint64()))
    column = bare.schema.get_field_index("content_hashes")
    bare = bare.set_column(column, "content_hashes", nothing)
    told = with_mended(recorded(bare), bare)
    assert told.mended is None
    missing = "what blocks hold is not known, so that few layout findings can be told"
    assert told.mended_words == [f"{NOTHING}; {missing}"]


def test_rows_of_other_prompts_are_refused(two_templates: pa.Table) -> None:
    with pytest.raises(ValueError, match="3 rows are not those of 90 prompts"):
        with_mended(recorded(two_templates), two_templates[:3])
