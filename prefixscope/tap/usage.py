"""What the documents of one answer say: ids, counts, and whether it came to its end.

Counts that are not stated stay absent: absent is never 0. A stream may state its usage several
times; every field keeps the last value that was stated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# The requests that are recorded, by the end of their path.
CHAT, COMPLETIONS, RESPONSES, MESSAGES = "chat", "completions", "responses", "messages"
KINDS = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETIONS,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
}
_ENDS = ("message_stop", "response.completed", "response.incomplete", "response.failed")
_LONGEST_NAME = 200


@dataclass
class Answer:
    """What has been learned of one answer so far. Times are of `time.perf_counter`."""

    kind: str
    response_id: str | None = None
    model: str | None = None
    fingerprint: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    prompt_token_ids: list[int] | None = None
    first_token_at: float | None = None
    finished: bool = False
    # The whole of it was sent; `finished` is true from the end of the first choice on.
    done: bool = False
    failed: bool = False
    incomplete: bool = False

    def learn(self, document: Mapping[str, Any]) -> None:
        """Take over what one event of a stream, or a whole answer, states."""
        inner = document.get("response", document.get("message"))
        for part in (document, inner if isinstance(inner, Mapping) else {}):
            self._learn_names(part)
            merge_stated(self.usage, part.get("usage"))
            self.timings.update(engine_seconds(part))
            self.failed |= bool(part.get("error")) or part.get("status") == "failed"
            self.incomplete |= part.get("status") == "incomplete"
        self.done |= document.get("type") in _ENDS
        self.finished |= self.done or any(map(_ended, _choices(document)))
        self._learn_token_ids(document)

    def _learn_names(self, part: Mapping[str, Any]) -> None:
        self.response_id = self.response_id or _name(part.get("id"))
        self.model = self.model or _name(part.get("model"))
        self.fingerprint = self.fingerprint or _name(part.get("system_fingerprint"))

    def _learn_token_ids(self, document: Mapping[str, Any]) -> None:
        """Only where the client asked the engine for them itself."""
        choices = _choices(document)
        for part in (document, *choices[:1]):
            found = part.get("prompt_token_ids")
            if isinstance(found, list) and found:
                self.prompt_token_ids = found

    def counts(self) -> dict[str, int]:
        """Prompt tokens made inclusive, cached and output tokens, where they are stated."""
        stated = self.usage
        if "prompt_tokens" in stated:
            details = _mapping(stated, "prompt_tokens_details")
            cached = details.get("cached_tokens", stated.get("prompt_cache_hit_tokens"))
            found = {"prompt_tokens": stated["prompt_tokens"], "cached_tokens": cached}
            found["output_tokens"] = stated.get("completion_tokens")
        elif self.kind == MESSAGES:
            found = _beside(stated)
        else:
            details = _mapping(stated, "input_tokens_details")
            found = {"prompt_tokens": stated.get("input_tokens")}
            found["cached_tokens"] = details.get("cached_tokens")
            found["output_tokens"] = stated.get("output_tokens")
        return {name: value for name, value in found.items() if _is_count(value)}


def _beside(stated: Mapping[str, Any]) -> dict[str, Any]:
    """The convention in which cached and written tokens stand beside the prompt."""
    cached = stated.get("cache_read_input_tokens")
    written = stated.get("cache_creation_input_tokens")
    plain = stated.get("input_tokens")
    beside = [count for count in (cached, written) if isinstance(count, int)]
    prompt = plain + sum(beside) if isinstance(plain, int) else None
    return {
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "cache_write_tokens": written,
        "output_tokens": stated.get("output_tokens"),
    }


def merge_stated(known: dict[str, Any], stated: object) -> None:
    """Lay `stated` over `known`, field by field; what is null or no object changes nothing."""
    if not isinstance(stated, Mapping):
        return
    for name, value in stated.items():
        if isinstance(value, Mapping):
            if not isinstance(known.get(name), dict):
                known[name] = {}
            merge_stated(known[name], value)
        elif value is not None:
            known[name] = value


def engine_seconds(part: Mapping[str, Any]) -> dict[str, float]:
    """Queue and prefill time where the engine itself states them (vLLM, llama.cpp)."""
    metrics, timings = _mapping(part, "metrics"), _mapping(part, "timings")
    found = {
        "queue_seconds": metrics.get("queue_time_ms"),
        "prefill_seconds": metrics.get("time_to_first_token_ms", timings.get("prompt_ms")),
    }
    return {
        name: value / 1000
        for name, value in found.items()
        if isinstance(value, int | float) and value >= 0
    }


def brings_a_token(kind: str, event: Mapping[str, Any]) -> bool:
    """Is there something generated in this event? A role or an empty text is nothing yet."""
    if kind == MESSAGES:
        return bool(event.get("type") == "content_block_delta")
    if kind == RESPONSES:
        return str(event.get("type")).endswith(".delta")
    if kind == COMPLETIONS:
        return any(bool(choice.get("text")) for choice in _choices(event))
    deltas = [_mapping(choice, "delta") for choice in _choices(event)]
    return any(bool(value) for delta in deltas for name, value in delta.items() if name != "role")


def _ended(choice: Mapping[str, Any]) -> bool:
    return bool(choice.get("finish_reason"))


def _choices(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    choices = document.get("choices")
    found = choices if isinstance(choices, list) else []
    return [choice for choice in found if isinstance(choice, Mapping)]


def _mapping(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}


def _name(value: object) -> str | None:
    return value[:_LONGEST_NAME] if isinstance(value, str) and value else None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
