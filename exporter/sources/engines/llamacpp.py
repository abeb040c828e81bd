"""The metric page of llama.cpp's server, served at /metrics when started with --metrics.

Read against trees from May 2025 to build 11434. Its prompt counter leaves cached tokens out,
so the prompt is the sum of two counters; trees without the cached counter cannot tell a
prompt's length, and both figures stay unknown. Reuse is by token, not by block. There are no
labels, no time-to-first-token histogram, no usage gauge and no eviction counter.

The `*_tokens_seconds` gauges restart at every GET, so that two scrapers spoil each other's:
they are never read.
"""

from exporter.sources.engines.mapping import Engine, Row

_NEWER = "older builds tell it only per request: upgrade, or read timings from the answers"

ROWS = (
    Row(
        "prompt_tokens", "counter", "tokens",
        ("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"),
        "computed and cached prompt tokens", remedy=_NEWER, provenance="finish/once/tokens",
    ),
    Row(
        "cached_tokens", "counter", "tokens", ("llamacpp:prompt_tokens_cached_total",),
        "prompt tokens reused from a slot or the host prompt cache", remedy=_NEWER,
        provenance="finish/once/tokens",
    ),
    Row(
        "output_tokens", "counter", "tokens", ("llamacpp:tokens_predicted_total",),
        "generated tokens",
    ),
    Row(
        "prefill_seconds", "counter", "seconds", ("llamacpp:prompt_seconds_total",),
        "time spent on prompts", expected=False,
    ),
    Row(
        "running_requests", "gauge", "requests", ("llamacpp:requests_processing",),
        "being served",
    ),
    Row(
        "waiting_requests", "gauge", "requests", ("llamacpp:requests_deferred",), "queued",
    ),
)  # fmt: skip

SKIPPED = {
    "llamacpp:prompt_tokens_seconds": "averages since the last GET by anybody",
    "llamacpp:predicted_tokens_seconds": "averages since the last GET by anybody",
    "llamacpp:tokens_predicted_seconds_total": "decoding, not prefill",
    "llamacpp:n_decode_total": "decoding, not prefill",
    "llamacpp:n_tokens_max": "a maximum, though typed as a counter",
    "llamacpp:n_busy_slots_per_decode": "an average since start",
    "llamacpp:spec_decode_": "speculative decoding, not caching",
    "llamacpp:kv_cache_": "gone since August 2025, and counted reusable tokens as used",
}

LLAMACPP = Engine(
    name="llamacpp",
    title="llama.cpp server",
    versions="trees of May 2025 to build 11434",
    recorded="build 11434",
    rows=ROWS,
    skipped=SKIPPED,
    remedy="start with --metrics",
    # The other counters stand still during a long answer.
    watched=("llamacpp:n_decode_total",),
)
