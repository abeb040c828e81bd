"""A log with the text of prompts as traffic to replay, as it is and mended."""

import json
from pathlib import Path

import pytest

from exporter.errors import PrefixscopeError
from prefixscope.lint.reading import read_prompts
from prefixscope.lint.traffic import log_traffic
from replay.layout.search import search
from replay.lru import LruCache
from replay.prompts import Prompts
from replay.routers import Router
from replay.rules import RULES
from replay.untimed import serve

SECRET = "the quarterly numbers of nobody"


def logged(tmp_path: Path, requests: int = 12, times: bool = True) -> Path:
    """Requests of one template with a clock in front of 300 words that stay the same."""
    rules = " ".join(f"rule {number} holds" for number in range(100))
    rows = []
    for number in range(requests):
        system = f"It is 2026-11-23 09:{number:02}:07.\n{rules}"
        question = f"{SECRET} {number} " + " ".join(f"word{number * 7 + n}" for n in range(20))
        messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
        when = {"ts": f"2026-11-23T09:{number:02}:07Z"} if times else {}
        rows.append({**when, "user": f"u{number % 3}", "messages": messages})
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def found_tokens(prompts: Prompts) -> int:
    """Whole blocks of earlier prompts, none ever lost, never the last token."""
    cache, found = LruCache(None), 0
    for row, length in enumerate(prompts.prompt_tokens.tolist()):
        chain = prompts.blocks[prompts.starts[row] : prompts.starts[row + 1]].tolist()
        found += min(cache.serve(chain, []) * 16, (length - 1) // 16 * 16)
    return found


def test_a_replay_of_the_mended_log_finds_what_lint_proves(tmp_path: Path) -> None:
    path = logged(tmp_path)
    proof = search(read_prompts([path]).prompts).together
    told = log_traffic([path], mends=True).recorded
    assert told.mended is not None
    assert found_tokens(told.prompts) == proof.cached_tokens
    assert found_tokens(told.mended) == proof.mended_cached_tokens > 4_000
    (words,) = told.mended_words
    assert words.startswith("found 1: clock in system[0] at token ")
    assert words.endswith(", which changes with every request, as lint mends it")


def test_answers_that_are_sent_again_are_found_as_lint_finds_them(tmp_path: Path) -> None:
    """The second turn sends the first one's answer again: 200 words."""
    asked = {"role": "user", "content": "tell me of " + "rivers " * 60}
    told = {"role": "assistant", "content": " ".join(f"river{number}" for number in range(200))}
    turns = [[asked], [asked, told, {"role": "user", "content": "and of lakes"}]]
    rows = [
        {"ts": f"2026-11-23T09:0{number}:00Z", "messages": messages, "output": told["content"]}
        for number, messages in enumerate(turns)
    ]
    path = tmp_path / "turns.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    proof = search(read_prompts([path]).prompts).together
    prompts = log_traffic([path]).recorded.prompts
    served = serve(prompts, RULES["vllm"].of_blocks(16), Router(name="round-robin"), 1, None)
    own = int(prompts.prompt_tokens[0])
    assert served.cached_tokens[0] == 0
    assert served.cached_tokens[1] == proof.cached_tokens > own + 200


def test_requests_keep_their_times_and_users_and_nothing_of_their_text(tmp_path: Path) -> None:
    told = log_traffic([logged(tmp_path, requests=4)])
    assert told.recorded.prompts.arrived.tolist() == [0.0, 60.0, 120.0, 180.0]
    assert told.recorded.tenant is not None
    assert told.recorded.tenant.codes.tolist() == [0, 1, 2, 0]
    assert told.recorded.mended is None
    assert SECRET not in repr(told)
    assert told.words().endswith("Tokens are approximate: equal text is equal tokens")


def test_without_times_requests_come_as_they_stand_which_is_said(tmp_path: Path) -> None:
    told = log_traffic([logged(tmp_path, requests=3, times=False)], block_tokens=32)
    assert told.recorded.prompts.arrived.tolist() == [0.0, 1.0, 2.0]
    assert told.recorded.prompts.block_tokens == 32
    assert told.words().endswith("they are taken as they stand, a second apart")


def test_a_log_without_anything_to_mend_says_so(tmp_path: Path) -> None:
    told = log_traffic([logged(tmp_path, requests=1)], mends=True).recorded
    assert told.mended is None
    assert told.mended_words == ["lint finds nothing that comes always: there is nothing to mend"]


def test_a_log_of_counts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "counts.jsonl"
    path.write_text('{"prompt_tokens": 12}\n')
    with pytest.raises(PrefixscopeError, match="no prompt with its text in it"):
        log_traffic([path])
