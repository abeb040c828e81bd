"""The list of iterations trtllm-serve answers with at /metrics, as samples of invented names.

Each GET takes what has gathered since the last one. Within an iteration `kvCacheStats` are totals
since start; completed requests and tokens by tier are of that iteration alone.
"""

import json
import math
from collections.abc import Iterator

from exporter.sources.exposition import NotAMetricsPage, PageSample

RANK = "attention_dp_rank"
TIERED = "trtllm_json:cached_tokens"
COMPLETED = "trtllm_json:completed_requests"
_OWN_KEYS = frozenset({"iter", "iterLatencyMS", "kvCacheStats", "numActiveRequests"})
_KV_TOTALS = {
    "reusedBlocks": "reused_blocks",
    "missedBlocks": "missed_blocks",
    "tokensPerBlock": "tokens_per_block",
    "usedNumBlocks": "used_blocks",
    "maxNumBlocks": "max_blocks",
}
_TOTALS = {"numActiveRequests": "running", "numQueuedRequests": "waiting"}
_SUMMED = (COMPLETED, TIERED)


def read_iterations(body: bytes) -> tuple[PageSample, ...] | None:
    """The list of iterations as samples; None where it is another program's JSON.

    An empty list is an idle server. Raises NotAMetricsPage where the list is cut off.
    """
    try:
        iterations = json.loads(body)
    except (ValueError, RecursionError) as error:
        if b"kvCacheStats" in body:
            raise NotAMetricsPage("the list of iterations is no complete JSON") from error
        return None
    if not isinstance(iterations, list) or not all(_is_iteration(i) for i in iterations):
        return None
    samples: dict[tuple[str, str, str], PageSample] = {}
    for iteration in iterations:
        for sample in (*_totals(iteration), *_increases(iteration)):
            _merge(samples, sample)
    return tuple(samples.values())


def _is_iteration(iteration: object) -> bool:
    return isinstance(iteration, dict) and not _OWN_KEYS.isdisjoint(iteration)


def _merge(samples: dict[tuple[str, str, str], PageSample], sample: PageSample) -> None:
    """Totals: the last iteration's word. Increases: all iterations together."""
    key = (sample.name, sample.labels.get(RANK, ""), sample.labels.get("cache_tier", ""))
    before = samples.get(key)
    if before is not None and sample.name in _SUMMED:
        sample = PageSample(sample.name, sample.labels, before.value + sample.value)
    samples[key] = sample


def _labels(iteration: dict[str, object]) -> dict[str, str]:
    rank = iteration.get("attentionDpRank")
    return {RANK: str(rank)} if isinstance(rank, int) else {}


def _totals(iteration: dict[str, object]) -> Iterator[PageSample]:
    labels = _labels(iteration)
    cache = iteration.get("kvCacheStats")
    for stats, names in ((iteration, _TOTALS), (cache, _KV_TOTALS)):
        if isinstance(stats, dict):
            for key, name in names.items():
                number = _number(stats.get(key))
                if number is not None:
                    yield PageSample(f"trtllm_json:{name}", labels, number)


def _increases(iteration: dict[str, object]) -> Iterator[PageSample]:
    labels = _labels(iteration)
    completed = _number(iteration.get("numCompletedRequests"))
    if completed is not None:
        yield PageSample(COMPLETED, labels, completed)
    counts, tiers = iteration.get("iterCachedTokensByLevel"), iteration.get("kvCacheLevelTiers")
    if isinstance(counts, list) and isinstance(tiers, list):
        for count, tier in zip(counts, tiers, strict=False):
            tokens = _number(count)
            if tokens is not None:
                yield PageSample(TIERED, {**labels, "cache_tier": str(tier)}, tokens)


def _number(value: object) -> float | None:
    """A finite number; NaN, text and nested values are none. Too large for a float: none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
