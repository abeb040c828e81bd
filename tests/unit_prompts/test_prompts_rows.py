"""Prompts in log rows become chains: the ids of the engine, of a tokenizer, or chunks of text."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from exporter.prompts.naming import PromptReader
from exporter.prompts.settings import PromptSettings, TokenizerSettings
from exporter.store.store import Store
from replay.byte_chunks import text_chain, text_contents, text_key_id
from replay.hashes import chain_hashes, content_hashes, scope_id
from replay.pieces import text_pieces, token_pieces
from tests.log_path import SMALL, Answer, by_id, load, rejects

MESSAGES = [
    {"role": "system", "content": "follow the policy of the assistant " * 12},
    {"role": "user", "content": "a question of the user"},
]
RENDERED = (
    "".join(f"<|im_start|>{each['role']}\n{each['content']}<|im_end|>\n" for each in MESSAGES)
    + "<|im_start|>assistant\n"
)
PLAIN = "\n".join(f"{each['role']}\n{each['content']}" for each in MESSAGES)
USAGE = {"completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 0}}


def reader_of(model: Path, chat_template: Path | None = None) -> PromptReader:
    given = TokenizerSettings(tokenizer=model, chat_template=chat_template)
    return PromptReader.of(PromptSettings(tokenizers={"org/tiny": given}))


@pytest.fixture
def reading(shared_store: Store, model: Path) -> Iterator[Store]:
    usual = shared_store.prompts
    shared_store.prompts = reader_of(model)
    yield shared_store
    shared_store.prompts = usual


@pytest.fixture(scope="module")
def ids(library: Tokenizer) -> list[int]:
    found: list[int] = library.encode(RENDERED, add_special_tokens=False).ids
    assert len(found) > 64
    return found


def answer(name: str, prompt_tokens: int | None, **more: object) -> dict[str, object]:
    """A saved answer of an OpenAI-style server, with what was asked beside it."""
    usage = USAGE if prompt_tokens is None else {**USAGE, "prompt_tokens": prompt_tokens}
    return {"id": name, "created": 1772452800, "model": "org/tiny", "usage": usage, **more}


def check_tokens(row: Answer, ids: list[int], key: str, salt: str | None = None) -> None:
    assert row["block_hashes"] == chain_hashes(ids, 16, scope_id(key, salt) or "", key)
    assert row["content_hashes"] == content_hashes(ids, 16, key)
    pieces, lengths = token_pieces(ids, key)
    assert (row["piece_hashes"], row["piece_lengths"]) == (pieces, lengths)
    assert (sum(lengths), row["text_bytes"], row["hash_scope"]) == (len(ids), None, "global")


def check_text(row: Answer, text: bytes, key: str) -> None:
    assert row["block_hashes"] == text_chain(text_contents(text, key), "", key)
    pieces, lengths = text_pieces(text, key)
    assert (row["piece_hashes"], row["piece_lengths"]) == (pieces, lengths)
    assert (row["text_bytes"], row["hash_key_id"]) == (len(text), text_key_id(key))
    assert "approximate_chain" in row["flags"]


def test_messages_become_the_chain_of_their_rendered_tokens(reading: Store, ids: list[int]) -> None:
    body = {"model": "org/tiny", "messages": MESSAGES}
    rows = [
        answer("beside", len(ids), messages=MESSAGES),
        answer("request", len(ids), request={**body, "cache_salt": "s"}),
        answer("as-text", len(ids), body=json.dumps(body)),
    ]
    load(reading, rows, "messages", format="openai")
    found = by_id(reading, "messages")
    check_tokens(found["beside"], ids, reading.key)
    check_tokens(found["request"], ids, reading.key, "s")
    check_tokens(found["as-text"], ids, reading.key)
    assert found["request"]["scope"] == scope_id(reading.key, "s")
    assert {row["hash_key_id"] for row in found.values()} == {reading.hash_key_id}
    assert [row["flags"] for row in found.values()] == [None] * 3


def test_litellm_messages_are_prompts_unless_they_were_left_out(
    reading: Store, ids: list[int]
) -> None:
    def row(name: str, messages: object) -> dict[str, object]:
        return {
            "id": name, "litellm_call_id": name, "call_type": "acompletion", "cache_hit": None,
            "model": "org/tiny", "custom_llm_provider": "hosted_vllm", "startTime": 1772452800.0,
            "endTime": 1772452801.0, "prompt_tokens": len(ids), "completion_tokens": 5,
            "model_parameters": {"stream": False}, "hidden_params": {}, "messages": messages,
            "metadata": {"usage_object": {"prompt_tokens_details": {"cached_tokens": 0}}},
        }  # fmt: skip

    left_out = [{"role": "user", "content": "redacted-by-litellm"}]
    cut = [{"role": "user", "content": "abc... (litellm_truncated 900 chars)"}]
    rows = [row("whole", MESSAGES), row("text", json.dumps(MESSAGES)), row("left", left_out),
            row("cut", cut), row("none", "redacted by litellm")]  # fmt: skip
    load(reading, rows, "litellm", format="litellm")
    found = by_id(reading, "litellm")
    check_tokens(found["whole"], ids, reading.key)
    check_tokens(found["text"], ids, reading.key)
    assert [found[name]["block_hashes"] for name in ("left", "cut", "none")] == [None] * 3


def test_ids_the_engine_gave_are_taken_as_they_are(reading: Store) -> None:
    given = list(range(100, 150))
    rows = [answer("same", 50, prompt_token_ids=given, messages=MESSAGES),
            answer("other", 49, prompt_token_ids=given),
            answer("asked", 50, request={"prompt": given}),
            answer("none", 50, prompt_token_ids=[1, -5])]  # fmt: skip
    load(reading, rows, "ids", format="openai")
    found = by_id(reading, "ids")
    for name in ("same", "other", "asked"):
        check_tokens(found[name], given, reading.key)
    assert found["same"]["flags"] is found["asked"]["flags"] is None
    assert found["other"]["flags"] == ["tokens_disagree"]
    assert found["none"]["block_hashes"] is None


def test_a_count_that_is_not_the_reported_one_is_said_and_not_relied_on(
    reading: Store, ids: list[int]
) -> None:
    load(reading, [answer("off", len(ids) + 1, messages=MESSAGES)], "off", format="openai")
    (row,) = by_id(reading, "off").values()
    check_text(row, PLAIN.encode(), reading.key)
    assert set(row["flags"]) == {"approximate_chain", "tokens_disagree"}
    assert row["prompt_tokens"] == len(ids) + 1


def test_without_a_tokenizer_chunks_of_text_stand_for_tokens(reading: Store) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    rows = [
        answer("chat", 300, messages=MESSAGES, model="other"),
        answer("tools", 300, messages=MESSAGES, tools=tools, model="other"),
        answer("plain", 90, prompt="follow this policy " * 20, model="other"),
        answer("uncounted", None, messages=MESSAGES, model="other"),
        answer("image", 300, model="other", messages=[{"role": "user", "content": [
            {"type": "text", "text": "see " * 50}, {"type": "image_url", "image_url": {}}]}]),
        answer("nothing", 300, model="other"),
    ]  # fmt: skip
    load(reading, rows, "chunks", format="openai")
    found = by_id(reading, "chunks")
    check_text(found["chat"], PLAIN.encode(), reading.key)
    check_text(found["tools"], f"{json.dumps(tools)}\n{PLAIN}".encode(), reading.key)
    check_text(found["plain"], b"follow this policy " * 20, reading.key)
    assert found["chat"]["hash_key_id"] != reading.hash_key_id
    for name in ("uncounted", "image", "nothing"):
        assert (found[name]["block_hashes"], found[name]["text_bytes"]) == (None, None)


def test_chunks_of_text_can_be_switched_off(shared_store: Store) -> None:
    usual = shared_store.prompts
    shared_store.prompts = PromptReader.of(PromptSettings(text_chunks=False))
    load(shared_store, [answer("off", 300, messages=MESSAGES)], "switched", format="openai")
    shared_store.prompts = usual
    (row,) = by_id(shared_store, "switched").values()
    assert (row["block_hashes"], row["flags"]) == (None, None)


def test_a_log_that_counts_no_tokens_is_counted(shared_store: Store, model: Path) -> None:
    usual = shared_store.prompts
    tokenizer = TokenizerSettings(tokenizer=model)
    shared_store.prompts = PromptReader.of(PromptSettings(tokenizers={"*": tokenizer}))
    call = {"timestamp": 1760428635884722, "input": "the policy " * 40, "output": "o",
            "session_id": "a"}  # fmt: skip
    own = {"request_id": "own", "ts": "2026-03-02T12:00:00Z", "prompt_text": "the policy " * 40}
    load(shared_store, [call], "lmcache", format="auto")
    load(shared_store, [own], "own", format="ndjson")
    shared_store.prompts = usual
    for source in ("lmcache", "own"):
        (row,) = by_id(shared_store, source).values()
        assert row["prompt_tokens"] == sum(row["piece_lengths"])
        assert row["prompt_tokens"] // 16 == len(row["block_hashes"]) > 3
        assert "prompt_counted" in row["flags"]


def test_named_prompts_that_a_log_brings_along_are_not_believed(reading: Store) -> None:
    forged = {"block_hashes": [1], "hash_scope": "global", "hash_key_id": reading.hash_key_id}
    row = answer("forged", 50, prompt_token_ids=[5] * 50, prefixscope_prompt=forged)
    load(reading, [row], "forged", format="openai")
    check_tokens(by_id(reading, "forged")["forged"], [5] * 50, reading.key)


def test_lengths_of_pieces_that_cannot_be_are_left_out(shared_store: Store) -> None:
    told = {"fine": [1, 255], "zero": [0, 9], "long": [256, 9], "few": [9]}
    rows = [
        {"request_id": name, "ts": "2026-03-02T12:00:00Z", "prompt_tokens": 300,
         "piece_hashes": [1, 2], "piece_lengths": lengths}
        for name, lengths in told.items()
    ]  # fmt: skip
    load(shared_store, rows, "pieces")
    found = by_id(shared_store, "pieces")
    assert {name: row["piece_lengths"] for name, row in found.items()} == {
        "fine": [1, 255], "zero": None, "long": None, "few": None,
    }  # fmt: skip
    assert found["long"]["flags"] == ["unusable:piece_lengths"]


def test_reading_twice_changes_nothing(reading: Store, ids: list[int]) -> None:
    rows = [answer(f"again-{n}", len(ids) + n, messages=MESSAGES) for n in range(3)]
    load(reading, rows, "twice", format="openai")
    before = by_id(reading, "twice")
    summary = load(reading, rows, "twice", format="openai")
    assert (summary.accepted, summary.duplicate, summary.conflicting) == (0, 3, 0)
    assert by_id(reading, "twice") == before


def test_the_text_of_prompts_is_found_nowhere(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Byte by byte: also where a template fails, counts disagree, or a line is broken."""
    canary = "Zebra-Quartz-4711"
    failing = tmp_path / "failing.jinja"
    failing.write_text("{{ raise_exception(messages[0].content) }}")
    messages = [{"role": "user", "content": f"{canary} " * 30}]
    rows: list[Any] = [
        answer("chunks", 200, messages=messages, model="other"),
        answer("fails", 200, messages=messages),
        answer("plain", 200, prompt=f"{canary} " * 30),
        answer("ids", 3, prompt_token_ids=[987654321, 987654322, 987654323]),
        json.dumps(answer("cut", 200, messages=messages))[:-40],
        answer("half", 200, prompt=f"{canary} \ud83d"),
        answer("odd", 200, messages=[{"role": canary, "content": {"a": canary}}]),
    ]
    opened = Store.open(tmp_path / "store", SMALL)
    opened.prompts = reader_of(model, chat_template=failing)
    with caplog.at_level(logging.DEBUG):
        summary = load(opened, rows, "canary", format="openai")
    found = by_id(opened, "canary")
    assert set(found["fails"]["flags"]) == {"approximate_chain", "prompt_not_rendered"}
    assert rejects(opened, "canary") == [(5, "invalid_json"), (6, "invalid_json")]
    stored = repr([*found.values(), summary])
    opened.cursor().execute("CHECKPOINT")
    opened.close()
    files = b"".join(
        file.read_bytes() for file in (tmp_path / "store").rglob("*") if file.is_file()
    )
    shown = capfd.readouterr()
    for secret in (canary, "987654321"):
        assert secret.encode() not in files
        assert secret not in stored + caplog.text + shown.out + shown.err


def test_small_batches_of_every_kind_come_one_after_the_other(shared_store: Store) -> None:
    """From the third on a reading that stands takes them."""
    ids = list(range(100))
    for batch in range(4):
        told: list[dict[str, object]] = [{"token_ids": ids}, {"prompt_text": "abc " * 100}, {}]
        rows = [
            {"request_id": f"{batch}-{kind}", "ts": "2026-03-02T12:00:00Z", "prompt_tokens": 100,
             "cached_tokens": 0, **more}
            for kind, more in enumerate(told)
        ]  # fmt: skip
        summary = load(shared_store, rows, "batches", origin="http")
        assert (summary.accepted, summary.flags) == (3, {"approximate_chain": 1})
    for name, row in by_id(shared_store, "batches").items():
        if name.endswith("0"):
            check_tokens(row, ids, shared_store.key)
        elif name.endswith("1"):
            check_text(row, b"abc " * 100, shared_store.key)
        else:
            assert (row["block_hashes"], row["piece_hashes"], row["flags"]) == (None, None, None)
