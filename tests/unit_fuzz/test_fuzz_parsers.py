"""Whatever is sent, each parser answers or raises its own error, and what it makes stays small.

A few inputs a parser, drawn by Hypothesis, which also finds the smallest that fails; `make fuzz`
gives each thousands.
"""

import json
import logging
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.sources.engines import ENGINES
from exporter.sources.formats import FORMATS
from tests.fuzz.damage import damaged, damaged_value
from tests.fuzz.parsers import LIMIT_BYTES, Parser, parsers

FOLDER = tempfile.TemporaryDirectory()
PARSERS = parsers(Path(FOLDER.name))
FEW = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# A packed body may well be larger unpacked, up to the limit it is given.
PACKED = ("gzip body", "zstd body")


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    """Lists of targets that cannot be read are logged, each in its length."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
    FOLDER.cleanup()


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
@FEW
@given(chance=st.randoms(use_true_random=False))
def test_damaged_input_ends_in_an_answer_or_its_own_error(parser: Parser, chance: Random) -> None:
    data = damaged(chance.choice(parser.seeds), parser.kind, chance)
    with suppress(*parser.own):
        made = parser.read(data)
        # Bounded work: rows may repeat what stands once above them, but not without end.
        limit = LIMIT_BYTES if parser.name in PACKED else 100 * len(data) + 10_000
        assert made <= limit


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_good_input_is_read(parser: Parser) -> None:
    """Else the damage would be done to what is refused anyway."""
    good = 0
    for seed in parser.seeds:
        with suppress(*parser.own):
            parser.read(seed)
            good += 1
    assert good * 2 >= len(parser.seeds), f"{good} of {len(parser.seeds)}"


def test_every_format_and_engine_that_has_a_reader_of_its_own_is_here() -> None:
    names = {parser.name for parser in PARSERS}
    assert {f"page {name}" for name in ENGINES} <= names
    assert {f"line {known.name}" for known in FORMATS if known.reshape} <= names
    assert {f"document {known.name}" for known in FORMATS if known.documents} <= names


def test_the_same_seed_does_the_same_damage() -> None:
    row = b'{"usage": {"prompt_tokens": 100, "cached_tokens": 64}, "id": "a"}'
    first, again = (
        [damaged(row, "json", chance) for _ in range(200)] for chance in (Random(7), Random(7))
    )
    assert first == again
    assert len(set(first)) > 150
    assert row not in first or first.count(row) < 20


def test_damage_by_value_never_moves_a_text() -> None:
    """What was a prompt stays one or goes: it never becomes the value of another key."""
    chance, row = Random(3), '{"model": "m", "prompt": "SECRET", "usage": {"input": 5}}'
    texts = [damaged_value(json.loads(row), chance) for _ in range(500)]
    kept = [text for text in texts if "SECRET" in text]
    assert 100 < len(kept) < 500
    assert all('"prompt": "SECRET"' in text for text in kept)
