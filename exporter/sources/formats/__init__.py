"""Log formats: an explicit list, most telling signature first.

A format lower in the list may recognise rows of one above it, never the other way round, so
the order decides. To add one: write a module with a `FORMAT` table and put it here.
"""

from exporter.errors import PrefixscopeError
from exporter.sources.formats import (
    aiperf,
    anthropic,
    bedrock,
    capture,
    claude_code,
    codex,
    envoy_ai_gateway,
    gemini,
    guidellm,
    helicone,
    kong,
    langfuse,
    litellm,
    litellm_spend_logs,
    ndjson,
    openai,
    openrouter,
    otel,
    portkey,
    production_stack,
    sglang_log,
    trace_bailian,
    trace_csv,
    trace_lmcache,
    trace_mooncake,
    trace_tracelab,
    trace_weka,
    vllm_bench,
)
from exporter.sources.formats.mapping import LogFormat

FORMATS: tuple[LogFormat, ...] = (
    otel.FORMAT,
    otel.DOCUMENT,
    litellm.FORMAT,
    litellm_spend_logs.FORMAT,
    kong.FORMAT,
    portkey.FORMAT,
    helicone.FORMAT,
    langfuse.FORMAT,
    envoy_ai_gateway.FORMAT,
    openrouter.FORMAT,
    bedrock.FORMAT,
    gemini.FORMAT,
    capture.FORMAT,
    sglang_log.FORMAT,
    production_stack.FORMAT,
    aiperf.FORMAT,
    guidellm.FORMAT,
    guidellm.REQUEST_FORMAT,
    vllm_bench.FORMAT,
    trace_weka.FORMAT,
    trace_weka.REQUESTS,
    trace_csv.AZURE,
    trace_csv.BURSTGPT,
    trace_tracelab.FORMAT,
    trace_lmcache.BLOCKS,
    trace_bailian.FORMAT,
    trace_mooncake.SESSIONS,
    trace_mooncake.FORMAT,
    claude_code.FORMAT,
    codex.FORMAT,
    anthropic.FORMAT,
    openai.FORMAT,
    ndjson.FORMAT,
    trace_lmcache.FORMAT,  # words many a log uses; only where no usage stands beside them
)


def format_named(name: str) -> LogFormat:
    """The format called `name`; an unknown name is an error that lists the known ones."""
    for log_format in FORMATS:
        if log_format.name == name:
            return log_format
    known = ", ".join(log_format.name for log_format in FORMATS)
    raise PrefixscopeError(f"no log format is called {name!r}; known formats: auto, {known}")
