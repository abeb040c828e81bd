"""What a request says about itself, and how the token ids of its prompt can be had.

Prompts pass through here in memory only: what leaves is labels, numbers and keyed hashes.
"""

import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from prefixscope.tap.settings import Pick
from prefixscope.tap.usage import CHAT, COMPLETIONS
from replay.hashes import HASH_GRAIN_TOKENS, content_hashes, extend_chain, root_hash

_LONGEST_LABEL = 256
_SLICE_TOKENS = 256 * HASH_GRAIN_TOKENS
# The same fields mean the same in the request to the tokenizer.
_TEMPLATE_FIELDS = (
    "model", "messages", "add_generation_prompt", "continue_final_message", "add_special_tokens",
    "chat_template", "chat_template_kwargs", "tools",
)  # fmt: skip
# What the chat template is given besides, under its own name.
_TEMPLATE_WORDS = ("documents", "reasoning_effort")

Headers = Mapping[str, str]


def picked(
    picks: Sequence[Pick], headers: Headers, body: Mapping[str, Any], key: str
) -> str | None:
    """The first of `picks` that has a value, as a short label; None where none has.

    A keyed pick without a key gives nothing rather than the secret.
    """
    for pick in picks:
        value = _found(pick, headers, body)
        if value is None or (pick.keyed and not key):
            continue
        if pick.keyed:
            return sha256((key + value).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return value[:_LONGEST_LABEL]
    return None


def _found(pick: Pick, headers: Headers, body: Mapping[str, Any]) -> str | None:
    if pick.place == "text":
        return pick.name
    if pick.place == "header":
        return headers.get(pick.name) or None
    value: Any = body
    for step in pick.name.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return str(value) or None


def given_token_ids(kind: str, body: Mapping[str, Any]) -> list[int] | None:
    """Token ids the client sent instead of a text; None where it sent a text or several prompts."""
    prompt = body.get("prompt") if kind == COMPLETIONS else None
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], list):
        prompt = prompt[0]
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return prompt
    return None


def prompts_asked(kind: str, body: Mapping[str, Any]) -> int:
    """How many prompts one request holds; only the completions API allows several."""
    prompt = body.get("prompt") if kind == COMPLETIONS else None
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        return len(prompt)
    return 1


def tokenize_request(kind: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
    """What to ask a tokenizer for the ids of this prompt; None where that cannot tell them.

    A prompt with images or audio is more than its tokens: two of them may have equal ids.
    """
    if kind == COMPLETIONS:
        prompt = body.get("prompt")
        if isinstance(prompt, list) and len(prompt) == 1:
            prompt = prompt[0]
        if not isinstance(prompt, str) or body.get("prompt_embeds"):
            return None
        wanted = {name: body[name] for name in ("model", "add_special_tokens") if name in body}
        return {**wanted, "prompt": prompt}
    messages = body.get("messages")
    if kind != CHAT or not isinstance(messages, list) or not all(map(_is_text, messages)):
        return None
    wanted = {name: body[name] for name in _TEMPLATE_FIELDS if body.get(name) is not None}
    words = {name: body[name] for name in _TEMPLATE_WORDS if body.get(name) is not None}
    if words:
        wanted["chat_template_kwargs"] = {**words, **(body.get("chat_template_kwargs") or {})}
    return wanted


def _is_text(message: object) -> bool:
    """Is the content of this message text and nothing else?"""
    content = message.get("content") if isinstance(message, Mapping) else None
    if content is None or isinstance(content, str):
        return isinstance(message, Mapping)
    return isinstance(content, list) and all(
        isinstance(part, str) or (isinstance(part, Mapping) and part.get("type") == "text")
        for part in content
    )


def hashed(token_ids: Sequence[int], scope: str, key: str) -> tuple[list[int], list[int]]:
    """Chain and content hashes of a prompt.

    In slices, with a pause after each: this runs in a thread beside the one that serves, and
    only one of them computes at a time.
    """
    chain, content = [root_hash(scope, key)], []
    for start in range(0, len(token_ids), _SLICE_TOKENS):
        part = content_hashes(token_ids[start : start + _SLICE_TOKENS], HASH_GRAIN_TOKENS, key)
        chain += extend_chain(chain[-1], part, key)
        content += part
        time.sleep(0)
    return chain[1:], content
