"""One arm of the field's reference simulator, in a process of its own: the Python that runs this
needs only its two packages (`ai-dynamo`, `ai-dynamo-runtime`). Prints its figures as JSON.

    python bench/reference_simulator.py TRACE kv_router 4 5000 512
"""

import json
import sys

_FIGURES = {
    "token_hit_ratio": "prefix_cache_reused_ratio",
    "ttft_mean_milliseconds": "mean_ttft_ms",
    "ttft_p50_milliseconds": "median_ttft_ms",
    "ttft_p99_milliseconds": "p99_ttft_ms",
}


def main() -> None:
    """Replay a trace with that router: `off`, `round_robin`, `kv_router`, or `kv_router_prefill`,
    which goes by prefill alone and not by the blocks that running requests hold."""
    from dynamo import _core  # type: ignore[import-not-found]

    path, router, replicas, blocks, block_tokens = sys.argv[1:]
    engine = {"backend": "vllm", "block_size": int(block_tokens), "num_gpu_blocks": int(blocks)}
    if router == "off":
        engine["enable_prefix_caching"] = False
    more = {}
    if router == "kv_router_prefill":
        more["router_config"] = _core.KvRouterConfig(router_track_active_blocks=False)
    found = _core.run_mocker_trace_replay(
        [path],
        extra_engine_args={"engine": engine},
        num_workers=int(replicas),
        router_mode="kv_router" if router.startswith("kv_router") else "round_robin",
        trace_block_size=int(block_tokens),
        **more,
    )
    summary = found.summary() if callable(found.summary) else found.summary
    print(json.dumps({name: summary[theirs] for name, theirs in _FIGURES.items()}))


if __name__ == "__main__":
    main()
