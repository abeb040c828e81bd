"""Tiers and groups: moved down is not lost, brought back is not new, hybrid layers count once.

All inputs are written by hand after engines.md: no engine here was seen to publish them.
"""

import pytest

from exporter.blocks.rows import BlockMinute
from tests.unit_blocks.event_streams import CLEARED, Listener, moment, removed, stored

HOST = {"medium": "CPU"}
GPU = {"medium": "GPU"}


def tier(rows: list[BlockMinute], name: str) -> BlockMinute:
    (row,) = (row for row in rows if row.tier == name)
    return row


def test_t28_a_block_that_moved_down_is_no_loss() -> None:
    """T28: removed from the device and stored on the host; a later request is served from it."""
    listener = Listener()
    listener.hear(stored([1], **GPU))
    listener.hear(removed([1], **GPU), stored([1], block_size=0, **HOST), seconds=5)
    device, host = listener.cache("device"), listener.cache("host")
    assert (device.demoted_blocks, device.evicted_blocks, device.resident_blocks) == (1, 0, 0)
    assert (host.stored_blocks, host.resident_blocks, host.resident_tokens) == (1, 1, 16)
    listener.hear(stored([1], **GPU), seconds=9)
    device = listener.cache("device")
    assert (device.promoted_blocks, device.stored_blocks, device.resident_blocks) == (1, 2, 1)


def test_t28_a_copy_written_down_before_the_block_goes_is_a_demotion_too() -> None:
    """As with write-through: the host has it long before the device gives it up."""
    listener = Listener()
    listener.hear(stored([1, 2], **GPU), stored([1], block_size=0, **HOST))
    listener.hear(removed([2, 1], **GPU), seconds=500)
    listener.hear(stored([7], **GPU), seconds=600)
    device = listener.cache("device")
    assert (device.demoted_blocks, device.evicted_blocks, device.promoted_blocks) == (1, 1, 0)


def test_t28_a_copy_that_comes_too_late_or_never_is_a_loss() -> None:
    listener = Listener()
    listener.hear(stored([9], block_size=0, **HOST), stored([1, 2], **GPU))
    listener.hear(removed([1, 2], **GPU), seconds=1)
    # Nothing is decided yet: the copy may be on its way.
    assert listener.cache("device").evicted_blocks == 0
    listener.hear(stored([1], block_size=0, **HOST), seconds=5)
    listener.hear(stored([2], block_size=0, **HOST), stored([3], **GPU), seconds=40)
    rows = listener.minutes()
    device = tier(rows, "device")
    assert (device.demoted_blocks, device.evicted_blocks) == (1, 1)
    assert sum(device.lifetime.values()) == 2


def test_what_waits_for_its_copy_is_decided_when_the_stream_has_been_quiet() -> None:
    listener = Listener()
    listener.hear(stored([9], block_size=0, **HOST), stored([1], **GPU))
    listener.hear(removed([1], **GPU), seconds=1)
    assert tier(listener.minutes(seconds=2), "device").evicted_blocks == 0
    assert tier(listener.minutes(seconds=60), "device").evicted_blocks == 1


def test_a_host_copy_lost_after_the_device_gave_up_its_own_does_not_undo_the_demotion() -> None:
    listener = Listener()
    listener.hear(stored([1], **GPU), stored([1], block_size=0, **HOST))
    listener.hear(removed([1], **GPU), seconds=1)
    listener.hear(removed([1], **HOST), seconds=2)
    assert listener.cache("device").demoted_blocks == 1
    host = listener.cache("host")
    assert (host.evicted_blocks, host.demoted_blocks, host.resident_blocks) == (1, 0, 0)


def test_storing_to_device_and_then_offloading_is_no_promotion() -> None:
    listener = Listener()
    listener.hear(stored([1], **GPU), stored([1], block_size=0, **HOST))
    listener.hear(stored([2], **GPU), seconds=1)
    listener.hear(stored([2], block_size=0, **HOST), seconds=1.5)
    assert listener.cache("device").promoted_blocks == 0


def test_a_clear_leaves_lower_tiers_uncertain_and_a_restart_empties_the_host() -> None:
    listener = Listener()
    listener.hear(
        stored([1], **GPU), stored([1], block_size=0, **HOST),
        stored([1], block_size=0, medium="STORAGE"),
    )  # fmt: skip
    listener.hear(CLEARED, stored([2], **GPU), seconds=1)
    assert listener.cache("device").uncertain is None
    assert "cleared" in str(listener.cache("host").uncertain)
    listener.hear(stored([3], **GPU), seconds=2, sequence=0)
    assert [listener.cache(name).resident_blocks for name in ("device", "host", "disk")] == [
        1,
        0,
        1,
    ]
    assert listener.cache("host").uncertain is None
    assert "restarted" in str(listener.cache("disk").uncertain)
    resets = listener.tracker.drain(moment(60)).resets
    assert [(reset.tier, reset.reason, reset.blocks) for reset in resets] == [
        ("device", "clear", 1), ("device", "restart", 1), ("host", "restart", 1),
    ]  # fmt: skip


def test_hybrid_groups_are_counted_once() -> None:
    """The same 32 tokens in a group of full attention and one of a sliding window."""
    listener = Listener()
    full = {"group_idx": 1, "kv_cache_spec_kind": "full_attention", **GPU}
    window = {"group_idx": 0, "kv_cache_spec_kind": "sliding_window", **GPU}
    listener.hear(stored([1, 2], **window), stored([1, 2], **full))
    listener.hear(
        stored([3], 2, **window),
        stored([3], 2, **full),
        removed([1], group_idx=0, **GPU),
        seconds=1,
    )
    cache = listener.cache()
    assert (cache.resident_blocks, cache.resident_tokens, cache.evicted_blocks) == (3, 48, 0)
    assert cache.stored_blocks == 3
    listener.hear(removed([3], group_idx=1, **GPU), seconds=2)
    assert (listener.cache().evicted_blocks, listener.cache().resident_blocks) == (1, 2)
    assert listener.cache().uncertain is None


def test_without_kinds_the_lowest_group_stands_for_all() -> None:
    listener = Listener()
    listener.hear(stored([1], group_idx=2), stored([1], group_idx=0), stored([1], group_idx=1))
    assert listener.cache().resident_blocks == 1
    listener.hear(removed([1], group_idx=1), removed([1], group_idx=2), seconds=1)
    assert listener.cache().resident_blocks == 1
    listener.hear(removed([1], group_idx=0), seconds=2)
    assert listener.cache().resident_blocks == 0


@pytest.mark.parametrize("kind", ["mamba", "sliding_window", "chunked_local_attention"])
def test_a_single_group_of_any_kind_is_counted(kind: str) -> None:
    listener = Listener()
    listener.hear(stored([1], kv_cache_spec_kind=kind, group_idx=0))
    assert listener.cache().resident_blocks == 1


def test_a_tier_of_an_unknown_word_is_reported_and_not_taken_for_the_device() -> None:
    listener = Listener()
    listener.hear(stored([1], **GPU), stored([2], medium="TAPE"), removed([1], medium="TAPE"))
    assert [cache.tier for cache in listener.tracker.snapshot().caches] == ["device"]
    assert listener.cache().resident_blocks == 1
    assert listener.tracker.unknown_events() == 2


def test_sglang_hicache_pages_by_hand() -> None:
    """Hand-written after engines.md, read, not run: signed hashes, pages of 64 tokens in events
    of their own, write-through to pinned memory, DISK and EXTERNAL below it."""
    listener = Listener()
    page = {"block_size": 64, **GPU}
    listener.hear(
        stored([-11], None, **page),
        stored([-12], -11, **page),
        stored([-11, -12], block_size=64, medium="CPU_PINNED"),
        stored([-11], block_size=64, medium="DISK"),
        stored([-11], block_size=64, medium="EXTERNAL"),
    )
    listener.hear(removed([-12], **GPU), removed([-11], **GPU), seconds=1)
    listener.hear(
        removed([-12], medium="CPU_PINNED"), removed([-11], medium="CPU_PINNED"), seconds=2
    )
    by_tier = {cache.tier: cache for cache in listener.tracker.snapshot().caches}
    assert {name: cache.resident_blocks for name, cache in by_tier.items()} == {
        "device": 0, "host": 0, "disk": 1, "remote": 1,
    }  # fmt: skip
    assert by_tier["device"].demoted_blocks == 2
    assert by_tier["disk"].resident_tokens == 64
    minutes = listener.minutes()
    assert (tier(minutes, "host").demoted_blocks, tier(minutes, "host").evicted_blocks) == (1, 1)


def test_sglang_old_releases_reuse_a_page_hash_across_prefixes() -> None:
    """Hand-written after engines.md, read, not run: until 0.5.5 hashes are not chained, so equal
    pages at different places share one and are counted as copies."""
    listener = Listener()
    listener.hear(stored([5]), stored([6], 5), stored([5], 6))
    assert listener.cache().resident_blocks == 3
    listener.hear(removed([5]), seconds=1)
    assert (listener.cache().resident_blocks, listener.cache().uncertain) == (2, None)


def test_a_page_of_one_token_may_be_held_very_often() -> None:
    """Hand-written, read, not run: pages of one token with hashes that do not chain."""
    listener = Listener()
    listener.hear(*[stored([5], block_size=1) for _ in range(300)])
    listener.hear(stored([5] * 40_000, block_size=1), seconds=1)
    assert listener.cache().resident_blocks == listener.cache().resident_tokens == 40_300


def test_lmcache_through_vllms_publisher_by_hand() -> None:
    """Hand-written after engines.md, read, not run: LMCache publishes through vLLM's publisher,
    so its chunks come as another medium of the same stream, larger than the device's blocks."""
    listener = Listener()
    listener.hear(stored([1, 2], **GPU), stored([70], block_size=256, medium="CPU"))
    listener.hear(removed([2], **GPU), seconds=1)
    listener.hear(stored([3], **GPU), seconds=20)
    host, device = listener.cache("host"), listener.cache("device")
    assert (host.resident_blocks, host.resident_tokens) == (1, 256)
    # Chunks have hashes of their own: that a block lives on in one cannot be told.
    assert (device.evicted_blocks, device.demoted_blocks) == (1, 0)
