"""Calls through a gateway as a client makes and counts them: with shared prefixes, streamed and
not, by several callers.
"""

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx

from tests.engine.proxy import KEYS

_WORDS = ("account", "balance", "claim", "credit", "draft", "event", "field", "group", "index")
_PREFIX_WORDS = {"support": 300, "billing": 150}
_QUESTION_WORDS = 20
AT_ONCE = 3


@dataclass(frozen=True)
class Call:
    """What is sent. `asks` is whether a stream asks for its usage: an answer in one piece has it
    anyway."""

    team: str | None
    template: str
    question: int
    streams: bool
    asks: bool = True


@dataclass(frozen=True)
class Answered:
    """What the client saw; `usage` None where it was told none."""

    call: Call
    id: str
    prompt_tokens: int | None
    cached_tokens: int | None


def _prose(seed: str, words: int) -> str:
    chooser = random.Random(seed)
    return " ".join(chooser.choice(_WORDS) for _ in range(words))


def plan() -> list[list[Call]]:
    """Calls in order; those of one list may be under way at the same time.

    At first one call a prefix, so that it is there to be shared. Prefixes are those of the
    templates: all teams share them, since no salt keeps them apart.
    """
    teams = list(KEYS.values())
    first = [[Call(teams[0], template, 0, streams=False)] for template in ("support", "billing")]
    shared = [
        Call(teams[number % 3], ("support", "billing")[number % 2], number, number % 4 < 2)
        for number in range(1, 35)
    ]
    again = [[Call("acme", "support", 1, streams=False)], [Call("acme", "support", 1, True)]]
    return [*first, shared, *again]


def unasked() -> list[list[Call]]:
    """The last calls of the plan once more, by clients that do not ask for the usage."""
    return [[Call("acme", "support", 1, streams=True, asks=False)]] * 3


def send(url: str, steps: list[list[Call]]) -> list[Answered]:
    """Send all of a plan; every call must be answered."""
    with httpx.Client(base_url=url, timeout=120) as client, ThreadPoolExecutor(AT_ONCE) as pool:
        return [
            answered
            for step in steps
            for answered in pool.map(lambda call: _send(client, call), step)
        ]


def _send(client: httpx.Client, call: Call) -> Answered:
    body = {
        "model": "assistant", "max_tokens": 8, "temperature": 0, "stream": call.streams,
        "metadata": {"template": call.template, "template_version": "3"},
        "messages": [
            {"role": "system", "content": _prose(call.template, _PREFIX_WORDS[call.template])},
            {"role": "user", "content": _prose(f"question {call.question}", _QUESTION_WORDS)},
        ],
    }  # fmt: skip
    if call.streams and call.asks:
        body["stream_options"] = {"include_usage": True}
    key = next(key for key, team in KEYS.items() if team == call.team)
    headers = {"Authorization": f"Bearer {key}"}
    with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as reply:
        text = reply.read().decode()
        assert reply.status_code == 200, text
    return _answered(call, list(_objects(text)) if call.streams else [json.loads(text)])


def _objects(text: str) -> Iterator[dict[str, object]]:
    for line in text.splitlines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def _answered(call: Call, parts: list[dict[str, object]]) -> Answered:
    """As reported: this vLLM names cached tokens wherever it tells usage, 0 included."""
    (told,) = {str(part["id"]) for part in parts}
    usages = [part["usage"] for part in parts if part.get("usage")]
    assert len(usages) == (0 if call.streams and not call.asks else 1)
    usage = usages[0] if usages else None
    if not isinstance(usage, dict):
        return Answered(call, told, None, None)
    cached_tokens = usage["prompt_tokens_details"]["cached_tokens"]
    return Answered(call, told, usage["prompt_tokens"], cached_tokens)
