"""Rows of the tap as the exporter keeps them, and nothing of a prompt anywhere."""

import io
import json
import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from exporter.sources.formats import format_named
from exporter.sources.lines import LineReader
from exporter.store.append import Stream, append
from exporter.store.store import Store
from replay.hashes import chain_hashes, content_hashes, scope_id
from tests.unit_tap.scripted import CHAT, Script, ask, chunk, rows_in, tapped, until

TOKENS = [40_000_001 + 13 * number for number in range(784)]
CANARY = "canary-of-a-prompt"
REQUEST: dict[str, Any] = {
    "model": "tiny", "stream": True, "stream_options": {"include_usage": True},
    "messages": [{"role": "user", "content": f"{CANARY} hello"}],
}  # fmt: skip


def _stored(store: Store, lines: Iterable[bytes]) -> list[dict[str, Any]]:
    for batch in LineReader(io.BytesIO(b"".join(lines))):
        append(store, batch, Stream("tap", format_named("ndjson")))
    found = store.cursor().execute("SELECT * FROM requests ORDER BY ts")
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _tap_lines(folder: Path) -> list[bytes]:
    return (folder / "tap.ndjson").read_bytes().splitlines(keepends=True)


def test_the_store_keeps_what_the_tap_saw(tmp_path: Path) -> None:
    """With the key of the store, so that both make the same names."""
    store = Store.open(tmp_path / "store")
    script = Script(tokens=lambda request: TOKENS)
    settings = {"hashes": "all", "key_file": str(tmp_path / "store" / "hash.key")}
    with tapped(script, tmp_path / "tap", **settings) as (port, _):
        ask(port, {**REQUEST, "cache_salt": "salt-acme"}, CHAT, {"x-request-id": "gw-1"})
        ask(port, {**REQUEST, "case": "status 500"})
        until(lambda: len(rows_in(tmp_path / "tap")) == 2)
    served, failed = _stored(store, _tap_lines(tmp_path / "tap"))
    scope = scope_id(store.key, "salt-acme")
    assert served["scope"] == scope
    assert served["block_hashes"] == chain_hashes(TOKENS, 16, str(scope), store.key)
    assert served["content_hashes"] == content_hashes(TOKENS, 16, store.key)
    assert len(served["content_hashes"]) == len(served["block_hashes"]) == 784 // 16
    assert served["hash_key_id"] == store.hash_key_id
    assert (served["prompt_tokens"], served["cached_tokens"]) == (784, 768)
    assert (served["side"], served["replica"], served["prompt_basis"]) == (
        "engine", "r1", "inclusive",
    )  # fmt: skip
    assert (served["request_id"], served["response_id"]) == ("gw-1", "chatcmpl-1")
    assert served["ttft_point"] == "engine_arrival"
    assert served["flags"] is None
    assert (failed["status"], failed["cached_tokens"]) == ("error", None)
    store.close()


def test_a_scope_in_clear_is_not_kept(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    row = {"ts": 1772452800, "request_id": "a", "prompt_tokens": 1, "scope": "salt of acme"}
    (kept,) = _stored(store, [json.dumps(row).encode() + b"\n"])
    assert len(kept["scope"]) == 16
    assert kept["scope"] != "salt of acme"[:16]
    store.close()


def _numbers(written: bytes) -> set[bytes]:
    """The decimal numbers in it; eight digits inside a hash of sixteen letters are no number."""
    return set(re.findall(rb"(?<![0-9a-f])[0-9]+(?![0-9a-f])", written))


def _everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("proxied", [False, True], ids=["middleware", "proxy"])
def test_no_prompt_and_no_token_id_reaches_disk_or_log(
    tmp_path: Path, proxied: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """After answers, errors, aborts, broken requests and a tokenizer that answers nonsense."""
    caplog.set_level(logging.DEBUG, "prefixscope.tap")
    script = Script(tokens=lambda request: TOKENS)
    script.pieces = lambda _: [chunk({"content": CANARY}), b"data: {" + CANARY.encode() + b"\n\n"]
    answers = {"id": CANARY * 100, "usage": {CANARY: CANARY}, "choices": [{"text": CANARY}]}
    script.answer = lambda _: json.dumps(answers).encode()
    settings = {"hashes": "all", "include_usage": True}
    requests: list[Any] = [
        REQUEST,
        {**REQUEST, "stream": False},
        {**REQUEST, "case": "status 500"},
        {**REQUEST, "case": "raises"},
        {**REQUEST, "case": "breaks"},
        {**REQUEST, "case": "gzip"},
        {**REQUEST, "cache_salt": CANARY},
        {**REQUEST, "messages": [{"role": CANARY, "content": [{"type": CANARY}]}]},
        json.dumps(REQUEST).encode()[:-3],
        {"model": "tiny", "prompt": TOKENS},
        {"model": "tiny", "prompt": [*TOKENS, CANARY]},
        {"model": "tiny", "prompt": [-TOKENS[0], *TOKENS]},
    ]
    with tapped(script, tmp_path, proxied, **settings) as (port, _):
        for request in requests:
            for path in (CHAT, "/v1/completions", "/v1/responses", "/v1/messages"):
                ask(port, request, path)
        expected = 4 * len(requests)
        until(lambda: len(rows_in(tmp_path)) == expected)
    assert any("block_hashes" in row for row in rows_in(tmp_path))
    own_log = "".join(r.getMessage() for r in caplog.records if r.name.startswith("prefixscope"))
    written = _everything(tmp_path) + own_log.encode()
    # An id and a model's name are the engine's to choose and are written, at most 200 letters.
    written = written.replace((CANARY * 100)[:200].encode(), b"")
    assert CANARY.encode() not in written
    assert _numbers(b'[40000001,"ab40000014cd"]') == {b"40000001"}
    assert not {str(token).encode() for token in TOKENS} & _numbers(written)
