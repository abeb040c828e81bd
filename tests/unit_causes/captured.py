"""Captures of real engines as traffic: prompts hashed as they are read, events beside them."""

import json
from typing import Any

import numpy as np
import pytest

from exporter.blocks.stays import StayReader
from exporter.blocks.wire import Decoder
from exporter.sources.events.recorded_lines import read_recorded
from replay.hashes import HASH_GRAIN_TOKENS, chain_hashes, content_hashes, scope_id
from replay.traffic import Chains, Moments, Numbers, Stays, Traffic
from tests.log_path import CAPTURES

KEY = "a key of these tests"
BLOCK_TOKENS = 32

Row = dict[str, Any]


def rows_of(capture: str) -> list[Row]:
    path = CAPTURES / capture / "requests.jsonl"
    if not path.exists():
        pytest.skip(f"captures of real engines are not here: {path} is missing")
    return [json.loads(line) for line in path.read_text().splitlines()]


def cached_of(row: Row) -> int:
    return int(row["usage"]["prompt_tokens_details"]["cached_tokens"])


def traffic_of(rows: list[Row], replica: Numbers | None = None) -> Traffic:
    """What a log of these requests says. A whole-second clock would do: they are far apart."""
    token_ids = [row["prompt_token_ids"] for row in rows]
    salts = [row["cache_salt"] for row in rows]
    scopes = {salt: number for number, salt in enumerate(dict.fromkeys(salts))}
    sent = np.array([row["sent_unix"] for row in rows])
    total = np.array([row["total_s"] for row in rows])
    to_first = np.array([row["ttft_s"] or row["total_s"] for row in rows])
    return Traffic(
        prompt_tokens=np.array([row["usage"]["prompt_tokens"] for row in rows]),
        cached_tokens=np.array([cached_of(row) for row in rows]),
        chains=Chains.of(
            [
                chain_hashes(ids, HASH_GRAIN_TOKENS, scope_id(KEY, salt) or "", KEY)
                for ids, salt in zip(token_ids, salts, strict=True)
            ],
            HASH_GRAIN_TOKENS,
            [content_hashes(ids, HASH_GRAIN_TOKENS, KEY) for ids in token_ids],
        ),
        looked_up=sent,
        ready=sent + to_first,
        ended=sent + total,
        replica=replica,
        scope=np.array([scopes[salt] for salt in salts]),
        output_tokens=np.array([row["usage"]["completion_tokens"] for row in rows]),
    )


class Faults:
    def refuse(self, message: str) -> None:
        raise AssertionError(message)


def events_of(capture: str) -> tuple[Stays, Moments]:
    """What the recorded events of a capture tell; ranks are replicas from 0."""
    path = CAPTURES / capture / "kv-events.decoded.jsonl"
    if not path.exists():
        pytest.skip(f"captures of real engines are not here: {path} is missing")
    reader, decoder = StayReader(KEY), Decoder(tokens=True)
    last: dict[int, int] = {}
    with path.open("rb") as stream:
        for line in read_recorded(stream, capture, Faults()):
            batch = decoder.decode(line.batch.payload)
            rank = batch.rank or 0
            if line.batch.sequence <= last.get(rank, -1):
                reader.restart(rank)
            last[rank] = line.batch.sequence
            reader.take(rank, batch)
    return reader.told()


def is_serial(rows: list[Row]) -> list[bool]:
    """Which requests ran with no other beside them."""
    spans = [(row["sent_unix"], row["sent_unix"] + row["total_s"]) for row in rows]
    return [
        all(
            end <= other_start or other_end <= start
            for number, (other_start, other_end) in enumerate(spans)
            if number != own
        )
        for own, (start, end) in enumerate(spans)
    ]
