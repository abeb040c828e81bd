"""Names of blocks must be what the tap and `replay.hashes` give to the same prompt."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.blocks.chains import Chains
from exporter.blocks.wire import STORED, Decoder
from prefixscope.tap.asked import hashed
from replay.hashes import chain_hashes, scope_id
from tests.unit_blocks.event_streams import (
    KEY,
    STREAM,
    Listener,
    captured,
    needs_captures,
    requests_of,
    stored,
)

TOKENS = list(range(1000, 1160))  # ten blocks of sixteen


@dataclass
class Event:
    """The fields of a BlockStored that names are made from."""

    token_ids: list[Any]
    block_size: int = 16
    block_hashes: list[int] = field(default_factory=list)
    lora_id: int | None = None
    lora_name: str | None = None
    extra_keys: list[Any] | None = None
    cache_salt: str | None = None

    def __post_init__(self) -> None:
        self.block_hashes = list(range(len(self.token_ids) // self.block_size))


def names(event: Event, parent: int | None = None, fingerprint: str | None = None) -> list[int]:
    return list(Chains(KEY, fingerprint).names(event, parent))


def test_names_are_the_chain_the_tap_writes() -> None:
    chain, _ = hashed(TOKENS, "", KEY)
    assert names(Event(TOKENS)) == chain == chain_hashes(TOKENS, 16, "", KEY)


@pytest.mark.parametrize("block_size", [16, 32, 80])
def test_a_larger_block_is_named_by_the_last_of_its_hashes(block_size: int) -> None:
    every = block_size // 16
    assert names(Event(TOKENS, block_size)) == chain_hashes(TOKENS, 16, "", KEY)[every - 1 :: every]


@pytest.mark.parametrize("block_size", [1, 8, 20])
def test_a_block_size_sixteen_does_not_divide_is_hashed_at_its_own(block_size: int) -> None:
    assert names(Event(TOKENS, block_size)) == chain_hashes(TOKENS, block_size, "", KEY)


@given(st.integers(1, 9), st.sampled_from([16, 32]))
def test_a_prompt_stored_in_pieces_has_the_names_of_the_whole(cut: int, block_size: int) -> None:
    whole = names(Event(TOKENS, block_size))
    at = cut * 16 // block_size * block_size
    first = names(Event(TOKENS[:at], block_size))
    parent = first[-1] if first else None
    assert [*first, *names(Event(TOKENS[at:], block_size), parent)] == whole


@pytest.mark.parametrize(
    ("more", "scope"),
    [
        ({"extra_keys": [["salt-a"], *[None] * 9]}, scope_id(KEY, "salt-a")),
        ({"extra_keys": [["ad", "salt-a"], *[["ad"]] * 9], "lora_name": "ad", "lora_id": 1},
         scope_id(KEY, "salt-a", "ad")),
        ({"extra_keys": [["ad"]] * 10, "lora_name": "ad", "lora_id": 1}, scope_id(KEY, None, "ad")),
        ({"cache_salt": "salt-a"}, scope_id(KEY, "salt-a")),
        ({"cache_salt": "salt-a", "lora_name": "ad"}, scope_id(KEY, "salt-a", "ad")),
        ({"extra_keys": [None] * 10}, None),
    ],
)  # fmt: skip
def test_t86_salt_and_adapter_are_part_of_the_chain(
    more: dict[str, Any], scope: str | None
) -> None:
    assert names(Event(TOKENS, **more)) == chain_hashes(TOKENS, 16, scope or "", KEY)


def test_t86_so_is_the_fingerprint_that_taps_state() -> None:
    scope = scope_id(KEY, None, None, "weights-7") or ""
    chain = chain_hashes(TOKENS, 16, scope, KEY)
    assert names(Event(TOKENS), fingerprint="weights-7") == chain
    told = Listener(chains=True, stream=replace(STREAM, model_fingerprint="weights-7"))
    told.hear(stored(range(len(chain)), tokens=TOKENS))
    (held,) = told.tracker.held_since(0.0)
    assert sorted(held.names.tolist()) == sorted(chain)


@pytest.mark.parametrize(
    "extra_keys",
    [
        [None, None, [["image", 0]], None],
        [None, None, ["image"], None],
        [None, None, [b"digest"], None],
    ],
)
def test_t87_no_block_behind_an_image_has_a_name(extra_keys: list[Any]) -> None:
    event = Event(TOKENS[:64], extra_keys=extra_keys)
    assert names(event) == [*chain_hashes(TOKENS[:32], 16, "", KEY), 0, 0]


@pytest.mark.parametrize("keys", [["salt", "digest"], [["image", 0]], [["image", 0], "salt"]])
def test_keys_of_a_first_block_that_cannot_be_told_apart_give_no_names(keys: list[Any]) -> None:
    assert names(Event(TOKENS[:32], extra_keys=[keys, None])) == [0, 0]


def test_what_follows_a_block_without_a_name_has_none() -> None:
    assert names(Event(TOKENS[:32]), parent=0) == [0, 0]


def test_an_adapter_known_by_number_only_gives_no_names() -> None:
    assert names(Event(TOKENS[:32], lora_id=3)) == [0, 0]


def test_pairs_of_tokens_are_named_by_their_first() -> None:
    pairs = [[token, token + 1] for token in TOKENS]
    assert names(Event(pairs)) == chain_hashes(TOKENS, 16, "", KEY)


@pytest.mark.parametrize("tokens", [[-1] * 16, [[]] * 16, [[1, 2], 3] * 8])
def test_impossible_tokens_give_no_names(tokens: list[Any]) -> None:
    assert names(Event(tokens)) == [0]


def test_fewer_tokens_than_blocks_give_no_names() -> None:
    event = Event(TOKENS[:32])
    event.token_ids = TOKENS[:20]
    assert names(event) == [0, 0]


@needs_captures
def test_every_block_of_real_prompts_is_in_the_chain_the_tap_would_write() -> None:
    """Prompts of main, tokenized by the engine; generated blocks go beyond them."""
    known = set()
    for request in requests_of("main"):
        scope = scope_id(KEY, request["cache_salt"]) or ""
        chain, _ = hashed(request["prompt_token_ids"], scope, KEY)
        known.update(chain[1::2])
    decoder, chains, ours = Decoder(tokens=True), Chains(KEY), dict[int, int]()
    for batch in captured("main"):
        for event in decoder.decode(batch.payload).events:
            if type(event) in STORED:
                parent = event.parent_block_hash
                found = chains.names(event, None if parent is None else ours[parent])
                ours.update(zip(event.block_hashes, found, strict=True))
    assert known <= set(ours.values())
    assert 0 not in ours.values()
    written_out = {
        (request["cache_salt"], *request["prompt_token_ids"][:end])
        for request in requests_of("main")
        for end in range(32, len(request["prompt_token_ids"]) + 1, 32)
    }
    assert len(known) == len(written_out)
