"""Asks an engine itself, where the person said so: one short completion, and one refusal.

Whether answers name their cached tokens stands on no metric page. The prompt is always the same
text of ours, and the answer one token. An engine that names cached tokens only where there are
some is asked a second time, when its cache has the prompt.
"""

from dataclasses import replace
from typing import Any

import requests

from prefixscope.doctor.facts import TargetFacts
from prefixscope.recognise import base_url

_TIMEOUTS_SECONDS = (3.0, 60.0)
# Longer than any usual block, so that the second time there is something to reuse.
_PROMPT = "prefixscope asks whether answers name their cached tokens. " * 32
_COMPLETIONS = "/v1/completions"
_RENDER = "/v1/chat/completions/render"
PROBED = ("vllm", "sglang")


def probe(facts: TargetFacts, behind_router: bool) -> TargetFacts:
    """The facts, and what the engine answered; unchanged for what is no engine to ask."""
    if facts.engine not in PROBED or not facts.has_page or facts.url is None:
        return facts
    base = base_url(facts.url)
    if behind_router and facts.engine == "vllm":
        facts = replace(facts, renders_prompts=_renders(base))
    model = facts.models[0] if facts.models else None
    try:
        named = _names_cached(base, model) or _names_cached(base, model)
    except (requests.RequestException, ValueError) as error:
        return replace(facts, probe_error=_reason(error))
    return replace(facts, names_cached_tokens=named)


def _names_cached(base: str, model: str | None) -> bool:
    """Whether the usage of one answer has a cached count, 0 included."""
    asked = {"model": model or "default", "prompt": _PROMPT, "max_tokens": 1, "temperature": 0}
    answer = requests.post(
        base + _COMPLETIONS, json=asked, timeout=_TIMEOUTS_SECONDS, allow_redirects=False
    )
    answer.raise_for_status()
    usage = _object(_object(answer.json()).get("usage"))
    if "prompt_tokens" not in usage:
        raise ValueError("the answer has no usage")
    return _object(usage.get("prompt_tokens_details")).get("cached_tokens") is not None


def _renders(base: str) -> bool | None:
    """Whether a vllm-router can have prompts rendered. Nothing is computed: an empty object is
    refused either way, and only the refusal of the feature itself is a 403."""
    try:
        answer = requests.post(
            base + _RENDER, json={}, timeout=_TIMEOUTS_SECONDS, allow_redirects=False
        )
    except requests.RequestException:
        return None
    forbidden = answer.status_code == requests.codes.forbidden
    return False if forbidden else None if answer.status_code == requests.codes.not_found else True


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _reason(error: Exception) -> str:
    """Why there is no answer, without what the server wrote."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        status = error.response.status_code
        key = ": it asks for a key, and doctor sends none" if status in (401, 403) else ""
        return f"{_COMPLETIONS} answered HTTP {status}{key}"
    return "no answer to a completion" if isinstance(error, OSError) else str(error)[:200]
