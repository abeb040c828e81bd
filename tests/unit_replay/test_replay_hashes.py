import struct
from collections.abc import Iterator
from hashlib import blake2b, sha256

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.formats.expressions import COMPUTED
from replay.hashes import (
    HASH_GRAIN_TOKENS,
    chain_hashes,
    content_hashes,
    extend_chain,
    hash_key_id,
    root_hash,
    scope_id,
)

TOKENS = st.lists(st.integers(0, 2**64 - 1), max_size=70)
GRAINS = st.integers(1, 9)
TEXTS = st.text(max_size=8)


def _hash(data: bytes, key: str, person: bytes) -> int:
    secret = sha256(key.encode()).digest()
    return int(blake2b(data, digest_size=8, key=secret, person=person).hexdigest(), 16)


def test_grain_is_what_store_events_and_tap_agree_on() -> None:
    assert HASH_GRAIN_TOKENS == 16


def test_hashes_of_two_blocks_worked_out_by_hand() -> None:
    first = _hash(struct.pack("<2Q", 7, 8), "secret", b"content")
    second = _hash(struct.pack("<2Q", 9, 2**40), "secret", b"content")
    assert content_hashes([7, 8, 9, 2**40, 1], 2, "secret") == [first, second]
    root = _hash(b"tenant", "secret", b"scope")
    one = _hash(struct.pack("<2Q", root, first), "secret", b"chain")
    two = _hash(struct.pack("<2Q", one, second), "secret", b"chain")
    assert chain_hashes([7, 8, 9, 2**40, 1], 2, "tenant", "secret") == [one, two]


@given(TOKENS, GRAINS, TEXTS, TEXTS)
def test_only_whole_blocks_have_hashes_and_they_are_unsigned_64_bit(
    tokens: list[int], grain: int, scope: str, key: str
) -> None:
    for hashes in (content_hashes(tokens, grain, key), chain_hashes(tokens, grain, scope, key)):
        assert len(hashes) == len(tokens) // grain
        assert all(0 <= value < 2**64 for value in hashes)


@given(TOKENS, GRAINS, st.integers(0, 70), TEXTS)
def test_a_shorter_prompt_has_the_beginning_of_the_chain(
    tokens: list[int], grain: int, cut: int, key: str
) -> None:
    whole = chain_hashes(tokens, grain, "", key)
    assert chain_hashes(tokens[:cut], grain, "", key) == whole[: len(tokens[:cut]) // grain]


@given(TOKENS.filter(bool), GRAINS, st.data())
def test_a_changed_token_changes_its_content_and_the_chain_from_there(
    tokens: list[int], grain: int, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(tokens) - 1))
    changed = [*tokens]
    changed[place] ^= 1
    block = place // grain
    before, after = content_hashes(tokens, grain), content_hashes(changed, grain)
    assert [n for n, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]] == (
        [block] if block < len(before) else []
    )
    old, new = chain_hashes(tokens, grain), chain_hashes(changed, grain)
    assert old[:block] == new[:block]
    assert not set(old[block:]) & set(new[block:])


@given(st.lists(st.integers(0, 9), min_size=4, max_size=4), GRAINS)
def test_content_does_not_know_its_place_and_the_chain_does(block: list[int], times: int) -> None:
    assert len(set(content_hashes(block * times, 4))) == 1
    assert len(set(chain_hashes(block * times, 4))) == times


@given(TOKENS, GRAINS, st.integers(0, 40), TEXTS, TEXTS)
def test_a_chain_can_be_made_in_pieces(
    tokens: list[int], grain: int, blocks: int, scope: str, key: str
) -> None:
    content = content_hashes(tokens, grain, key)
    head = extend_chain(root_hash(scope, key), content[:blocks], key)
    tail = extend_chain([root_hash(scope, key), *head][-1], content[blocks:], key)
    assert head + tail == chain_hashes(tokens, grain, scope, key)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=30))
def test_scopes_and_keys_share_nothing(tokens: list[int]) -> None:
    plain = set(chain_hashes(tokens, 1))
    assert not plain & set(chain_hashes(tokens, 1, "other"))
    assert not plain & set(chain_hashes(tokens, 1, "", "key"))
    assert not set(content_hashes(tokens, 1)) & set(content_hashes(tokens, 1, "key"))
    assert not plain & set(content_hashes(tokens, 1))


def test_a_key_may_have_any_length() -> None:
    long = "k" * 500
    assert chain_hashes([1], 1, "", long) != chain_hashes([1], 1, "", long[:-1])


@pytest.mark.parametrize("bad", [-1, 2**64, 1.5, "4321", None])
def test_what_is_no_token_id_is_refused_and_not_repeated(bad: object) -> None:
    with pytest.raises(ValueError, match="whole numbers from 0") as refused:
        content_hashes([1, bad], 1)  # type: ignore[list-item]
    assert "4321" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_a_grain_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="grain_tokens"):
        content_hashes([1], 0)


def test_key_id_names_the_key_as_the_store_does() -> None:
    assert hash_key_id("a key") == sha256(b"a key").hexdigest()[:8]
    assert hash_key_id("a key") != hash_key_id("another")


# NUL cannot be bound as text by every database client, and half a character is no text.
_LABEL = st.none() | st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=12
)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


@given(key=st.text("abcdef0123456789", max_size=64), salt=_LABEL, adapter=_LABEL, weights=_LABEL)
def test_scope_is_what_the_exporter_makes_of_the_same_row(
    database: duckdb.DuckDBPyConnection,
    key: str,
    salt: str | None,
    adapter: str | None,
    weights: str | None,
) -> None:
    query = f"""SELECT {COMPUTED["scope"]} FROM (SELECT nullif($salt, '') AS cache_salt,
        nullif($adapter, '') AS adapter, nullif($weights, '') AS model_fingerprint,
        NULL::VARCHAR AS scope)"""
    given_ = {"key": key, "salt": salt, "adapter": adapter, "weights": weights}
    row = database.execute(query, given_).fetchone()
    assert row == (scope_id(key, salt, adapter, weights),)
