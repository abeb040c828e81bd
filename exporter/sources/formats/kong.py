"""Kong AI Gateway: the log a logging plugin writes, with the statistics of an AI plugin.

Who emits it: any of Kong's log plugins (file, HTTP, TCP) on a route with ai-proxy or
ai-proxy-advanced. The object under `ai` is named after the plugin; the one that holds `usage`
is read. Through the open-source drivers for Anthropic and Bedrock the prompt count leaves
cached tokens out and the cache counters are dropped: nothing is known then. `cache` is Kong's
semantic response cache. Milliseconds. Versions read: commit 22246ef, documentation bc1cd74.
"""

from collections.abc import Iterable

from exporter.sources.formats.mapping import (
    LogFormat,
    Row,
    case,
    flag,
    milliseconds,
    status,
    text,
    time,
    tokens,
)
from exporter.sources.formats.reshape import one_object
from exporter.sources.formats.row_values import WORKED_OUT, part


def _proxied(line: str) -> Iterable[Row]:
    """The row, with the statistics of its proxy plugin where the table finds them."""
    row = one_object(line)
    plugins = row.get("ai")
    if isinstance(plugins, dict):
        known = [name for name in plugins if isinstance(part(plugins[name], "usage"), dict)]
        # Other plugins call models of their own, for embeddings or to transform a request.
        proxies = [name for name in known if "proxy" in name] or known
        if proxies:
            row[WORKED_OUT] = plugins[proxies[0]]
    yield row


_AI = WORKED_OUT

FORMAT = LogFormat(
    name="kong",
    title="Kong AI Gateway log",
    versions="Kong 3.11, 3.12 (commit 22246ef)",
    basis="assumed",
    signature=(("ai",), ("started_at",), ("request", "latencies", "response")),
    fields=(
        time("ts", "started_at"),
        text("request_id", "request.id"),
        text("route", "route.name"),
        text("tenant", "consumer.username", "consumer.custom_id"),
        text("provider", f"{_AI}.meta.provider_name"),
        text("model", f"{_AI}.meta.response_model", f"{_AI}.meta.request_model"),
        tokens("prompt_tokens", f"{_AI}.usage.prompt_tokens"),
        tokens("cached_tokens", f"{_AI}.usage.prompt_tokens_details.cached_tokens"),
        tokens("output_tokens", f"{_AI}.usage.completion_tokens"),
        tokens("total_tokens", f"{_AI}.usage.total_tokens"),
        milliseconds("ttft_seconds", f"{_AI}.usage.time_to_first_token"),
        milliseconds("e2e_seconds", "latencies.request", f"{_AI}.meta.llm_latency"),
        flag(
            "stream",
            cases=(
                case("true", f"{_AI}.meta.request_mode", "stream", "realtime"),
                case("false", f"{_AI}.meta.request_mode", "oneshot"),
            ),
        ),
        status("response.status", "upstream_status"),
        text(
            "ineligible_reason",
            cases=(case("response_cache", f"{_AI}.cache.cache_status", "Hit", "HIT", "hit"),),
        ),
    ),
    constants=(("ttft_point", "gateway"), ("side", "gateway")),
    reshape=_proxied,
)
