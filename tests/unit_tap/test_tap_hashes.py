"""Hashes of the prompt: from the request's own token ids, or the engine's tokenizer afterwards."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from prefixscope.tap.asked import hashed, tokenize_request
from replay.hashes import chain_hashes, content_hashes, hash_key_id, scope_id
from tests.unit_tap.scripted import (
    CHAT,
    Script,
    ask,
    chunk,
    compact,
    event,
    rows_in,
    tapped,
    until,
    usage_chunk,
)

KEY = "fleet secret"
TOKENS = [(7 * number) % 1000 for number in range(100)]
MESSAGES = [{"role": "user", "content": "hello"}]
CHAT_REQUEST: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "stream": False}
USAGE = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 96}}
ANSWER = compact({"id": "x", "model": "tiny", "choices": [], "usage": USAGE})


def _script(tokens: list[int] | None = TOKENS) -> Script:
    script = Script(answer=lambda _: ANSWER)
    script.tokens = lambda request: tokens
    return script


def _row(
    folder: Path,
    request: object,
    script: Script | None = None,
    path: str = CHAT,
    proxied: bool = False,
    **settings: object,
) -> dict[str, Any]:
    (folder / "key").write_text(KEY)
    given: dict[str, object] = {"hashes": "all", "key_file": str(folder / "key"), **settings}
    with tapped(script or _script(), folder, proxied, **given) as (port, _):
        ask(port, request, path)
        # At the end of the server the tokenizer is not asked any more.
        until(lambda: bool(rows_in(folder)))
    (row,) = rows_in(folder)
    return row


@pytest.mark.parametrize("proxied", [False, True], ids=["middleware", "proxy"])
def test_chat_is_tokenized_by_the_engine(tmp_path: Path, proxied: bool) -> None:
    row = _row(tmp_path, CHAT_REQUEST, proxied=proxied)
    assert row["block_hashes"] == chain_hashes(TOKENS, 16, "", KEY)
    assert row["content_hashes"] == content_hashes(TOKENS, 16, KEY)
    assert len(row["block_hashes"]) == 6
    assert row["hash_grain_tokens"] == 16
    assert row["hash_key_id"] == hash_key_id(KEY)
    assert row["hash_scope"] == "global"
    assert "scope" not in row


def test_token_ids_of_the_request_need_no_tokenizer(tmp_path: Path) -> None:
    for number, prompt in enumerate((TOKENS, [TOKENS])):
        (folder := tmp_path / str(number)).mkdir()
        request = {"model": "tiny", "prompt": prompt}
        row = _row(folder, request, _script(None), "/v1/completions", hashes="chain")
        assert row["block_hashes"] == chain_hashes(TOKENS, 16, "", KEY)
        assert "content_hashes" not in row
        assert "flags" not in row


def test_token_ids_a_client_asked_for_are_used(tmp_path: Path) -> None:
    answer = {"id": "x", "choices": [], "usage": USAGE, "prompt_token_ids": TOKENS}
    script = Script(answer=lambda _: compact(answer))
    row = _row(tmp_path, {**CHAT_REQUEST, "return_token_ids": True}, script)
    assert row["block_hashes"] == chain_hashes(TOKENS, 16, "", KEY)
    (tmp_path / "stream").mkdir()
    first = chunk({"role": "assistant"}, prompt_token_ids=TOKENS)
    script = Script(lambda _: [first, chunk({}, "stop")])
    row = _row(tmp_path / "stream", {**CHAT_REQUEST, "stream": True}, script)
    assert row["block_hashes"] == chain_hashes(TOKENS, 16, "", KEY)


def test_t86_salt_adapter_and_fingerprint_are_part_of_the_chain(tmp_path: Path) -> None:
    request = {**CHAT_REQUEST, "model": "sql", "cache_salt": "salt-acme"}
    row = _row(tmp_path, request, adapters=("sql",), fingerprint="w2")
    scope = scope_id(KEY, "salt-acme", "sql", "w2")
    assert row["scope"] == scope
    assert row["adapter"] == "sql"
    assert row["model_fingerprint"] == "w2"
    assert row["block_hashes"] == chain_hashes(TOKENS, 16, str(scope), KEY)
    assert row["content_hashes"] == content_hashes(TOKENS, 16, KEY)
    assert "salt-acme" not in (tmp_path / "tap.ndjson").read_text()


def test_t95_tokens_the_engine_did_not_count_are_not_hashed(tmp_path: Path) -> None:
    row = _row(tmp_path, CHAT_REQUEST, _script(TOKENS[:99]))
    assert "block_hashes" not in row
    assert row["flags"] == ["hashes_mismatch"]
    assert row["prompt_tokens"] == 100


def test_t87_images_are_more_than_their_tokens(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    content = [{"type": "text", "text": "look"}, image]
    row = _row(tmp_path, {**CHAT_REQUEST, "messages": [{"role": "user", "content": content}]})
    assert "block_hashes" not in row
    assert row["cached_tokens"] == 96


def test_a_server_without_a_tokenizer_costs_the_hashes_only(tmp_path: Path) -> None:
    row = _row(tmp_path, CHAT_REQUEST, _script(None))
    assert row["flags"] == ["hashes_dropped"]
    assert row["tap"] == {"rows_dropped": 0, "hashes_dropped": 1}
    assert row["cached_tokens"] == 96


def test_nothing_is_asked_where_hashes_or_the_tokenizer_are_off(tmp_path: Path) -> None:
    for settings in ({"hashes": "off"}, {"tokenize": False}):
        asked: list[object] = []
        script = _script()
        script.tokens = lambda request, asked=asked: asked.append(request)  # type: ignore[misc]
        (folder := tmp_path / next(iter(settings))).mkdir()
        row = _row(folder, CHAT_REQUEST, script, **settings)
        assert not asked
        assert not {"block_hashes", "hash_key_id", "flags"} & set(row)


def test_an_aborted_prompt_is_counted_by_its_token_ids(tmp_path: Path) -> None:
    script = _script()
    script.pieces = lambda _: [chunk({"content": "a"}), event({"error": {"message": "x"}})]
    row = _row(tmp_path, {"model": "t", "prompt": TOKENS, "stream": True}, script, CHAT)
    assert "prompt_tokens" not in row  # no completion: nothing is known
    (tmp_path / "two").mkdir()
    script.pieces = lambda _: [event({"choices": [{"text": "a"}]})]
    request = {"model": "t", "prompt": TOKENS, "stream": True}
    row = _row(tmp_path / "two", request, script, "/v1/completions")
    assert row["status"] == "incomplete"
    assert row["prompt_tokens"] == 100
    assert "cached_tokens" not in row


def test_the_tokenizer_is_asked_after_the_answer(tmp_path: Path) -> None:
    """The engine stands still while it makes tokens: a client that waited for them would wait for
    ever, since here they are made when it has its answer."""
    answered, asked_at = threading.Event(), [0.0]

    def slow(request: dict[str, Any]) -> list[int]:
        asked_at[0] = time.perf_counter()
        assert answered.wait(50)
        return TOKENS

    (tmp_path / "key").write_text(KEY)
    script = _script()
    script.pieces = lambda _: [chunk({"content": "a"}), usage_chunk(USAGE)]
    script.tokens = slow
    with tapped(script, tmp_path, hashes="chain", key_file=str(tmp_path / "key")) as (port, _):
        began = time.perf_counter()
        body = ask(port, {**CHAT_REQUEST, "stream": True}).body
        answered.set()
        until(lambda: bool(rows_in(tmp_path)))
    (row,) = rows_in(tmp_path)
    assert body.count(b"data:") == 2
    assert row["e2e_seconds"] <= asked_at[0] - began
    assert row["block_hashes"] == chain_hashes(TOKENS, 16, "", KEY)


def test_the_tokenizer_waits_for_a_gap_between_prefills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second request waits for its first token while the first one's row is being made."""
    monkeypatch.setattr("prefixscope.tap.recorder._GAP_SECONDS", 30)
    (tmp_path / "key").write_text(KEY)
    script = _script()
    asked_while: list[int] = []
    with tapped(script, tmp_path, hashes="chain", key_file=str(tmp_path / "key")) as (port, tap):
        script.tokens = lambda request: asked_while.append(tap.waiting_requests) or TOKENS  # type: ignore[func-returns-value]
        tap.waiting_requests = 1
        ask(port, CHAT_REQUEST)
        time.sleep(0.3)
        assert asked_while == []
        tap.waiting_requests -= 1
        until(lambda: len(rows_in(tmp_path)) == 1)
        assert asked_while == [0]
        ask(port, {**CHAT_REQUEST, "case": "raises"})
        assert tap.waiting_requests == 0
        monkeypatch.setattr("prefixscope.tap.recorder._GAP_SECONDS", 0.1)
        tap.waiting_requests = 1  # one that never begins holds up no row
        ask(port, CHAT_REQUEST)
        until(lambda: len(rows_in(tmp_path)) == 3)


@pytest.mark.parametrize("length", [0, 15, 16, 4095, 4096, 4097, 9000])
def test_slices_make_no_difference(length: int) -> None:
    tokens = [(31 * number) % 50_000 for number in range(length)]
    chain, content = hashed(tokens, "scope", KEY)
    assert chain == chain_hashes(tokens, 16, "scope", KEY)
    assert content == content_hashes(tokens, 16, KEY)


# ---------------------------------------------------------------- what the tokenizer is asked


def test_what_the_template_sees_is_what_the_engine_was_asked() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    request = {
        "model": "m", "messages": MESSAGES, "tools": tools, "temperature": 1, "stream": True,
        "chat_template_kwargs": {"thinking": False}, "reasoning_effort": "low", "user": "u",
        "continue_final_message": True, "add_generation_prompt": False,
    }  # fmt: skip
    assert tokenize_request("chat", request) == {
        "model": "m", "messages": MESSAGES, "tools": tools,
        "chat_template_kwargs": {"reasoning_effort": "low", "thinking": False},
        "continue_final_message": True, "add_generation_prompt": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "request_", "asked"),
    [
        ("completions", {"prompt": "a"}, {"prompt": "a"}),
        ("completions", {"prompt": ["a"], "model": "m"}, {"prompt": "a", "model": "m"}),
        ("completions", {"prompt": ["a", "b"]}, None),
        ("completions", {"prompt": "a", "prompt_embeds": "x"}, None),
        ("completions", {}, None),
        ("chat", {"messages": "a"}, None),
        ("chat", {"messages": [{"role": "user", "content": 1}]}, None),
        ("chat", {"messages": ["a"]}, None),
        ("chat", {"messages": [{"role": "assistant", "tool_calls": []}]}, "the same"),
        ("chat", {"messages": [{"content": [{"type": "text", "text": "a"}]}]}, "the same"),
        ("responses", {"input": "a"}, None),
        ("messages", {"messages": MESSAGES}, None),
    ],
)
def test_which_prompts_a_tokenizer_can_tell(kind: str, request_: Any, asked: Any) -> None:  # noqa: ANN401
    assert tokenize_request(kind, request_) == (request_ if asked == "the same" else asked)
