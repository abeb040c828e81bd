"""llm-d's endpoint picker and its index of KV events.

Read from source: kv-cache-manager v0.4 (`kvcache_index_*`) and the router's picker of 2026
(`llm_d_epp_*`), where the index counts only with kvBlockIndexConfig.enableMetrics. Three families:

- `request_input_tokens` and `request_cached_tokens`: what engines reported with their answers,
  the second only where they did. Where fewer requests have it than the first, the two belong to
  different requests and cached tokens are unknown.
- `prefix_predicted_cached_tokens` by `prefix_prompt_tokens`: what the picker believed the chosen
  replica to hold. A prediction, kept apart as look-ups.
- the index: look-ups are *calls*, hits are *blocks* of a size it does not tell. Their quotient is
  no ratio, so hits stand alone, unless keys are counted by result.
"""

from exporter.sources.engines.mapping import Engine, Row, leave_out_if_partly_reported

_FINISH = "finish/once/tokens"
_LOOKUP = "lookup/attempt/tokens"
_BLOCKS = "lookup/attempt/blocks"
_KEYS = ("kvcache_index_lookup_key_total",)

ROWS = (
    Row(
        "prompt_tokens", "counter", "tokens", ("llm_d_epp_request_input_tokens_sum",),
        "prompt tokens of the usage in answers", provenance=_FINISH, expected=False,
    ),
    Row(
        "cached_tokens", "counter", "tokens", ("llm_d_epp_request_cached_tokens_sum",),
        "cached tokens of the same usage", provenance=_FINISH, expected=False,
    ),
    Row(
        "finished_requests", "counter", "requests", ("llm_d_epp_request_input_tokens_count",),
        "answers with usage", expected=False,
    ),
    Row(
        "aside/reported_requests", "counter", "requests",
        ("llm_d_epp_request_cached_tokens_count",),
        "answers with a cached count, hit or not", expected=False,
    ),
    Row(
        "lookup_tokens", "counter", "tokens", ("llm_d_epp_prefix_prompt_tokens_sum",),
        "prompt tokens the prediction was made for", provenance=_LOOKUP, expected=False,
    ),
    Row(
        "lookup_hit_tokens", "counter", "tokens", ("llm_d_epp_prefix_predicted_cached_tokens_sum",),
        "of these held by the chosen replica, as the picker believed",
        provenance=_LOOKUP, expected=False,
    ),
    Row(
        "lookup_count", "counter", "blocks", _KEYS,
        "blocks looked up in the index", provenance=_BLOCKS, expected=False,
    ),
    Row(
        "hit_count", "counter", "blocks", _KEYS,
        "of these held by some replica", where={"result": frozenset({"hit"})},
        provenance=_BLOCKS, expected=False,
    ),
    Row(
        "hit_count", "counter", "blocks", ("llm_d_epp_kv_cache_index_lookup_hits_total",),
        "blocks held by some replica; look-ups are counted in calls",
        provenance=_BLOCKS, expected=False,
    ),
    Row(
        "hit_count", "counter", "blocks", ("kvcache_index_lookup_hits_total",),
        "the same by its older name", provenance=_BLOCKS, expected=False,
    ),
)  # fmt: skip

SKIPPED = {
    "llm_d_epp_kv_cache_index_lookup_requests": "calls, while hits are blocks",
    "kvcache_index_lookup_requests": "calls, while hits are blocks",
    "llm_d_epp_kv_cache_index_": "entries of the index and latencies: not the replicas' caches",
    "kvcache_index_": "entries of the index and latencies: not the replicas' caches",
    "llm_d_epp_prefix_best_": "what another choice could have hit",
    "llm_d_epp_prefix_mm_": "a part of the predictions: prompts with images",
    "llm_d_epp_": "latencies and sizes no figure uses",
}


LLM_D = Engine(
    name="llm_d",
    title="llm-d endpoint picker and KV event index",
    versions="kv-cache-manager 0.4, router of 2026",
    observer="router",
    rows=ROWS,
    skipped=SKIPPED,
    marks=("llm_d_epp_", "kvcache_index_"),
    model_labels=("target_model_name", "model_name"),
    settle=leave_out_if_partly_reported,
    remedy="the index counts only with kvBlockIndexConfig.enableMetrics",
)
