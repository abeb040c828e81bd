"""Names for a prompt of which only the text is known: chunks of 64 bytes instead of tokens.

A chunk is named and chained like a block of tokens, so that prompts which begin with the same
bytes begin with the same names. How many tokens a chunk stands for is not known; `scaled.py` scales
them to the prompt tokens that were reported. Everything worked out from such names is approximate:
tokens are not spread evenly over text, and two texts may part inside a token.

Whoever has no token ids and no tokenizer starts here. Names of text are never compared with those
of token ids: they carry another key id.
"""

from hashlib import blake2b, sha256

from replay.hashes import extend_chain, hash_key_id, root_hash

# About 16 tokens of English, as many as a block of token ids has.
CHUNK_BYTES = 64
_HASH_BYTES = 8


def text_key_id(key: str) -> str:
    """What the names of text are marked with, so that they meet no names of token ids."""
    return hash_key_id(f"{key}\ntext")


def text_contents(text: bytes, key: str = "") -> list[int]:
    """Name every whole chunk by its own bytes; what is left at the end has no name."""
    secret = sha256(key.encode()).digest() if key else b""
    fresh = blake2b(digest_size=_HASH_BYTES, key=secret, person=b"text")
    names = []
    for start in range(0, len(text) // CHUNK_BYTES * CHUNK_BYTES, CHUNK_BYTES):
        chunk = fresh.copy()
        chunk.update(text[start : start + CHUNK_BYTES])
        names.append(int.from_bytes(chunk.digest(), "big"))
    return names


def text_chain(contents: list[int], scope: str = "", key: str = "") -> list[int]:
    """Name every chunk with all before it, in one scope."""
    return extend_chain(root_hash(scope, key), contents, key)
