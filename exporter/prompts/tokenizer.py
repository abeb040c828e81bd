"""Tokenizers of models, from files at hand: a prompt becomes the ids that an engine works with."""

import importlib
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Protocol

from exporter.errors import PrefixscopeError
from exporter.prompts.asked import Prompt
from exporter.prompts.settings import ANY_MODEL, TokenizerSettings
from exporter.prompts.template import ChatTemplate, NotRendered

_TOKENIZER, _CONFIG, _TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
# A template that a model has for prompts with tools, where it has several.
_DEFAULT, _WITH_TOOLS = "default", "tool_use"


class _Encoding(Protocol):
    @property
    def ids(self) -> list[int]: ...


class _Tokenizer(Protocol):
    """What is used of a tokenizer of the library, which comes with an extra."""

    def encode(self, sequence: str, *, add_special_tokens: bool) -> _Encoding: ...


class ModelTokenizer:
    """One model's tokenizer and chat templates. Raises PrefixscopeError for files that are none."""

    def __init__(self, settings: TokenizerSettings) -> None:
        path = settings.tokenizer
        path = path / _TOKENIZER if path.is_dir() else path
        self._tokenizer = _loaded(path)
        self._templates = _templates(settings.chat_template, path.parent)

    def token_ids(self, prompt: Prompt, now: datetime) -> list[int]:
        """The ids of a prompt that is text or messages. Raises NotRendered where the template
        fails, or there is none."""
        request = prompt.request
        if prompt.text is not None:
            special = request.get("add_special_tokens", True) is not False
            return self._ids(prompt.text, special)
        template = self._templates.get(_WITH_TOOLS if request.get("tools") else _DEFAULT)
        template = template or self._templates.get(_DEFAULT)
        if template is None:
            raise NotRendered
        text = template.render(prompt.messages or [], request, now)
        # A template writes its special tokens itself.
        return self._ids(text, request.get("add_special_tokens", False) is True)

    def _ids(self, text: str, special: bool) -> list[int]:
        try:
            return self._tokenizer.encode(text, add_special_tokens=special).ids
        except (UnicodeEncodeError, TypeError):  # half characters, which no tokenizer takes
            raise NotRendered from None


class Tokenizers:
    """The tokenizers of all models that have one."""

    def __init__(self, settings: Mapping[str, TokenizerSettings]) -> None:
        self._by_model = {model: ModelTokenizer(given) for model, given in settings.items()}

    def of(self, model: str | None) -> ModelTokenizer | None:
        """By the name in a row, which gateways put names of providers in front of."""
        names = [model or ""]
        while "/" in names[-1]:
            names.append(names[-1].split("/", 1)[1])
        found = (self._by_model.get(name) for name in (*names, ANY_MODEL))
        return next((tokenizer for tokenizer in found if tokenizer is not None), None)


def _loaded(path: Path) -> _Tokenizer:
    try:
        library = importlib.import_module("tokenizers")
    except ImportError as error:
        raise PrefixscopeError(
            "tokenizers are read by a package that is not installed: "
            "pip install 'prefixscope[tokenizers]'"
        ) from error
    text = _text(path)
    try:
        tokenizer: _Tokenizer = library.Tokenizer.from_str(text)
    except Exception as error:  # the library raises nothing narrower
        raise PrefixscopeError(f"{path}: this is no tokenizer.json: {error}") from error
    return tokenizer


def _templates(given: Path | None, folder: Path) -> dict[str, ChatTemplate]:
    """By their names in the file; none where no file has one."""
    config_path = given if given is not None and given.suffix == ".json" else folder / _CONFIG
    config = _config(config_path) if config_path.exists() or config_path == given else {}
    special = {name: found for name, value in config.items()
               if name.endswith("_token") and (found := _token(value))}  # fmt: skip
    if given is not None and given != config_path:
        return {_DEFAULT: ChatTemplate(_text(given), special, str(given))}
    beside = folder / _TEMPLATE
    if given is None and beside.exists():
        return {_DEFAULT: ChatTemplate(_text(beside), special, str(beside))}
    told = config.get("chat_template")
    if isinstance(told, str):
        return {_DEFAULT: ChatTemplate(told, special, str(config_path))}
    if given is not None and not told:
        raise PrefixscopeError(f"{given}: there is no chat_template in it; name the file that has")
    return {
        str(entry["name"]): ChatTemplate(entry["template"], special, str(config_path))
        for entry in (told if isinstance(told, list) else [])
        if isinstance(entry, dict) and isinstance(entry.get("template"), str) and "name" in entry
    }


def _token(value: object) -> str | None:
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else None


def _config(path: Path) -> dict[str, object]:
    try:
        found = json.loads(_text(path))
    except ValueError as error:
        raise PrefixscopeError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(found, dict):
        raise PrefixscopeError(f"{path}: this is no tokenizer_config.json: it has no object")
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise PrefixscopeError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PrefixscopeError(f"{path}: is not UTF-8 text") from error
