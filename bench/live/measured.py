"""What a live arm was seen to do: by the client, by the replicas' taps, by their counters."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import requests
from prometheus_client.parser import text_string_to_metric_families

from bench.live.generator import ID_PREFIX, Sent
from exporter.errors import PrefixscopeError
from replay.traffic import Flags, Numbers, Seconds

PROMPT, QUERIES, HITS = (
    "vllm:prompt_tokens_total", "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total",
)  # fmt: skip
PREFILL_SECONDS = "vllm:request_prefill_time_seconds_sum"
TTFT_SECONDS, TTFT_COUNT = (f"vllm:time_to_first_token_seconds_{part}" for part in ("sum", "count"))
COUNTERS = (PROMPT, QUERIES, HITS, PREFILL_SECONDS, TTFT_SECONDS, TTFT_COUNT)
Counts = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """An arm, by request in the order of the trace, and what its replicas' counters rose by.

    By the client's clock, 0 at its first request: when each was sent and ended, TTFT, and
    `step_seconds` between generated tokens of all. `prefill_seconds`: from when the engine
    scheduled it to its first token.
    """

    sent_seconds: Seconds
    ended_seconds: Seconds
    ttft_seconds: Seconds
    prefill_seconds: Seconds
    prompt_tokens: Numbers
    cached_tokens: Numbers
    replica: Numbers
    step_seconds: Seconds
    counters: Counts

    @property
    def token_hit_ratio(self) -> float:
        return int(self.cached_tokens.sum()) / int(self.prompt_tokens.sum())

    @property
    def ready_seconds(self) -> Seconds:
        """When each had its first token."""
        return self.sent_seconds + self.ttft_seconds

    def busy_seconds(self) -> float:
        """How long replicas were at prefill, summed over them. Prompts that were computed together
        count once, in the engines' own sum each by itself."""
        begin, end = self.ready_seconds - self.prefill_seconds, self.ready_seconds
        total = 0.0
        for replica in np.unique(self.replica):
            own = np.flatnonzero(self.replica == replica)
            own = own[np.argsort(begin[own])]
            before = np.concatenate([[-np.inf], np.maximum.accumulate(end[own])[:-1]])
            total += float(np.maximum(end[own] - np.maximum(begin[own], before), 0).sum())
        return total

    def disagreements(self) -> list[str]:
        """Where counters and records of requests do not add up, a line each; none: they do."""
        prompt, cached = int(self.prompt_tokens.sum()), int(self.cached_tokens.sum())
        # Without caching nothing is asked of the cache.
        queries = prompt if self.counters[QUERIES] else 0
        expected = {PROMPT: prompt, QUERIES: queries, HITS: cached, TTFT_COUNT: len(self.replica)}
        return [
            f"{name} rose by {self.counters[name]:,.0f}, the requests say {wanted:,}"
            for name, wanted in expected.items()
            if self.counters[name] != wanted
        ]

    def alone(self) -> Flags:
        """Which requests came to a replica that was at no other prompt until their first token."""
        ready = self.ready_seconds
        return np.array([
            not np.any(
                (self.replica == replica) & (ready > sent) & (self.sent_seconds < first)
                & (np.arange(len(ready)) != number)
            )
            for number, (replica, sent, first) in enumerate(
                zip(self.replica, self.sent_seconds, ready, strict=True)
            )
        ], np.bool_)  # fmt: skip


def counters(url: str) -> Counts:
    """Those of a replica that are of use here, summed over its series."""
    return counts_of(requests.get(f"{url}/metrics", timeout=10).text)


def counts_of(page: str) -> Counts:
    """COUNTERS of a metric page; 0 where it has none."""
    counts = dict.fromkeys(COUNTERS, 0.0)
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name in counts:
                counts[sample.name] += sample.value
    return counts


def rise(before: Iterable[Counts], after: Iterable[Counts]) -> Counts:
    """By how much the counters of all replicas rose together."""
    rises = [(new, old) for old, new in zip(before, after, strict=True)]
    return {name: sum(new[name] - old[name] for new, old in rises) for name in COUNTERS}


def joined(sent: list[Sent], taps: list[list[str]], counts: Counts) -> Measured:
    """Client and taps by request id; `taps` are the lines of each replica. PrefixscopeError where
    a request has no row, or two."""
    rows: dict[int, tuple[int, dict[str, float]]] = {}
    for replica, lines in enumerate(taps):
        for line in lines:
            row = json.loads(line)
            identity = str(row.get("request_id", ""))
            if not identity.startswith(ID_PREFIX):
                continue  # ours, from before the run
            number = int(identity.removeprefix(ID_PREFIX))
            if number in rows:
                raise PrefixscopeError(f"request {identity} was served twice")
            rows[number] = (replica, row)
    missing = [number for number in range(len(sent)) if number not in rows]
    if missing:
        raise PrefixscopeError(f"no tap has a row of {len(missing)} requests, such as {missing[0]}")
    found = [rows[number] for number in range(len(sent))]

    def told(name: str) -> list[float]:
        return [row[name] for _, row in found]

    return Measured(
        sent_seconds=np.array([each.sent_seconds for each in sent]),
        ended_seconds=np.array([each.ended_seconds for each in sent]),
        ttft_seconds=np.array([each.ttft_seconds for each in sent]),
        prefill_seconds=np.array(told("prefill_seconds")),
        prompt_tokens=np.array(told("prompt_tokens"), np.int64),
        cached_tokens=np.array(told("cached_tokens"), np.int64),
        replica=np.array([replica for replica, _ in found], np.int64),
        step_seconds=np.array([step for each in sent for step in each.step_seconds]),
        counters=counts,
    )
