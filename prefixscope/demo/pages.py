"""Metric pages of the demo's replicas, in the text format and with the names of vLLM.

A page carries what a real one carries about prefix caching, and nothing about web servers.
"""

from prefixscope.demo.fleet import TTFT_BOUNDS_SECONDS, Counters, Replica
from prefixscope.demo.scenario import BLOCK_TOKENS, MODEL

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LABELS = f'engine="0",model_name="{MODEL}"'


def metric_page(replica: Replica) -> str:
    """Render the page as it stands now. Gauges are those of the last `release` or `advance`."""
    counters, pool = replica.counters, replica.pool
    lines = [
        *_family("process_start_time_seconds", "gauge", {"": replica.started}),
        *_cache_config(pool.capacity_blocks),
        *_gauge("num_requests_running", replica.running_requests),
        *_gauge("num_requests_waiting", len(replica.waiting)),
        *_gauge("kv_cache_usage_perc", pool.running_blocks / pool.capacity_blocks),
        *_counter("prompt_tokens", counters.prompt_tokens),
        *_counter("prompt_tokens_cached", counters.cached_tokens),
        *_by_source(counters),
        # Every prompt is looked up once, and only the replica's own memory can answer.
        *_counter("prefix_cache_queries", counters.prompt_tokens),
        *_counter("prefix_cache_hits", counters.cached_tokens),
        *_counter("generation_tokens", counters.output_tokens),
        *_counter("num_preemptions", 0),
        *_finished(counters),
        *_ttft(counters),
        *_sum_only("request_prefill_time_seconds", counters.prefill_seconds, counters),
        *_sum_only("request_queue_time_seconds", counters.queue_seconds, counters),
    ]
    return "\n".join(lines) + "\n"


def _family(name: str, kind: str, samples: dict[str, float]) -> list[str]:
    """Write one metric; `samples` maps suffix and labels to the value."""
    return [f"# TYPE {name} {kind}", *(f"{name}{key} {_number(v)}" for key, v in samples.items())]


def _number(value: float) -> str:
    return repr(float(round(value, 6)))


def _gauge(name: str, value: float) -> list[str]:
    return _family(f"vllm:{name}", "gauge", {f"{{{_LABELS}}}": value})


def _counter(name: str, value: float) -> list[str]:
    return _family(f"vllm:{name}_total", "counter", {f"{{{_LABELS}}}": value})


def _cache_config(capacity_blocks: int) -> list[str]:
    # One block of a real pool is a placeholder that no request can use.
    labels = (
        f'{{block_size="{BLOCK_TOKENS}",enable_prefix_caching="True",engine="0",'
        f'num_gpu_blocks="{capacity_blocks + 1}"}}'
    )
    return _family("vllm:cache_config_info", "gauge", {labels: 1})


def _by_source(counters: Counters) -> list[str]:
    computed_tokens = counters.prompt_tokens - counters.cached_tokens
    samples = {
        f'{{{_LABELS},source="local_compute"}}': computed_tokens,
        f'{{{_LABELS},source="local_cache_hit"}}': counters.cached_tokens,
    }
    return _family("vllm:prompt_tokens_by_source_total", "counter", dict(samples))


def _finished(counters: Counters) -> list[str]:
    stopped = counters.finished_requests - counters.cancelled_requests
    samples = {
        f'{{{_LABELS},finished_reason="stop"}}': stopped,
        f'{{{_LABELS},finished_reason="abort"}}': counters.cancelled_requests,
    }
    return _family("vllm:request_success_total", "counter", dict(samples))


def _ttft(counters: Counters) -> list[str]:
    samples: dict[str, float] = {}
    so_far = 0
    bounds = (*map(str, TTFT_BOUNDS_SECONDS), "+Inf")
    for bound, number in zip(bounds, counters.ttft_counts, strict=True):
        so_far += number
        samples[f'_bucket{{{_LABELS},le="{bound}"}}'] = so_far
    samples[f"_count{{{_LABELS}}}"] = so_far
    samples[f"_sum{{{_LABELS}}}"] = counters.ttft_seconds
    return _family("vllm:time_to_first_token_seconds", "histogram", samples)


def _sum_only(name: str, seconds: float, counters: Counters) -> list[str]:
    samples: dict[str, float] = {
        f'_bucket{{{_LABELS},le="+Inf"}}': counters.finished_requests,
        f"_count{{{_LABELS}}}": counters.finished_requests,
        f"_sum{{{_LABELS}}}": seconds,
    }
    return _family(f"vllm:{name}", "histogram", samples)
