"""Prompt text, token ids and salts never reach the disk, whatever way they come in.

The store is told not to compress and not to keep its log apart, so that whatever it wrote can
be found in the bytes of its files; names that must be there prove that looking works.
"""

import json
from pathlib import Path

import pytest

from exporter.sources.intake import Intake
from exporter.store.store import Store
from tests.log_path import NOON, SMALL, ask, load, ndjson, requests

SECRET = "Zebra-Quartz vault"
SALT = "salt-9f3kQ-acme"
TOKENS = [918273645, 564738291, 102938475]
SCRIPTS = ["секретный пароль", "密碼是什麼", "गुप्त शब्द", "🔑🗝🧿🪬", "ₓ²³½Ⅻ"]
SECRETS = [SECRET, "Zebra", "vault", "Quartz", SALT, "9f3kQ", *map(str, TOKENS), *SCRIPTS]
PROMPTS = [SECRET, *SCRIPTS]
LABEL = "tenant-that-must-be-found"


def _rows() -> list[dict[str, object] | str | bytes]:
    """Every place a secret was ever seen in a log, good rows and bad ones."""
    base: dict[str, object] = {"ts": NOON, "prompt_tokens": 1000, "cached_tokens": 500}
    rows: list[dict[str, object] | str | bytes] = []
    for number, prompt in enumerate(PROMPTS):
        chat = [{"role": "system", "content": prompt}]
        rows += [
            {
                **base,
                "request_id": f"good-{number}",
                "tenant": LABEL,
                "messages": chat,
                "prompt": prompt,
                "input": [prompt],
                "choices": [{"message": {"content": prompt}}],
                "prompt_token_ids": TOKENS,
                "token_ids": TOKENS,
                "cache_salt": SALT,
                "metadata": {"user": prompt},
                "error": prompt,
            },
            # Objects and lists where a name is expected, and text where a number is.
            {
                **base,
                "request_id": f"odd-{number}",
                "tenant": {"name": prompt},
                "route": [prompt],
                "template": chat,
                "session": TOKENS,
                "cached_tokens": prompt,
                "output_tokens": chat,
                "ttft_s": prompt,
                "status": prompt,
                "stream": prompt,
                "block_hashes": [prompt],
            },
            {**base, "ts": prompt, "messages": chat},
            {"event": prompt, "messages": chat},
            json.dumps({**base, "prompt": prompt, "token_ids": TOKENS}, ensure_ascii=False)[:-1],
            json.dumps([prompt, TOKENS], ensure_ascii=False),
            json.dumps(prompt, ensure_ascii=False),
            f"ERROR cannot parse {prompt} {TOKENS} salt {SALT}",
            prompt,
            prompt.encode() + b"\xff",
            prompt.encode("utf-16"),
            prompt + "x" * 5000,
        ]
    rows += [str(TOKENS), str(TOKENS[0]), SALT]
    return rows


def _written(directory: Path) -> bytes:
    """Every byte of every file of the store."""
    return b"\n".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())


def _found(data: bytes) -> list[str]:
    """Secrets in any encoding a file or a masked excerpt could keep them in."""
    spellings = {
        secret: (secret.encode(), secret.encode("utf-16-le"), json.dumps(secret)[1:-1].encode())
        for secret in SECRETS
    }
    return [secret for secret, ways in spellings.items() if any(way in data for way in ways)]


def _fill(directory: Path) -> None:
    store = Store.open(directory, SMALL)
    store.cursor().execute("PRAGMA force_compression='uncompressed'")
    for origin in ("file", "http"):
        load(store, _rows(), f"log-{origin}", origin=origin)
    first_is_secret = ndjson([SECRET, *_rows()])
    load(store, first_is_secret, "secret-first-line")
    with Path(directory.parent / "short").open("wb+") as stream:
        stream.write(ndjson(_rows()))
        stream.seek(0)
        Intake(store, line_limit_bytes=400).ingest(stream, source="short", format="ndjson")
    assert _found(_written(directory)) == [], "before the checkpoint, in the write-ahead log"
    store.cursor().execute("CHECKPOINT")
    store.close()


def test_nothing_secret_is_in_any_byte_of_the_store(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    _fill(directory)
    written = _written(directory)
    assert LABEL.encode() in written, "names are found in the bytes, so secrets would be"
    assert b"too_long" in written
    assert b"invalid_utf8" in written
    assert _found(written) == []


def test_nothing_secret_is_in_any_value_of_any_table(tmp_path: Path) -> None:
    _fill(tmp_path / "store")
    store = Store.open(tmp_path / "store", SMALL)
    cursor = store.cursor()
    tables = [name for (name,) in cursor.execute("SELECT table_name FROM duckdb_tables").fetchall()]
    assert {"requests", "rejects", "offsets", "meta"} <= set(tables)
    for table in tables:
        values = repr(cursor.execute(f"SELECT * FROM {table}").fetchall())
        assert _found(values.encode()) == [], table
    answers = json.dumps([ask(store, "rejects"), ask(store, "requests", limit=1000)])
    assert _found(answers.encode()) == []
    store.close()


def test_salt_becomes_a_keyed_hash_that_tells_scopes_apart(tmp_path: Path) -> None:
    given = [(SALT, None), (SALT, None), ("other", None), (None, SALT), (None, None)]
    rows = [
        {"request_id": str(n), "ts": NOON, "prompt_tokens": 5, "cache_salt": salt, "adapter": lora}
        for n, (salt, lora) in enumerate(given)
    ]
    scopes = []
    for name in ("one", "another"):
        store = Store.open(tmp_path / name, SMALL)
        load(store, rows)
        scopes.append([row["scope"] for row in requests(store)])
        store.close()
    for same, again, other, adapter, none in scopes:
        assert same == again
        assert len({same, other, adapter, none}) == 4
        assert none is None
    assert scopes[0][0] != scopes[1][0], "without the store's key the hash tells nothing"


def test_key_is_readable_by_its_owner_only_and_stays(tmp_path: Path) -> None:
    first = Store.open(tmp_path / "store", SMALL)
    first.close()
    second = Store.open(tmp_path / "store", SMALL)
    second.close()
    assert (first.key, first.hash_key_id) == (second.key, second.hash_key_id)
    assert first.hash_key_id not in first.key
    assert (tmp_path / "store" / "hash.key").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("format", ["auto", "openai", "anthropic", "capture"])
def test_errors_of_the_intake_do_not_quote_values(tmp_path: Path, format: str) -> None:
    store = Store.open(tmp_path / "store", SMALL)
    told = ""
    try:
        told = repr(load(store, [{"text": SECRET, "ids": TOKENS}, SECRET], format=format))
    except Exception as error:  # noqa: BLE001  # whatever is raised is shown to somebody
        told = str(error)
    finally:
        store.close()
    assert told
    assert _found(told.encode()) == []
