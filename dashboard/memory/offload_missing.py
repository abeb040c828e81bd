"""What would tell what the verdict on offload misses: flags and settings, engine by engine."""

NO_TIER = (
    "No lower tier was at work in this window: no page counts KV written to host memory, disk or a "
    "remote store, and no request was served from there."
)
# Engine -> how to put a lower tier under its cache.
FLAGS = (
    ("vLLM (0.24 on counts bytes and time)", "--kv-offloading-size GIB"),
    ("SGLang", "--enable-hierarchical-cache --enable-metrics"),
)
# How a missing thing begins -> what tells it.
ADVICE = {
    "request rows": "Read a log that states cached tokens by tier: SGLang's, or your own NDJSON "
    "with cached_host, cached_disk, cached_remote.",
    "cached tokens by tier": "SGLang states them with `--export-metrics-to-file` or "
    "`--log-requests --log-requests-format json`. vLLM up to 0.33 counts tiers on its page only, "
    "not by request: its verdict rests on counters.",
    "time to first token": "Streamed requests measured at the engine or gateway have it.",
    "queue time": "vLLM: `--enable-per-request-metrics` with the tap. SGLang: `--enable-metrics`.",
    "50 requests": "Look at a longer window, or at all replicas of a model.",
    "more requests": "Look at a longer window.",
    "tokens loaded": "vLLM 0.32 counts cached tokens by tier, SGLang 0.5.21 counts loads.",
    "time of loads": "vLLM's OffloadingConnector counts it from 0.24, SGLang from 0.5.6, LMCache "
    "in its own process. ExampleConnector, Mooncake and TensorRT-LLM do not.",
    "time of writes": "vLLM's OffloadingConnector counts it from 0.24, SGLang from 0.5.18.",
    "prefill speed": "A request log with cached tokens and times: 100 requests of a replica.",
    "ranks": "`prefixscope query offload_verdict --param ranks=N`, N = tensor-parallel size.",
}


def advice(missing: str) -> list[tuple[str, str]]:
    """(what is missing, what tells it) for each part of a verdict's `missing`."""
    parts = [part for part in missing.split("; ") if part]
    return [
        (part, next((told for start, told in ADVICE.items() if part.startswith(start)), ""))
        for part in parts
    ]
