"""The tokenizer of a model, for texts of prompts."""

from datetime import UTC, datetime
from pathlib import Path

from exporter.prompts.asked import Prompt
from exporter.prompts.settings import TokenizerSettings
from exporter.prompts.tokenizer import ModelTokenizer
from replay.layout.tokens import Encode

# Of no account for a text: only templates ask for the time.
_NEVER = datetime.fromtimestamp(0, UTC)
_NO_TEMPLATE = {"add_special_tokens": False}


def encoder(path: Path) -> Encode:
    """Cuts texts as the model does. Raises PrefixscopeError for a file that is no tokenizer."""
    model = ModelTokenizer(TokenizerSettings(tokenizer=path))

    def encode(text: str) -> list[int]:
        # Half characters, which no tokenizer takes, are as good as a question mark.
        whole = text.encode(errors="replace").decode()
        return model.token_ids(Prompt(_NO_TEMPLATE, text=whole), _NEVER)

    return encode
