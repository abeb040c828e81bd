"""Rows as objects hold them. Row n has 100 + n prompt tokens, of which n % 50 were cached."""

import json
from typing import Any

from exporter.store.store import Store
from tests.log_path import NOON, requests


def row(number: int, **more: object) -> dict[str, object]:
    tokens = {"prompt_tokens": 100 + number, "cached_tokens": number % 50}
    return {"ts": NOON, "request_id": f"r{number}", "model": "m", **tokens, **more}


def without_id(number: int) -> dict[str, object]:
    return {name: value for name, value in row(number).items() if name != "request_id"}


def packed(*rows: dict[str, object]) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in rows)


def prompts(store: Store) -> list[int]:
    """The prompt tokens of every stored row, in order."""
    return sorted(entry["prompt_tokens"] for entry in requests(store))


def facts(store: Store) -> list[dict[str, Any]]:
    """Rows without what tells only when and from where in the input they came."""
    passing = ("arrived", "batch", "position", "source")
    rows = [{k: v for k, v in entry.items() if k not in passing} for entry in requests(store)]
    return sorted(rows, key=lambda entry: str(entry["request_id"]))
