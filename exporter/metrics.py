"""Every metric we expose, declared once: name, type, labels, and the HELP a reader sees.

HELP says the definition and the source counter, so that a figure can be followed to its
origin. docs/metrics.md lists the same, checked by a test. Names of counters end in `_total`.
"""

from dataclasses import dataclass

from exporter.metrics_text import Family, FamilyType

REQUEST = ("model", "route", "template", "tenant")
ENGINE = ("model", "replica")

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
        "denominator of the token hit ratio. Divided by prompt tokens it is coverage. Source: "
        f"prompt tokens of the usage in request logs. {_LIVE}",
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
        "prefixcache_ttft_seconds",
        "histogram",
        ("model", "route", "outcome"),
        "Time to first token of streamed requests by outcome. Source: the measurement in request "
        f"logs. Compare outcomes at equal prompt length only. {_LIVE}",
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
        "Times a replica's counters began again. Source: process start time, or a counter that "
        f"fell. {_SINCE}",
    ),
    Definition(
        "prefixcache_kv_tokens",
        "gauge",
        (*ENGINE, "state"),
        "KV memory in tokens: running = held by running requests, cached = reusable but "
        "unreferenced, free = neither. A state the engine does not tell has no series. Source: "
        "vllm:kv_cache_usage_perc x capacity, sglang:kv_used_tokens, kv_evictable_tokens and "
        "kv_available_tokens, or trtllm_kv_cache_used_blocks x block size.",
    ),
    Definition(
        "prefixcache_kv_capacity_tokens",
        "gauge",
        ENGINE,
        "KV memory of a replica in tokens. Source: vllm:cache_config_info, "
        "sglang:max_total_num_tokens, or trtllm_kv_cache_max_blocks x block size.",
    ),
    # ---- about this exporter
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
