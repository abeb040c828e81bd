"""Measurement and model side by side, as text."""

import numpy as np

from bench.live.measured import Measured
from replay.timed import Timed
from replay.traffic import Numbers, Seconds

BAR_POINTS = 3.0


def report(
    measured: dict[str, Measured], modelled: dict[str, Timed], given_replica: dict[str, Numbers]
) -> str:
    """All that a run says; the first arm of `measured` is the one without caching."""
    lines = [*_arms(measured, modelled), "", *_gains(measured, modelled), ""]
    for arm, predicted in given_replica.items():
        seen = measured[arm]
        equal = int((predicted == seen.cached_tokens).sum())
        lines.append(
            f"{arm}, given who served what: cached tokens equal for {equal} of {len(predicted)}"
            f" requests, {_percent(predicted, seen)} modelled, {seen.token_hit_ratio:.1%} measured"
        )
    lines += [f"{arm}: {said}" for arm, seen in measured.items() for said in _sums(seen)]
    return "\n".join(lines)


def _percent(cached: Numbers, seen: Measured) -> str:
    return f"{int(cached.sum()) / int(seen.prompt_tokens.sum()):.1%}"


def _sums(seen: Measured) -> list[str]:
    return seen.disagreements() or ["the engines' counters equal the sums of the requests"]


def percentiles(values: Seconds) -> tuple[float, float]:
    """p50 and p90: the least value with so many of a hundred not above it."""
    low, high = np.percentile(values, (50, 90), method="inverted_cdf").tolist()
    return low, high


def _arms(measured: dict[str, Measured], modelled: dict[str, Timed]) -> list[str]:
    """A line an arm: measured / modelled."""
    heads = ("hit ratio", 17), ("points", 8), ("TTFT p50 s", 17), ("TTFT p90 s", 17)
    more = ("prefill s", 17), ("busier", 13)
    lines = ["measured / modelled " + "".join(f"{head:>{wide}}" for head, wide in heads + more)]
    for arm, seen in measured.items():
        ours = modelled[arm]
        ratio = int(ours.cached_tokens.sum()) / int(ours.prompt_tokens.sum())
        points = 100 * (ratio - seen.token_hit_ratio)
        (low, high), (our_low, our_high) = map(percentiles, (seen.ttft_seconds, ours.ttft_seconds))
        prefill = seen.busy_seconds(), float(ours.prefill_seconds.sum())
        lines.append(
            f"{arm:<20}{f'{seen.token_hit_ratio:.3f} / {ratio:.3f}':>17}{points:>+8.1f}"
            f"{f'{low:.3f} / {our_low:.3f}':>17}{f'{high:.3f} / {our_high:.3f}':>17}"
            f"{f'{prefill[0]:.1f} / {prefill[1]:.1f}':>17}"
            f"{f'{_share(seen.replica):.2f} / {_share(ours.replica):.2f}':>13}"
        )
    return lines


def _share(replica: Numbers) -> float:
    """Of requests, what the busier replica served."""
    return float(np.bincount(replica).max()) / len(replica)


def _gains(measured: dict[str, Measured], modelled: dict[str, Timed]) -> list[str]:
    """What each arm wins on the first in TTFT."""
    first, *others = measured
    base = percentiles(measured[first].ttft_seconds), percentiles(modelled[first].ttft_seconds)
    lines = []
    for arm in others:
        seen, ours = (
            percentiles(measured[arm].ttft_seconds),
            percentiles(modelled[arm].ttft_seconds),
        )
        won = [(base[0][at] - seen[at], base[1][at] - ours[at]) for at in (0, 1)]
        lines.append(
            f"{first} -> {arm}: TTFT p50 less {won[0][0]:.3f} s measured, {won[0][1]:.3f} modelled "
            f"({won[0][1] / won[0][0]:.2f} x); p90 less {won[1][0]:.3f}, {won[1][1]:.3f} "
            f"({won[1][1] / won[1][0]:.2f} x)"
        )
    return lines
