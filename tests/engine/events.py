"""A real vLLM with a tiny cache that publishes KV-cache events, and what its events truly say.

The truth is asked from the engine's own replay by a few lines of ZeroMQ, and counted by plain
dictionaries: nothing of it is shared with the code under test.
"""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
import zmq

from tests.engine.live import ENGINE, ENGINE_DIR, INSTALL_AND_START_SECONDS, MODEL
from tests.running import free_port, get, running, wait_for

BLOCKS, BLOCK_TOKENS = 72, 32
USABLE_BLOCKS = BLOCKS - 1  # one is the null block
_PORTS = 700  # start_vllm.sh derives others up to this far above the server's
_REPLAY_MS = 10_000

Place = tuple[object, tuple[int, ...], tuple[object, ...]]


@dataclass
class Truth:
    """What one process' events say in order: places of blocks, and how often each is held."""

    batches: int = 0
    children: dict[Place, object] = field(default_factory=dict)
    held: Counter[object] = field(default_factory=Counter)
    stored: int = 0
    removed: int = 0
    cleared: int = 0

    def take(self, payload: bytes) -> None:
        """One batch."""
        self.batches += 1
        for event in msgspec.msgpack.decode(payload)[1]:
            kind = event["type"]
            if kind == "BlockStored":
                self._store(event)
            elif kind == "BlockRemoved":
                self.held.subtract(event["block_hashes"])
                self.removed += len(event["block_hashes"])
            else:
                self.held.clear()
                self.cleared += 1

    def _store(self, event: dict[str, Any]) -> None:
        parent = event.get("parent_block_hash")
        extra = event.get("extra_keys") or [None] * len(event["block_hashes"])
        for number, block in enumerate(event["block_hashes"]):
            tokens = event["token_ids"][number * BLOCK_TOKENS : (number + 1) * BLOCK_TOKENS]
            self.children[parent, tuple(tokens), tuple(extra[number] or ())] = block
            self.held[block] += 1
            self.stored += 1
            parent = block

    @property
    def resident(self) -> int:
        """Blocks held now; one that is held twice counts twice."""
        return self.held.total()

    def cached_tokens(self, prompt: Sequence[int], salt: str | None) -> int:
        """Tokens of a prompt that are held: whole blocks, and never the last token."""
        parent: object = None
        found = 0
        for start in range(0, (len(prompt) - 1) // BLOCK_TOKENS * BLOCK_TOKENS, BLOCK_TOKENS):
            extra = (salt,) if salt and start == 0 else ()
            block = self.children.get((parent, tuple(prompt[start : start + BLOCK_TOKENS]), extra))
            if block is None or self.held[block] <= 0:
                break
            parent, found = block, start + BLOCK_TOKENS
        return found


class Engine:
    """A vLLM that can be killed and started again where it was.

    It publishes over a Unix socket with next to no queue (`hwm`), so that a subscriber that does
    not read soon misses batches.
    """

    def __init__(self, folder: Path) -> None:
        self.port = free_port(_PORTS + 1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.endpoint = f"ipc://{folder / 'kv'}"
        self.replay = f"tcp://127.0.0.1:{self.port + 657}"
        self._log = folder / "vllm.log"
        self._process: Any = None
        self._running: Any = None

    def start(self) -> None:
        """Up and answering."""
        events = {
            "enable_kv_cache_events": True, "publisher": "zmq", "endpoint": self.endpoint,
            "replay_endpoint": self.replay, "hwm": 2, "topic": "kv-events",
        }  # fmt: skip
        ENGINE_DIR.mkdir(parents=True, exist_ok=True)
        command = [
            "bash", str(ENGINE / "start_vllm.sh"), str(ENGINE_DIR), MODEL, str(self.port),
            "--num-gpu-blocks-override", str(BLOCKS), "--kv-events-config", json.dumps(events),
        ]  # fmt: skip
        self._running = running(command, self._log)
        self._process = self._running.__enter__()
        seconds = INSTALL_AND_START_SECONDS
        wait_for(
            "vLLM", lambda: get(f"{self.url}/health") == b"", seconds, self._process, self._log
        )

    def kill(self) -> None:
        """As if the machine had: no good-bye."""
        if self._running is not None:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._running.__exit__(None, None, None)
            self._running = None

    def ask(self, prompt: Sequence[int], salt: str | None = None, tokens: int = 1) -> int:
        """Send a prompt of token ids; the cached tokens of its usage."""
        body: dict[str, object] = {
            "model": MODEL, "prompt": list(prompt), "max_tokens": tokens, "temperature": 0,
        }  # fmt: skip
        if salt is not None:
            body["cache_salt"] = salt
        reply = httpx.post(f"{self.url}/v1/completions", json=body, timeout=120)
        assert reply.status_code == 200, reply.text
        usage = reply.json()["usage"]
        assert usage["prompt_tokens"] == len(prompt)
        cached: int = usage["prompt_tokens_details"]["cached_tokens"]
        return cached

    def reset(self) -> None:
        """Have the engine drop its cache."""
        assert httpx.post(f"{self.url}/reset_prefix_cache", timeout=60).status_code == 200

    def truth(self) -> Truth:
        """All events of this process until now, asked from its replay."""
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        socket = context.socket(zmq.DEALER)
        socket.set(zmq.LINGER, 0)
        told = Truth()
        try:
            socket.connect(self.replay)
            socket.send_multipart([b"", bytes(8)])
            while True:
                assert socket.poll(_REPLAY_MS), "the engine's replay does not answer"
                frames = socket.recv_multipart()
                if frames[-2] == b"\xff" * 8:
                    return told
                assert int.from_bytes(frames[-2], "big") == told.batches, "a hole in the truth"
                told.take(frames[-1])
        finally:
            socket.close()
            context.term()

    def settled_truth(self) -> Truth:
        """The truth once nothing more comes: two looks half a second apart agree."""
        before = self.truth()
        while True:
            time.sleep(0.5)
            after = self.truth()
            if after.batches == before.batches:
                return after
            before = after


def prompts(seed: int, count: int) -> list[tuple[list[int], str | None]]:
    """Prompts of a few families that begin alike, some salted: more than the cache holds."""
    choose = random.Random(seed)
    families = [[choose.randrange(100, 4000) for _ in range(choose.randrange(150, 400))]
                for _ in range(8)]  # fmt: skip
    asked = []
    for _ in range(count):
        own = [choose.randrange(100, 4000) for _ in range(choose.randrange(40, 200))]
        family = choose.randrange(len(families))
        asked.append((families[family] + own, "salt-acme" if family == 0 else None))
    return asked
