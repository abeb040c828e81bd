"""Names for prompts that give no prompt away: keyed hashes of blocks of token ids.

A *content hash* names the tokens of one block by themselves; a *chain hash* names a block and
everything before it, its scope included. The chain is built from the content hashes, so that a
chain in another scope can be worked out without the token ids.

The functions are pure and import only the standard library: the tap carries this file to
engines. Whoever holds the key can test whether a prompt was seen, nobody else can; hashes made
with different keys must never be compared, which is what `hash_key_id` is for.
"""

import json
import re
import struct
from collections.abc import Iterable, Sequence
from hashlib import blake2b, sha256

# Tokens per hash wherever the block size of an engine does not forbid it.
HASH_GRAIN_TOKENS = 16
_HASH_BYTES = 8


def hash_key_id(key: str) -> str:
    """Names a key without giving it away."""
    return sha256(key.encode()).hexdigest()[:8]


def scope_id(
    key: str,
    cache_salt: str | None = None,
    adapter: str | None = None,
    model_fingerprint: str | None = None,
) -> str | None:
    """Name the trust boundary of reuse; None where nothing bounds it. An empty text counts as
    none. The same as the exporter gives to rows that state salt, adapter and fingerprint."""
    parts = [cache_salt or None, adapter or None, model_fingerprint or None]
    if not any(parts):
        return None
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    # The exporter's JSON names control characters in capitals; an escaped backslash stays.
    text = re.sub(r"\\(u[0-9a-f]{4}|.)", _capitals, text)
    return sha256((key + text).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _capitals(escape: re.Match[str]) -> str:
    name = escape[1]
    return "\\" + (f"u{name[1:].upper()}" if len(name) > 1 else name)


def content_hashes(token_ids: Sequence[int], grain_tokens: int, key: str = "") -> list[int]:
    """Name every whole block of `grain_tokens` by its own tokens: unsigned 64-bit numbers.

    A last block that is not full has no hash; fewer tokens than one block give an empty list.
    Raises ValueError for what cannot be a token id, without repeating it.
    """
    if grain_tokens < 1:
        raise ValueError(f"grain_tokens must be at least 1, got {grain_tokens}")
    whole = len(token_ids) // grain_tokens * grain_tokens
    try:
        packed = struct.pack(f"<{whole}Q", *token_ids[:whole])
    except struct.error:
        raise ValueError("token ids must be whole numbers from 0 to 2^64 - 1") from None
    fresh = blake2b(digest_size=_HASH_BYTES, key=_secret(key), person=b"content")
    hashes: list[int] = []
    for start in range(0, len(packed), grain_tokens * 8):
        block = fresh.copy()
        block.update(packed[start : start + grain_tokens * 8])
        hashes.append(int.from_bytes(block.digest(), "big"))
    return hashes


def root_hash(scope: str = "", key: str = "") -> int:
    """What stands before the first block of every chain of a scope."""
    digest = blake2b(scope.encode(), digest_size=_HASH_BYTES, key=_secret(key), person=b"scope")
    return int.from_bytes(digest.digest(), "big")


def extend_chain(parent: int, content: Iterable[int], key: str = "") -> list[int]:
    """The chain hashes of the blocks `content` after a chain that ended in `parent`."""
    fresh = blake2b(digest_size=_HASH_BYTES, key=_secret(key), person=b"chain")
    chain: list[int] = []
    for block in content:
        link = fresh.copy()
        link.update(struct.pack("<QQ", parent, block))
        parent = int.from_bytes(link.digest(), "big")
        chain.append(parent)
    return chain


def chain_hashes(
    token_ids: Sequence[int], grain_tokens: int, scope: str = "", key: str = ""
) -> list[int]:
    """Name every whole block of a prompt by its own tokens and all tokens before it.

    Chains of different scopes or keys share nothing. The rest is as in `content_hashes`.
    """
    return extend_chain(root_hash(scope, key), content_hashes(token_ids, grain_tokens, key), key)


def _secret(key: str) -> bytes:
    """Keys of any length as one blake2b takes; the empty key is none."""
    return sha256(key.encode()).digest() if key else b""
