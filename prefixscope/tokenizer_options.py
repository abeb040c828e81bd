"""Tokenizers named on the command line: a path, or a path for one model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from exporter.errors import PrefixscopeError
from exporter.prompts.naming import PromptReader
from exporter.prompts.settings import ANY_MODEL, PromptSettings, TokenizerSettings
from prefixscope.client import Exporter, OpenStore

Tokenizer = Annotated[
    list[str] | None,
    typer.Option(
        "--tokenizer",
        metavar="[MODEL=]PATH",
        help="tokenizer.json of the model, or its folder: prompts in the rows become chains of its "
        "tokens. Needs the extra tokenizers.",
    ),
]
ChatTemplate = Annotated[
    list[str] | None,
    typer.Option(
        "--chat-template",
        metavar="[MODEL=]PATH",
        help="Its chat template (.jinja, or tokenizer_config.json).",
        show_default="beside the tokenizer",
    ),
]


def prompt_reader(
    tokenizers: Sequence[str] | None, templates: Sequence[str] | None
) -> PromptReader | None:
    """From the two options; None where neither was given."""
    found, beside = _by_model(tokenizers or ()), _by_model(templates or ())
    if unused := beside.keys() - found.keys():
        raise typer.BadParameter(
            f"--chat-template for {', '.join(sorted(unused))} needs a --tokenizer for it too"
        )
    if not found:
        return None
    return PromptReader.of(
        PromptSettings(
            tokenizers={
                model: TokenizerSettings(tokenizer=path, chat_template=beside.get(model))
                for model, path in found.items()
            }
        )
    )


def give(target: Exporter | OpenStore, reader: PromptReader | None) -> None:
    """Have a store read prompts so; an exporter has its own settings."""
    if reader is None:
        return
    if isinstance(target, Exporter):
        raise PrefixscopeError(
            f"{target.where} names prompts by the tokenizers in its own settings: put yours there, "
            "under prompts; or stop it, or load into another store with --store"
        )
    target.store.prompts = reader


def _by_model(given: Sequence[str]) -> dict[str, Path]:
    found = {}
    for text in given:
        model, separator, path = text.partition("=")
        if not separator or Path(text).exists():
            model, path = ANY_MODEL, text
        found[model] = Path(path)
    return found
