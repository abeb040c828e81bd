"""Every metric we expose, declared once: name, type, labels, and the HELP a reader sees.

HELP says the definition and the source counter, so that a figure can be followed to its
origin. docs/metrics.md lists the same, checked by a test. Names of counters end in `_total`.
"""

from dataclasses import dataclass

from exporter.metrics_text import Family, FamilyType

REQUEST = ("model", "route", "template", "tenant")
ENGINE = ("model", "replica")
DROP = ("basis", "model", "route", "template", "tenant")

_LIVE = "Live rows only: event time within 10 minutes of arrival."
_SINCE = "Increase since this exporter started."


@dataclass(frozen=True)
class Definition:
    """One metric. `help` is shown as it is."""

    name: str
    type: FamilyType
    labels: tuple[str, ...]
    help: str

    def family(self) -> Family:
        """An empty family to add series to."""
        return Family(self.name, self.type, self.help)


DEFINITIONS: tuple[Definition, ...] = (
    # ---- from request logs
    Definition(
        "prefixcache_requests_total",
        "counter",
        (*REQUEST, "outcome"),
        "Requests by outcome: miss = no cached token; hit = cached at least the hit threshold of "
        "the eligible tokens; partial = between; unknown = cached tokens not reported. Source: "
        f"request logs. {_LIVE}",
    ),
    Definition(
        "prefixcache_prompt_tokens_total",
        "counter",
        REQUEST,
        "Prompt tokens, cached or not, of every request. Source: prompt tokens of the usage in "
        f"request logs. {_LIVE}",
    ),
    Definition(
        "prefixcache_reported_prompt_tokens_total",
        "counter",
        REQUEST,
        "Prompt tokens of requests whose cached tokens are known, ineligible ones left out: the "
        "denominator of the token hit ratio. Divided by prompt tokens less ineligible ones it is "
        f"coverage. Source: prompt tokens of the usage in request logs. {_LIVE}",
    ),
    Definition(
        "prefixcache_ineligible_prompt_tokens_total",
        "counter",
        REQUEST,
        "Prompt tokens of requests that no cache could serve, as known when the row arrived: "
        "caching off, or a prompt below the provider's minimum. In no ratio and no coverage. "
        f"Source: request logs. {_LIVE}",
    ),
    Definition(
        "prefixcache_cached_tokens_total",
        "counter",
        (*REQUEST, "tier"),
        "Prompt tokens whose KV was reused, by tier (unknown = tier not named). Summed over tiers "
        "and divided by reported prompt tokens it is the token hit ratio. Source: cached tokens "
        f"of the usage in request logs. {_LIVE}",
    ),
    Definition(
        "prefixcache_missed_tokens_total",
        "counter",
        (*REQUEST, "cause"),
        "Prompt tokens that missed, by cause (docs/causes.md): of requests with a cached count and "
        "a chain of blocks, named once, two minutes late. Together with their cached tokens they "
        f"are those requests' prompt tokens. Source: request logs with chains. {_LIVE}",
    ),
    Definition(
        "prefixcache_ttft_seconds",
        "histogram",
        ("model", "route", "outcome"),
        "Time to first token of streamed requests by outcome. Source: the measurement in request "
        f"logs. Compare outcomes at equal prompt length only. {_LIVE}",
    ),
    Definition(
        "prefixcache_cross_scope_reused_tokens_total",
        "counter",
        ENGINE,
        "Cached tokens that another scope (cache salt or adapter) had computed and the request's "
        "own cannot have supplied: reuse across a declared trust boundary, at least. Decided when "
        "the minute is sealed, two minutes late. Requests of which nobody can tell add nothing: "
        "less than causes.horizon_days of rows of their replica, and no reset since they began. "
        f"Source: hash chains in request logs. {_LIVE}",
    ),
    # ---- from engine pages
    Definition(
        "prefixcache_engine_prompt_tokens_total",
        "counter",
        ENGINE,
        "Prompt tokens, cached or not, by the engine's own counters. Source: "
        "vllm:prompt_tokens_total, sglang:prompt_tokens_total, trtllm_prompt_tokens_total, or "
        "llamacpp:prompt_tokens_total + llamacpp:prompt_tokens_cached_total; where a version "
        f"counts look-ups only (vLLM before 0.16), tokens looked up. {_SINCE}",
    ),
    Definition(
        "prefixcache_engine_cached_tokens_total",
        "counter",
        (*ENGINE, "tier"),
        "Prompt tokens whose KV was reused, by tier (unknown = tier not named), by the engine's "
        "own counters. Source: vllm:prompt_tokens_cached_total, sglang:cached_tokens_total, "
        "trtllm_prompt_cached_tokens_total, llamacpp:prompt_tokens_cached_total; where a version "
        f"counts look-ups only (vLLM before 0.16), their hits. {_SINCE}",
    ),
    Definition(
        "prefixcache_resets_total",
        "counter",
        (*ENGINE, "reason"),
        "Times a replica's cache lost all it held: restart, clear, sleep, or lost_events (the "
        "state was given up because events are missing). Source: KV-cache events; of a replica "
        "without them restarts only, by process start time or a counter that fell. Never both. "
        f"{_SINCE}",
    ),
    Definition(
        "prefixcache_kv_tokens",
        "gauge",
        (*ENGINE, "state"),
        "KV memory in tokens: running = held by running requests, cached = reusable but "
        "unreferenced, free = neither. A state nothing tells has no series. Source: "
        "vllm:kv_cache_usage_perc x capacity, sglang:kv_used_tokens, kv_evictable_tokens and "
        "kv_available_tokens, or trtllm_kv_cache_used_blocks x block size; cached and free of "
        "engines without gauges: resident tokens by KV-cache events less (running less one block "
        "per running request), and what is left of the capacity.",
    ),
    Definition(
        "prefixcache_kv_bytes",
        "gauge",
        (*ENGINE, "state"),
        "KV memory in bytes, over all GPUs of the replica. Source: prefixcache_kv_tokens x bytes "
        "per token of the model (settings: geometry). No series for other models.",
    ),
    Definition(
        "prefixcache_kv_capacity_tokens",
        "gauge",
        ENGINE,
        "KV memory of a replica in tokens. Source: vllm:cache_config_info, "
        "sglang:max_total_num_tokens, or trtllm_kv_cache_max_blocks x block size.",
    ),
    Definition(
        "prefixcache_evicted_blocks_total",
        "counter",
        (*ENGINE, "tier"),
        "Blocks lost from a tier to make room, no copy in a lower one; resets are none. Source: "
        "BlockRemoved of KV-cache events less demotions; of a tier without events the engine's "
        "own counter (sglang:evicted_tokens_total and what HiCache drops, / page size; a sample "
        f"without a page size adds nothing). {_SINCE}",
    ),
    Definition(
        "prefixcache_demoted_blocks_total",
        "counter",
        ENGINE,
        "Blocks that left a tier for a lower one that keeps them. Source: KV-cache events "
        f"(removed from a tier, stored in a lower one), else the engine's own counter. {_SINCE}",
    ),
    Definition(
        "prefixcache_block_lifetime_seconds",
        "histogram",
        ENGINE,
        "Age of device blocks when they were evicted or demoted. Source: KV-cache events, stored "
        f"to removed; bounds within 8 %. {_SINCE}",
    ),
    Definition(
        "prefixcache_evicted_reuse_gap_seconds",
        "histogram",
        ENGINE,
        "Time from the eviction of a device block until the same block was stored again: what was "
        f"lost and wanted. Source: KV-cache events; bounds within 8 %. {_SINCE}",
    ),
    Definition(
        "prefixcache_offload_bytes_total",
        "counter",
        (*ENGINE, "direction", "tier"),
        "Bytes written to a lower tier (store) or brought back from it (load), by the engine's own "
        f"counters. Source: vllm:kv_offload_*_bytes, SGLang HiCache, TensorRT-LLM. {_SINCE}",
    ),
    Definition(
        "prefixcache_offload_seconds_total",
        "counter",
        (*ENGINE, "direction", "tier"),
        "Time these transfers took, summed over transfers side by side. Source: the same "
        f"connectors' counters of time. {_SINCE}",
    ),
    Definition(
        "prefixcache_replica_copies_ratio",
        "gauge",
        ("model",),
        "Resident device blocks / different ones over all replicas of a model: copies per block, "
        "1 = every block is in one place. Source: KV-cache events, by keyed hash of a block's "
        "content and all before it.",
    ),
    # ---- judgements
    Definition(
        "prefixcache_peak_hit_drop_ratio",
        "gauge",
        DROP,
        "Expected less actual token hit ratio of the last window (an hour), what its load explains "
        "taken out; negative = above. Every model that can be judged, and routes, templates and "
        "tenants that dropped; at most 20 series. Source: question peak_drop, on the minute.",
    ),
    Definition(
        "prefixcache_peak_hit_drop_severity",
        "gauge",
        DROP,
        "1 = a ticket, 2 = a page: it is beyond chance and hurts. Series only while there is a "
        "drop. Source: question peak_drop.",
    ),
    Definition(
        "prefixcache_peak_hit_drop_info",
        "info",
        (*DROP, "class", "contributor"),
        "1 while there is a drop, with its class and the template that lost most by a lower ratio "
        "of its own. Source: question peak_drop.",
    ),
    Definition(
        "prefixcache_peak_hit_drop_expected_ratio",
        "gauge",
        DROP,
        "Token hit ratio that hours and load let expect. Series only while there is a drop. "
        "Source: question peak_drop.",
    ),
    Definition(
        "prefixcache_peak_hit_drop_actual_ratio",
        "gauge",
        DROP,
        "Token hit ratio of the last window. Series only while there is a drop. Source: question "
        "peak_drop.",
    ),
    Definition(
        "prefixcache_peak_hit_drop_since_timestamp_seconds",
        "gauge",
        DROP,
        "When the drop began, in Unix seconds, as on the on-call page: looked for in the hours "
        "before it was first judged one, and kept while it lasts. Series only while there is a "
        "drop. Source: question peak_drop.",
    ),
    Definition(
        "prefixcache_offload_pays",
        "gauge",
        ("model", "tier"),
        "1 = keeping KV in this lower tier pays, 0 = it does not, over the last 24 hours; no "
        "series where that cannot be told. Source: question offload_verdict, every ten minutes.",
    ),
    Definition(
        "prefixcache_stale_reused_tokens",
        "gauge",
        ("model", "reason"),
        "Cached tokens of the last hour that were written under another model, adapter or engine "
        "version, or that nobody wrote since the weights changed; reasons as in the question "
        "stale_reuse, critical and warning ones. Source: that question, every ten minutes.",
    ),
    # ---- about this exporter
    Definition(
        "prefixscope_last_judged_timestamp_seconds",
        "gauge",
        ("judgement",),
        "When drops and causes (every minute) and verdicts (offload and stale reuse, every ten "
        "minutes) were last judged without an error, in Unix seconds; the exporter's start before "
        "that.",
    ),
    Definition(
        "prefixscope_external_url_info",
        "info",
        ("url",),
        "Where people reach this exporter (setting server.external_url): alerts link there.",
    ),
    Definition(
        "prefixscope_build_info",
        "info",
        ("version", "python_version"),
        "Version of prefixscope and of Python.",
    ),
    Definition(
        "prefixscope_target_up",
        "gauge",
        ("target",),
        "1 if the last scrape of the target worked, else 0.",
    ),
    Definition(
        "prefixscope_target_metric_missing",
        "gauge",
        ("target", "metric"),
        "1 for a metric the target's page should have and has not: what depends on it is unknown, "
        "not 0.",
    ),
    Definition(
        "prefixscope_target_last_success_timestamp_seconds",
        "gauge",
        ("target",),
        "When a scrape of the target last worked, in Unix seconds.",
    ),
    Definition(
        "prefixscope_scrape_duration_seconds",
        "gauge",
        ("target",),
        "How long the last scrape of the target took.",
    ),
    Definition(
        "prefixscope_event_stream_up",
        "gauge",
        ("source", "replica"),
        "1 while a stream of KV-cache events is heard live, else 0.",
    ),
    Definition(
        "prefixscope_event_batches_missed_total",
        "counter",
        ("source", "replica"),
        "Batches of KV-cache events that did not come, by the gaps in their numbers.",
    ),
    Definition(
        "prefixscope_event_state_uncertain",
        "gauge",
        ("source", "replica"),
        "1 while what events tell of a cache may be wrong, until a replay, a clear or a restart. "
        "The question block_streams says why.",
    ),
    Definition(
        "prefixscope_ingested_records_total",
        "counter",
        ("source", "format"),
        "Request rows accepted into the store.",
    ),
    Definition(
        "prefixscope_rejected_records_total",
        "counter",
        ("source", "reason"),
        "Rows set aside by reason. The question `rejects` shows examples.",
    ),
    Definition(
        "prefixscope_late_tokens_total",
        "counter",
        (),
        "Prompt tokens of requests more than 10 minutes old at arrival: in the store, but in no "
        "prefixcache counter, so that rate() stays true.",
    ),
    Definition(
        "prefixscope_folded_label_values",
        "gauge",
        ("label",),
        "Values of a label counted as `other` because the label is at its bound.",
    ),
    Definition(
        "prefixscope_ingest_lag_seconds",
        "gauge",
        (),
        "Seconds since a request row last arrived. No series before the first.",
    ),
    Definition(
        "prefixscope_store_bytes",
        "gauge",
        (),
        "Size of the store's file and its write-ahead log.",
    ),
    Definition("prefixscope_exposed_series", "gauge", (), "Series on this page."),
)


class Page:
    """The families of one scrape by name, in declared order. An undeclared name is an error."""

    def __init__(self) -> None:
        self._families = {definition.name: definition.family() for definition in DEFINITIONS}

    def __getitem__(self, name: str) -> Family:
        return self._families[name]

    def families(self) -> list[Family]:
        """All families, with series or without."""
        return list(self._families.values())
