"""A local tokenizer gives the ids that the library gives to the rendered text."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from exporter.errors import PrefixscopeError
from exporter.prompts.asked import Prompt
from exporter.prompts.settings import TokenizerSettings
from exporter.prompts.template import NotRendered
from exporter.prompts.tokenizer import ModelTokenizer, Tokenizers

MOMENT = datetime(2026, 3, 2, 12, tzinfo=UTC)
MESSAGES: list[dict[str, object]] = [
    {"role": "system", "content": "follow the policy"},
    {"role": "user", "content": "a question"},
]
RENDERED = (
    "<|im_start|>system\nfollow the policy<|im_end|>\n"
    "<|im_start|>user\na question<|im_end|>\n<|im_start|>assistant\n"
)


def ids_of(tokenizer: ModelTokenizer, prompt: Prompt) -> list[int]:
    return tokenizer.token_ids(prompt, MOMENT)


def test_messages_are_rendered_and_no_token_is_put_in_front(
    model: Path, library: Tokenizer
) -> None:
    tokenizer = ModelTokenizer(TokenizerSettings(tokenizer=model))
    ids = ids_of(tokenizer, Prompt({}, messages=MESSAGES))
    assert ids == library.encode(RENDERED, add_special_tokens=False).ids
    # The marks of the template are one token each, and not letters.
    assert [ids.count(number) for number in (0, 1, 2)] == [0, 3, 2]


def test_a_plain_prompt_has_the_special_token_unless_it_asks_for_none(
    model: Path, library: Tokenizer
) -> None:
    tokenizer = ModelTokenizer(TokenizerSettings(tokenizer=model / "tokenizer.json"))
    plain = library.encode("the policy", add_special_tokens=False).ids
    assert ids_of(tokenizer, Prompt({}, text="the policy")) == [0, *plain]
    bare = Prompt({"add_special_tokens": False}, text="the policy")
    assert ids_of(tokenizer, bare) == plain


@pytest.mark.parametrize("as_list", [False, True])
def test_the_template_may_stand_in_the_config(
    model: Path, library: Tokenizer, tmp_path: Path, as_list: bool
) -> None:
    source = "{{ bos_token }}{{ messages[0].content }}"
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": source}]
    config = {"bos_token": "<s>", "chat_template": named if as_list else source}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = ModelTokenizer(
        TokenizerSettings(tokenizer=model, chat_template=tmp_path / "tokenizer_config.json")
    )
    ids = ids_of(tokenizer, Prompt({}, messages=MESSAGES))
    assert ids == library.encode("<s>follow the policy", add_special_tokens=False).ids
    if as_list:
        ids = ids_of(tokenizer, Prompt({"tools": [{}]}, messages=MESSAGES))
        assert ids == library.encode("tools", add_special_tokens=False).ids


def test_without_a_template_only_text_has_ids(model: Path, tmp_path: Path) -> None:
    alone = tmp_path / "tokenizer.json"
    alone.write_bytes((model / "tokenizer.json").read_bytes())
    tokenizer = ModelTokenizer(TokenizerSettings(tokenizer=alone))
    assert ids_of(tokenizer, Prompt({}, text="the policy"))
    with pytest.raises(NotRendered):
        ids_of(tokenizer, Prompt({}, messages=MESSAGES))


def test_half_characters_are_no_text_to_a_tokenizer(model: Path) -> None:
    tokenizer = ModelTokenizer(TokenizerSettings(tokenizer=model))
    with pytest.raises(NotRendered):
        ids_of(tokenizer, Prompt({}, text="Zebra \ud83d"))


def test_models_are_known_by_the_name_behind_their_provider(model: Path) -> None:
    given = TokenizerSettings(tokenizer=model)
    known = Tokenizers({"org/tiny": given})
    assert known.of("org/tiny") is known.of("openai/org/tiny") is not None
    assert known.of("tiny") is known.of("org/tiny-2") is known.of(None) is None
    assert Tokenizers({"*": given}).of(None) is not None


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("tokenizer.json", b"{}", "is no tokenizer.json"),
        ("tokenizer.json", b"\xff", "not UTF-8"),
        ("tokenizer_config.json", b"{", "cannot be read as JSON"),
        ("tokenizer_config.json", b"[]", "no object"),
        ("chat_template.jinja", b"{% for %}", "no chat template"),
    ],
)
def test_files_that_are_none_are_named(
    model: Path, tmp_path: Path, name: str, data: bytes, says: str
) -> None:
    for file in model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / name).write_bytes(data)
    with pytest.raises(PrefixscopeError, match=says) as failed:
        ModelTokenizer(TokenizerSettings(tokenizer=tmp_path))
    assert str(tmp_path / name) in str(failed.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PrefixscopeError, match=r"tokenizer\.json: cannot be read"):
        ModelTokenizer(TokenizerSettings(tokenizer=tmp_path))
    with pytest.raises(PrefixscopeError, match="gone"):
        ModelTokenizer(TokenizerSettings(tokenizer=tmp_path / "gone.json"))


def test_a_config_without_a_template_is_not_taken_for_one(model: Path) -> None:
    config = model / "tokenizer_config.json"
    with pytest.raises(PrefixscopeError, match="no chat_template in it"):
        ModelTokenizer(TokenizerSettings(tokenizer=model, chat_template=config))


def test_without_the_package_the_extra_is_named(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(PrefixscopeError, match=r"pip install 'prefixscope\[tokenizers\]'"):
        ModelTokenizer(TokenizerSettings(tokenizer=model))
