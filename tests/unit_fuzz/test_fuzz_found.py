"""What fuzzing found, each with the smallest input that showed it."""

import pytest

from exporter.store.store import Store
from tests.log_path import NOON, by_id, load, store

__all__ = ["store"]


def test_words_that_are_none_of_ours_say_nothing(store: Store) -> None:
    """A role, scope or point nobody knows was stored as it stood."""
    row = {"ts": NOON, "prompt_tokens": 100, "cached_tokens": 0, "ttft_s": 0.5}
    odd = {"replica_role": "ccc", "hash_scope": "a", "ttft_point": "x"}
    good = {"replica_role": "decode", "hash_scope": "trace", "ttft_point": "client"}
    load(store, [{**row, **odd, "request_id": "odd"}, {**row, **good, "request_id": "good"}])
    found = by_id(store)
    assert {name: found["odd"][name] for name in odd} == dict.fromkeys(odd)
    assert {name: found["good"][name] for name in good} == good


def test_a_source_states_the_role_where_the_row_has_no_word_of_ours(store: Store) -> None:
    rows = [{"ts": NOON, "request_id": "r", "prompt_tokens": 1, "replica_role": "ccc"}]
    load(store, rows, defaults={"replica_role": "prefill"})
    assert by_id(store)["r"]["replica_role"] == "prefill"


@pytest.mark.parametrize("odd", ["x", None, -1, {}])
def test_a_chain_with_a_hash_that_cannot_be_read_is_unknown(store: Store, odd: object) -> None:
    """It was stored with a hole in it, which no chain has."""
    rows = [
        {"ts": NOON, "request_id": "odd", "prompt_tokens": 48, "block_hashes": [1, odd, 3]},
        {"ts": NOON, "request_id": "good", "prompt_tokens": 48, "block_hashes": [1, 2, 3]},
        {"ts": NOON, "request_id": "none", "prompt_tokens": 48, "block_hashes": []},
    ]
    load(store, rows)
    found = by_id(store)
    assert found["odd"]["block_hashes"] is None
    assert "unusable:block_hashes" in found["odd"]["flags"]
    assert found["good"]["block_hashes"] == [1, 2, 3]
    assert found["none"]["block_hashes"] == []
