"""The prompt of a row becomes names, and goes no further.

Token ids as the engine had them are the best there is, then those of a local tokenizer if it counts
as many as were reported, else chunks of the text, which are approximate and say so. Names of token
ids are those that the tap gives to the same prompt.
"""

from dataclasses import dataclass, field

from exporter.prompts.asked import Prompt, asked
from exporter.prompts.row_values import count_value, moment, text_value
from exporter.prompts.settings import PromptSettings
from exporter.prompts.template import NotRendered
from exporter.prompts.tokenizer import Tokenizers
from exporter.sources.formats.mapping import NAMED_PROMPT, LogFormat, Row
from replay.byte_chunks import text_chain, text_contents, text_key_id
from replay.hashes import (
    HASH_GRAIN_TOKENS,
    content_hashes,
    extend_chain,
    hash_key_id,
    root_hash,
    scope_id,
)
from replay.pieces import text_pieces, token_pieces

# What is to be said of the names of a prompt, as flags of its row.
FAILED, DISAGREE, COUNTED = "prompt_not_rendered", "tokens_disagree", "prompt_counted"
Names = dict[str, object]


@dataclass(frozen=True)
class PromptReader:
    """Names prompts by the tokenizers there are; without any, by chunks of their text."""

    settings: PromptSettings = field(default_factory=PromptSettings)
    tokenizers: Tokenizers = field(default_factory=lambda: Tokenizers({}))

    @classmethod
    def of(cls, settings: PromptSettings) -> "PromptReader":
        """Reads the files; PrefixscopeError says which cannot be used."""
        return cls(settings, Tokenizers(settings.tokenizers))

    def named(self, row: Row, log_format: LogFormat, key: str) -> Row:
        """The row with names under a key of their own, if it has a prompt, and without its ids."""
        places = log_format.prompts
        assert places is not None
        prompt = asked(row, places)
        kept = {name: value for name, value in row.items()
                if name != NAMED_PROMPT and name not in places.token_ids}  # fmt: skip
        if prompt is None or "block_hashes" in row:
            return kept
        names = self._names(prompt, row, log_format, key)
        return kept | {NAMED_PROMPT: names} if names else kept

    def _names(self, prompt: Prompt, row: Row, log_format: LogFormat, key: str) -> Names:
        salt = text_value(row, log_format, "cache_salt")
        adapter = text_value(row, log_format, "adapter")
        scope = scope_id(key, salt, adapter, None) or ""
        reported = count_value(row, log_format, "prompt_tokens")
        if prompt.token_ids is not None:
            note = DISAGREE if reported not in (None, len(prompt.token_ids)) else None
            return _of_tokens(prompt.token_ids, scope, key) | _noted(note)
        found, note = self._tokenized(prompt, row, log_format, reported)
        if found is not None:
            counted = {"prompt_tokens": len(found)} if reported is None else {}
            return _of_tokens(found, scope, key) | _noted(note) | counted
        if not self.settings.text_chunks or reported is None:
            return _noted(note)
        return _of_text(prompt.plain(), scope, key) | _noted(note)

    def _tokenized(
        self, prompt: Prompt, row: Row, log_format: LogFormat, reported: int | None
    ) -> tuple[list[int] | None, str | None]:
        """Ids by the model's tokenizer, or why there are none that can be relied on."""
        tokenizer = self.tokenizers.of(text_value(row, log_format, "model"))
        if tokenizer is None:
            return None, None
        try:
            ids = tokenizer.token_ids(prompt, moment(row, log_format))
        except NotRendered:
            return None, FAILED
        if reported is None:
            return ids, COUNTED
        # One token more or less, and somewhere the ids are others than the engine's.
        return (ids, None) if len(ids) == reported else (None, DISAGREE)


def _of_tokens(token_ids: list[int], scope: str, key: str) -> Names:
    """No names for what cannot be token ids."""
    try:
        contents = content_hashes(token_ids, HASH_GRAIN_TOKENS, key)
        pieces, lengths = token_pieces(token_ids, key)
    except ValueError:
        return {}
    return {
        "block_hashes": extend_chain(root_hash(scope, key), contents, key),
        "content_hashes": contents,
        "piece_hashes": pieces,
        "piece_lengths": lengths,
        "hash_scope": "global",
        "hash_key_id": hash_key_id(key),
    }


def _of_text(text: bytes, scope: str, key: str) -> Names:
    contents = text_contents(text, key)
    if not contents:  # shorter than a chunk: no name of it would be a prefix of anything
        return {}
    pieces, lengths = text_pieces(text, key)
    return {
        "block_hashes": text_chain(contents, scope, key),
        "content_hashes": contents,
        "piece_hashes": pieces,
        "piece_lengths": lengths,
        "text_bytes": len(text),
        "hash_scope": "global",
        "hash_key_id": text_key_id(key),
    }


def _noted(note: str | None) -> Names:
    return {"prompt_note": note} if note else {}
