"""The parts of the search that stand by themselves."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.layout.alignment import align
from replay.layout.atoms import Numbering, atoms_of
from replay.layout.frequency import Owner, frequency_of
from replay.layout.json_spans import in_order, spans_of
from replay.layout.kinds import kind_of
from replay.layout.prompt import Prompt, Segment
from replay.layout.proof import Replay
from replay.layout.sites import sites_of
from replay.layout.tokens import Tokenizer

_KEYS = st.text(max_size=3)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=60)
@given(
    st.dictionaries(st.text(max_size=3), _VALUES, min_size=2, max_size=4),
    st.sampled_from([None, 2]),
)
def test_sorting_json_changes_the_order_and_nothing_else(
    document: dict[str, object], indent: int | None
) -> None:
    text = f"see: {json.dumps(document, indent=indent)} (end)"
    sorted_text = in_order(text, spans_of(text), lambda span: span.is_object)
    assert len(sorted_text) == len(text)
    inside = sorted_text.removeprefix("see: ").removesuffix(" (end)")
    assert json.loads(inside) == document
    assert json.dumps(json.loads(inside), indent=indent) == inside
    keys = list(json.loads(inside))
    assert keys == sorted(keys)


def test_a_list_is_sorted_by_the_names_of_its_tools() -> None:
    text = '[{"function": {"name": "b"}}, {"function": {"name": "a"}}]'
    ordered = in_order(text, spans_of(text), lambda span: not span.is_object)
    assert ordered == '[{"function": {"name": "a"}}, {"function": {"name": "b"}}]'


@pytest.mark.parametrize(
    "text", ['{"a": ', '{"a" 1}', "{'a': 1}", '{"a": 1', "[" * 3000 + '{"a":1}']
)
def test_what_is_no_json_is_left_alone(text: str) -> None:
    assert in_order(text, spans_of(text), lambda span: True) == text


@settings(max_examples=60)
@given(st.lists(st.integers(0, 9), max_size=60), st.lists(st.integers(0, 9), max_size=60))
def test_partners_are_equal_and_in_order(left: list[int], right: list[int]) -> None:
    partner = align(np.array(left, np.int64), np.array(right, np.int64)).tolist()
    paired = [(n, at) for n, at in enumerate(partner) if at >= 0]
    assert all(left[n] == right[at] for n, at in paired)
    places = [at for _, at in paired]
    assert places == sorted(set(places))
    same = next(
        (n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
        min(len(left), len(right)),
    )
    assert partner[:same] == list(range(same))


@settings(max_examples=60)
@given(st.text(max_size=60), st.text(max_size=60))
def test_equal_text_gives_equal_tokens_whatever_line_stands_before(first: str, second: str) -> None:
    tokenizer = Tokenizer()
    line = "a" + second  # begins no new line
    alone = tokenizer.ids(line)
    behind = tokenizer.ids(f"{first}.\n{line}")
    assert behind[len(behind) - len(alone) :] == alone


_OTHER = {
    "clock": "17:22:31",
    "uuid": "req_1aB2cD3eF4gH",
    "number": "77",
    "email": "ann@example.org",
}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("2026-03-02T09:15:04.120Z", "clock"), ("15:09:20", "clock"), ("3:09 PM", "clock"),
        ("Monday, 02 March 2026 at 10:00:17 AM", "clock"), ("March 2nd, 2026", "clock"),
        ("1772442904", "clock"), ("1772442904120", "clock"), ("02.03.2026", "clock"),
        ("0b7a4f0e-3c1d-4e5f-8a9b-0c1d2e3f4a5b", "uuid"), ("req_8fK2jd93LsQ1", "uuid"),
        ("9f86d081884c7d65", "uuid"), ("1,204", "number"), ("lee.wong@example.com", "email"),
    ],
)  # fmt: skip
def test_values_are_known_by_their_looks(text: str, kind: str) -> None:
    """Each is one atom of its kind, with the sign that follows it left out."""
    atoms = atoms_of((Segment("text", "text", f"at {text}. Then"),), Numbering())
    pieces = [atoms.segments[0].text[b:e] for b, e in zip(atoms.begin, atoms.end, strict=True)]
    assert text in pieces
    other = _OTHER[kind]
    numbering = Numbering()
    prompts = [
        atoms_of((Segment("text", "text", f"at {value}. Then go on"),), numbering)
        for value in (text, other)
    ]
    sites, _ = sites_of(prompts, [0, 1], 0, growing=False)
    assert [site.looks for site in sites] == [kind]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["Maria Lopez", "Conor O'Brien", "Wei"], "name"),
        (["1", "2", "5", "6"], "counter"),
        (["9", "2", "5", "1"], "unknown"),
        (["482137", "113200", "934418"], "uuid"),
        (["", "09:15:20", "09:15:44"], "clock"),
        (["", "req_8fK2jd93LsQ1", "req_9gL3ke04MtR2"], "uuid"),
        (["word " * 20, "other " * 30], "retrieved"),
        (["be brief and kind to all", "do not be"], "unknown"),
    ],
)  # fmt: skip
def test_kinds_of_words(values: list[str], kind: str) -> None:
    assert kind_of("words", values) == kind


def _owners(sessions: str, users: str, days: str) -> list[Owner]:
    return [Owner(s, u, 86_400.0 * int(d)) for s, u, d in zip(sessions, users, days, strict=True)]


@pytest.mark.parametrize(
    ("values", "frequency", "change"),
    [
        ("abcdefgh", "request", None),
        ("aaabbbbb", "once", 3),
        ("aabaabbb", "request", None),  # comes and goes
        ("abababab", "user", None),
        ("abcdabcd", "session", None),
    ],
)
def test_how_often_values_change(values: str, frequency: str, change: int | None) -> None:
    owners = _owners("stuvstuv", "xyxyxyxy", "00001111")
    found = frequency_of(dict(enumerate(values)), owners, by_looks=False)
    assert found == (frequency, change)


def test_a_date_that_changes_once_is_the_day() -> None:
    owners = _owners("stuvstuv", "xyxyxyxy", "00001111")
    values = dict(enumerate("aaaabbbb"))
    assert frequency_of(values, owners, by_looks=True) == ("day", None)
    assert frequency_of(values, owners, by_looks=False) == ("once", 4)


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=8), st.integers(1, 3))
def test_replay_is_a_plain_search_for_known_prefixes(texts: list[list[int]], block: int) -> None:
    """Against brute force: the longest run of whole blocks some earlier prompt begins with."""
    prompts = [
        Prompt((Segment("text", "text", "".join(f" w{n}" for n in text)),)) for text in texts
    ]
    tokenizer = Tokenizer()
    tokens = [tokenizer.prompt(prompt) for prompt in prompts]
    found = Replay(prompts, tokenizer, block).run()
    for number, own in enumerate(tokens):
        best = 0
        for size in range(block, max(len(own) - 1, 0) // block * block + 1, block):
            if any(other[:size] == own[:size] for other in tokens[:number]):
                best = size
        assert found.cached_tokens[number] == best
