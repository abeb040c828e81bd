"""Batches of every era of vLLM and SGLang, written by hand after engines.md; and damaged ones."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.blocks.wire import (
    REMOVED,
    STORED,
    BadBatch,
    Decoder,
    tier_of,
    unsigned,
    unsigned_hash,
)
from tests.unit_blocks.event_streams import (
    CLEARED,
    captured,
    needs_captures,
    payload,
    removed,
    stored,
)

TOKENS = [11, 12, 13, 14]


def pack(*events: object, rank: int | None = 3) -> bytes:
    return msgspec.msgpack.encode([1.5, list(events), rank])


# Each row of an era is the one before with what the release added at its end.
VLLM_ROWS = {
    "0.10.1": ["BlockStored", [7, 8], 5, TOKENS, 2, None],
    "0.10.2": ["BlockStored", [7, 8], 5, TOKENS, 2, None, "CPU"],
    "0.14.1": ["BlockStored", [7, 8], 5, TOKENS, 2, None, "CPU", "adapter"],
    "0.17.1": ["BlockStored", [7, 8], 5, TOKENS, 2, None, "CPU", "adapter", [["salt"], None]],
    "0.20.2": ["BlockStored", [7, 8], 5, TOKENS, 2, None, "CPU", "adapter", [["salt"], None], 1],
    "0.22.1": ["BlockStored", [7, 8], 5, TOKENS, 2, None, "CPU", "adapter", [["salt"], None], 1,
               "full_attention", None],
    "from the future": ["BlockStored", [7, 8], 5, TOKENS, 2, None, "CPU", "adapter", None, 1,
                        "full_attention", None, "new", {"newer": 1}],
}  # fmt: skip
SGLANG_ROWS = {
    "0.5.8": ["BlockStored", [-7], 5, TOKENS, 2, None],
    "0.5.9": ["BlockStored", [-7], 5, TOKENS, 2, None, "CPU_PINNED"],
}
MAPS = {
    "vllm 0.24": stored([7, 8], 5, tokens=TOKENS, block_size=2, medium="CPU", lora_name="adapter"),
    "vllm 0.33": stored(
        [7, 8], 5, tokens=TOKENS, block_size=2, medium="CPU", group_idx=1, locality="x",
        ownership={"y": 1}, session_id="s", lookahead_token_ids=[1],
    ),
    "sglang 0.5.22": stored(
        [-7], 5, tokens=TOKENS, block_size=2, medium="CPU_PINNED", cache_salt="c", lora_name="a"
    ),
}  # fmt: skip


@pytest.mark.parametrize("tokens", [False, True], ids=["without tokens", "with tokens"])
@pytest.mark.parametrize("event", [*VLLM_ROWS.values(), *MAPS.values()], ids=[*VLLM_ROWS, *MAPS])
def test_a_stored_event_of_any_era(event: object, tokens: bool) -> None:
    batch = Decoder(tokens).decode(pack(event))
    assert (batch.ts, batch.rank, batch.unknown_events) == (1.5, 3, 0)
    (found,) = batch.events
    assert type(found) in STORED
    expected = [7, 8] if 7 in (event[1] if isinstance(event, list) else [7]) else [-7]
    if isinstance(event, dict):
        expected = event["block_hashes"]
    assert (found.block_hashes, found.parent_block_hash, found.block_size) == (expected, 5, 2)
    if tokens:
        assert found.token_ids == TOKENS


@pytest.mark.parametrize("version", SGLANG_ROWS)
def test_sglang_hashes_are_signed(version: str) -> None:
    (found,) = Decoder(False).decode(pack(SGLANG_ROWS[version])).events
    assert unsigned(found.block_hashes).tolist() == [2**64 - 7]


def test_fields_an_era_does_not_have_are_not_known() -> None:
    (old,) = Decoder(True).decode(pack(VLLM_ROWS["0.10.1"])).events
    assert (old.medium, old.lora_name, old.extra_keys, old.group_idx) == (None,) * 4
    (new,) = Decoder(True).decode(pack(VLLM_ROWS["0.22.1"])).events
    assert (new.medium, new.lora_name, new.group_idx) == ("CPU", "adapter", 1)
    assert new.extra_keys == [["salt"], None]
    assert new.kv_cache_spec_kind == "full_attention"


@pytest.mark.parametrize(
    "event",
    [
        ["BlockRemoved", [1, 2]],
        ["BlockRemoved", [1, 2], "GPU"],
        ["BlockRemoved", [1, 2], "GPU", 0],
        removed([1, 2]),
        removed([1, 2], medium="GPU", group_idx=0, locality="x", ownership=None),
    ],
)
def test_a_removal_of_any_era(event: object) -> None:
    (found,) = Decoder(False).decode(pack(event)).events
    assert type(found) in REMOVED
    assert found.block_hashes == [1, 2]
    assert tier_of(found.medium) == "device"


@pytest.mark.parametrize("event", [["AllBlocksCleared"], CLEARED])
def test_a_clear_of_either_form(event: object) -> None:
    (found,) = Decoder(False).decode(pack(event)).events
    assert type(found) not in STORED | REMOVED


def test_both_forms_may_follow_each_other() -> None:
    """As after an upgrade of an engine: one decoder hears both."""
    decoder = Decoder(True)
    for event in (VLLM_ROWS["0.22.1"], MAPS["vllm 0.24"], VLLM_ROWS["0.10.1"]):
        assert len(decoder.decode(pack(event)).events) == 1


def test_hashes_of_every_kind_are_one_unsigned_number() -> None:
    whole = bytes(24) + (2**63 + 5).to_bytes(8, "big")
    assert unsigned([2**64 - 1, 1]).tolist() == [2**64 - 1, 1]
    assert unsigned([-1, whole, b"\x02"]).tolist() == [2**64 - 1, 2**63 + 5, 2]
    assert unsigned_hash(b"") == 0


@pytest.mark.parametrize(
    ("medium", "tier"),
    [
        (None, "device"), ("GPU", "device"), ("gpu", "device"), ("CPU", "host"),
        ("CPU_PINNED", "host"), ("STORAGE", "disk"), ("DISK", "disk"), ("EXTERNAL", "remote"),
        ("TAPE", None),
    ],
)  # fmt: skip
def test_media_are_tiers(medium: str | None, tier: str | None) -> None:
    assert tier_of(medium) == tier


def test_a_placeholder_of_an_offloading_connector() -> None:
    event = stored([7], block_size=0, medium="CPU")
    (found,) = Decoder(True).decode(pack(event)).events
    assert (found.block_size, found.token_ids, found.parent_block_hash) == (0, [], None)


def test_unknown_events_are_passed_over_and_counted() -> None:
    batch = Decoder(False).decode(
        pack(stored([1], block_size=16), {"type": "BlockPinned", "x": 1}, ["BlockMoved", [1]],
             removed([1]))
    )  # fmt: skip
    assert [type(event) in STORED for event in batch.events] == [True, False]
    assert batch.unknown_events == 2


CANARY = "canary-of-a-prompt"


@pytest.mark.parametrize(
    ("payload", "named"),
    [
        (b"", "truncated"),
        (b"\xc1", "batch"),
        (msgspec.msgpack.encode({CANARY: 1}), "array"),
        (msgspec.msgpack.encode([CANARY, [], 0]), "float"),
        (msgspec.msgpack.encode([float("nan"), [], 0]), "time"),
        (msgspec.msgpack.encode([-1.0, [], 0]), "time"),
        (msgspec.msgpack.encode([1e300, [], 0]), "time"),
        (pack({"type": "BlockStored", "block_hashes": CANARY, "block_size": 1}), "block_hashes"),
        (pack({"type": "BlockStored", "block_size": 1, "token_ids": [CANARY]}), "event 0"),
        (pack(removed([1]), stored([1], tokens=[CANARY])), "token_ids"),
        (pack(["BlockStored", [1], None, [CANARY], 16]), "event 0"),
        (pack({CANARY: CANARY}), "type"),
        (pack(CANARY), "type"),
    ],
)
def test_malformed_batches_name_the_field_and_not_its_content(payload: bytes, named: str) -> None:
    with pytest.raises(BadBatch, match=named) as caught:
        Decoder(True).decode(payload)
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_event_of_tensorrt_llm_is_refused_and_not_misread() -> None:
    """Hand-written after engines.md, read, not run: JSON, which its server hands out once."""
    token = 1_234_567_891
    event = (
        b'{"event_id": 4, "data": {"type": "stored", "parent_hash": null, "blocks":'
        b'[{"block_hash": 9, "tokens": [{"token_id": %d, "token_extra_id": 0}]}]}}' % token
    )
    with pytest.raises(BadBatch) as caught:
        Decoder(True).decode(event)
    assert str(token) not in str(caught.value)


def test_values_nested_without_end_are_a_bad_batch() -> None:
    deep = b"\x91" * 100_000 + b"\x00"
    whole = b"\x93" + msgspec.msgpack.encode(1.5) + b"\x91" + deep + b"\x00"
    with pytest.raises(BadBatch, match="deep"):
        Decoder(False).decode(whole)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_a_bad_batch(payload: bytes) -> None:
    for tokens in (False, True):
        with contextlib.suppress(BadBatch):
            Decoder(tokens).decode(payload)


@given(st.data())
def test_damaged_batches_are_batches_or_bad(data: st.DataObject) -> None:
    whole = bytearray(pack(*MAPS.values(), removed([1, 2]), VLLM_ROWS["0.22.1"]))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        batch = Decoder(True).decode(bytes(whole))
    except BadBatch:
        return
    for event in batch.events:
        if type(event) in STORED | REMOVED:
            unsigned(event.block_hashes)


@needs_captures
@pytest.mark.parametrize("scenario", ["main", "evict"])
def test_frames_of_a_real_engine_have_what_the_capture_decoded(scenario: str) -> None:
    decoder = Decoder(False)
    counts = {"stored": 0, "removed": 0, "cleared": 0}
    for batch in captured(scenario):
        for event in decoder.decode(batch.payload).events:
            if type(event) in STORED:
                counts["stored"] += len(event.block_hashes)
            elif type(event) in REMOVED:
                counts["removed"] += len(event.block_hashes)
            else:
                counts["cleared"] += 1
    # Counted in kv-events.decoded.jsonl.
    expected = {"main": (436, 0, 1), "evict": (779, 709, 0)}[scenario]
    assert tuple(counts.values()) == expected


@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize(
    "odd",
    [
        {"block_size": 2**24 + 1}, {"block_size": 2**31}, {"block_size": 2**62},
        {"group_idx": -1}, {"group_idx": 2**31}, {"group_idx": 2**63},
    ],
    ids=str,
)  # fmt: skip
def test_a_size_or_a_group_no_engine_has_is_refused_by_its_field(
    odd: dict[str, int], tokens: bool
) -> None:
    decoder = Decoder(tokens)
    with pytest.raises(BadBatch, match=next(iter(odd))) as refused:
        decoder.decode(payload([stored([1], **odd)]))  # type: ignore[arg-type]
    assert str(next(iter(odd.values()))) not in str(refused.value)
    if "block_size" in odd:
        row = ["BlockStored", [1], None, [], odd["block_size"]]
        with pytest.raises(BadBatch):
            decoder.decode(payload([row]))
    assert decoder.decode(payload([stored([1], block_size=2**24, group_idx=0)])).events
