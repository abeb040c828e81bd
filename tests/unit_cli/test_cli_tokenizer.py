"""`--tokenizer`: what the files of a model make of a log with messages."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from exporter.errors import PrefixscopeError
from prefixscope.client import Exporter
from prefixscope.tokenizer_options import give, prompt_reader
from tests.log_path import ndjson

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out

WORDS = ["start", "answer", *(f"w{n}" for n in range(100))]
SYSTEM = " ".join(f"w{n}" for n in range(62))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A token a word; the template puts one in front and one behind."""
    folder = tmp_path / "model"
    folder.mkdir()
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="start"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "start {% for m in messages %}{{ m.content + ' ' }}{% endfor %}answer"
    (folder / "chat_template.jinja").write_text(template)
    return folder


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two prompts of 70 tokens, the first 63 the same: three whole blocks, and a fourth is not."""
    rows = [
        {"id": f"r{turn}", "created": 1772452800 + turn, "model": "openai/org/small",
         "usage": {"prompt_tokens": 70, "completion_tokens": 1,
                   "prompt_tokens_details": {"cached_tokens": 48 * turn}},
         "messages": [{"role": "system", "content": SYSTEM},
                      {"role": "user", "content": f"w{90 + turn} w1 w2 w3 w4 w5"}]}
        for turn in range(2)
    ]  # fmt: skip
    path = tmp_path / "log.jsonl"
    path.write_bytes(ndjson(rows))
    return path


def test_messages_are_explained_to_the_token(cli: Cli, log: Path, model: Path) -> None:
    done = cli("attribute", log, "--tokenizer", f"org/small={model}", "--output", "json")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert (found["prompt_tokens"], found["cached_tokens"]) == (140, 48)
    taken = {name: tokens for name, tokens in found["causes"].items() if tokens}
    # Of the first prompt all but 70 - 64 tokens was new, of the second the block that parts.
    assert taken.pop("layout", 0) + taken.pop("new") == 64 + 16
    assert taken == {"rounding": 6 + 6}
    assert found["approximate_requests"] == 0


def test_without_one_the_same_is_approximate_and_said(cli: Cli, log: Path) -> None:
    done = cli("attribute", log)
    assert "flagged (2 approximate_chain)" in done.err
    assert "Approximate: 2 requests" in done.out


def test_a_store_takes_them_and_an_exporter_has_its_own(
    cli: Cli, log: Path, model: Path, tmp_path: Path
) -> None:
    done = cli("ingest", log, "--store", tmp_path / "store", "--tokenizer", model)
    assert done.status == 0, done.err
    assert "flagged" not in done.out
    done = cli("attribute", "--store", tmp_path / "store", "--tokenizer", model)
    assert (done.status, "--tokenizer reads files" in done.err) == (2, True)
    reader = prompt_reader([str(model)], None)
    with pytest.raises(PrefixscopeError, match="under prompts"):
        give(Exporter("http://127.0.0.1:9"), reader)
    give(Exporter("http://127.0.0.1:9"), None)
