"""One call in two logs: the names of its prompt come from one of them, all together."""

from exporter.store.store import Store
from replay.byte_chunks import text_key_id
from tests.log_path import NOON, Answer, load, requests

PROMPT = "follow the policy of the assistant " * 8
CHAIN = {"block_hashes": [11, 12], "content_hashes": [21, 22], "hash_scope": "global",
         "hash_key_id": "of-the-engine"}  # fmt: skip


def joined(store: Store, source: str, **engine: object) -> Answer:
    """A gateway's row with its prompt as text, joined with the engine's."""
    call = {"request_id": source, "ts": NOON, "prompt_tokens": 40, "cached_tokens": 0}
    load(store, [call | {"side": "gateway", "prompt_text": PROMPT}], source)
    load(store, [call | {"side": "engine"} | engine], f"{source} engine")
    (row,) = (row for row in requests(store) if row["request_id"] == source)
    assert "joined" in row["flags"]
    return row


def test_the_engines_chain_replaces_that_of_the_text(store: Store) -> None:
    row = joined(store, "exact", **CHAIN)
    assert {name: row[name] for name in CHAIN} == CHAIN
    assert (row["text_bytes"], row["piece_hashes"], row["piece_lengths"]) == (None, None, None)
    assert "approximate_chain" not in row["flags"]


def test_a_key_without_a_chain_does_not_rename_that_of_the_text(store: Store) -> None:
    row = joined(store, "text", scope="0123456789abcdef", hash_key_id="of-the-engine")
    assert row["text_bytes"] == len(PROMPT)
    assert len(row["block_hashes"]) == len(PROMPT) // 64
    assert sum(row["piece_lengths"]) == len(PROMPT)
    assert row["hash_key_id"] == text_key_id(store.key)
    assert "approximate_chain" in row["flags"]
