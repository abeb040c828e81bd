"""Results of an arm by whom the requests are of: a template, or a tenant."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from replay.recorded import Labels
from replay.serving import PERCENTILES, Outcome
from replay.traffic import Flags, Numbers, Seconds

MOST_GROUPS = 20
OTHERS, UNNAMED = "(others)", "(none)"


@dataclass(frozen=True, kw_only=True)
class GroupResult:
    """One arm and one group; without a clock times are None, as in `ArmResult`. `loaded_tokens`:
    of the cached ones those that came from tiers below. `evicted_blocks`: those lost that a request
    of the group had computed, of the whole run, its warm-up included; None where not known."""

    arm: str
    group: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    loaded_tokens: int = 0
    evicted_blocks: int | None = None
    prefill_seconds: float | None = None
    ttft_mean_seconds: float | None = None
    ttft_seconds: dict[int, float] | None = None

    @property
    def token_hit_ratio(self) -> float | None:
        """Cached ÷ prompt tokens; None without any."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None


def by_group(labels: Labels, outcomes: Mapping[str, Outcome], which: Flags) -> list[GroupResult]:
    """Groups with most prompt tokens first, each arm of one behind the other; all beyond the
    first twenty together as `(others)`, requests without a label as `(none)`. Groups of which an
    arm served nothing have no row of it, and those whose requests only warm caches have none."""
    if not outcomes:
        return []
    codes, names = _largest(labels, next(iter(outcomes.values())).prompt_tokens, which)
    found = {arm: _of_arm(arm, each, codes, names, which) for arm, each in outcomes.items()}
    return [
        rows[group] for group in range(len(names)) for rows in found.values() if group in rows
    ]  # fmt: skip


def _largest(labels: Labels, prompt_tokens: Numbers, which: Flags) -> tuple[Numbers, list[str]]:
    """Codes from 0, the one with most tokens first, and their names; those of some requests."""
    all_names = [*labels.names, UNNAMED]
    codes = np.where(labels.codes < 0, len(labels.names), labels.codes)
    sums = np.bincount(codes, prompt_tokens * which, len(all_names))
    order = np.argsort(-sums, kind="stable")
    kept = order[np.bincount(codes, which, len(all_names))[order] > 0]
    place = np.full(len(all_names), min(len(kept), MOST_GROUPS))
    place[kept[:MOST_GROUPS]] = np.arange(len(kept[:MOST_GROUPS]))
    names = [all_names[code] for code in kept[:MOST_GROUPS]]
    return place[codes], [*names, OTHERS] if len(kept) > MOST_GROUPS else names


def _of_arm(
    arm: str, served: Outcome, codes: Numbers, names: list[str], which: Flags
) -> dict[int, GroupResult]:
    took = which & ~served.refused & (codes < len(names))
    own = codes[took]
    sizes = np.bincount(own, minlength=len(names))
    prompt = np.bincount(own, served.prompt_tokens[took], len(names))
    cached = np.bincount(own, served.cached_tokens[took], len(names))
    loaded = np.bincount(own, served.loaded_tokens[took], len(names))
    evicted = None
    if served.evicted_of is not None:
        evicted = np.bincount(codes, served.evicted_of, len(names))
    found = {
        group: GroupResult(
            arm=arm,
            group=names[group],
            requests=int(sizes[group]),
            prompt_tokens=int(prompt[group]),
            cached_tokens=int(cached[group]),
            loaded_tokens=int(loaded[group]),
            evicted_blocks=None if evicted is None else int(evicted[group]),
        )
        for group in np.flatnonzero(sizes).tolist()
    }
    if served.times is None:
        return found
    return _with_times(found, own, served.times.prefill[took], served.times.ttft[took], sizes)


def _with_times(
    found: dict[int, GroupResult], codes: Numbers, prefill: Seconds, ttft: Seconds, sizes: Numbers
) -> dict[int, GroupResult]:
    prefill_sums = np.bincount(codes, prefill, len(sizes))
    ttft_sums = np.bincount(codes, ttft, len(sizes))
    percentiles = _percentiles(codes, ttft, sizes)
    return {
        group: replace(
            each,
            prefill_seconds=float(prefill_sums[group]),
            ttft_mean_seconds=float(ttft_sums[group]) / each.requests,
            ttft_seconds=percentiles[group],
        )
        for group, each in found.items()
    }


def _percentiles(codes: Numbers, ttft: Seconds, sizes: Numbers) -> list[dict[int, float]]:
    """Of each group the least value with so many of a hundred not above it."""
    ascending = ttft[np.lexsort((ttft, codes))]
    begins = np.cumsum(sizes) - sizes
    return [
        {
            percentile: float(ascending[begin - (-size * percentile // 100) - 1])
            for percentile in PERCENTILES
            if size
        }
        for begin, size in zip(begins.tolist(), sizes.tolist(), strict=True)
    ]
