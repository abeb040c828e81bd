"""Measurement and model side by side, as text."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from bench.live.measured import PREFILL_SECONDS, TTFT_COUNT, TTFT_SECONDS, Measured
from replay.timed import Timed
from replay.traffic import Numbers, Seconds

BAR_POINTS = 3.0
_COLUMNS = ("hit ratio", "points", "TTFT p50 s", "p90 s", "mean s", "prefill s", "busier")


def report(
    measured: dict[str, Measured], modelled: dict[str, Timed], given_replica: dict[str, Numbers]
) -> str:
    """All that a run says; the first arm of `measured` is the one without caching."""
    lines = ["measured / modelled" + "".join(f"{name:>16}" for name in _COLUMNS)]
    lines += [_arm(arm, seen, modelled[arm]) for arm, seen in measured.items()]
    lines += ["prefill s: how long replicas were at it; busier: the share of requests of one", ""]
    lines += [*_gains(measured, modelled), ""]
    for arm, predicted in given_replica.items():
        seen = measured[arm]
        equal = int((predicted == seen.cached_tokens).sum())
        lines.append(
            f"{arm}, given who served what: cached tokens equal for {equal} of {len(predicted)} "
            f"requests; hit ratio {seen.token_hit_ratio:.4f} measured, "
            f"{_ratio(predicted, seen.prompt_tokens):.4f} modelled"
        )
    lines += [f"{arm}, engines' counters: {_counted(seen)}" for arm, seen in measured.items()]
    return "\n".join(lines)


def missed(measured: dict[str, Measured], modelled: dict[str, Timed]) -> list[str]:
    """Bars that a run misses: hit ratios within BAR_POINTS, arms in their order by TTFT p50."""
    said = [
        f"{arm}: hit ratio {points:+.1f} points (bar {BAR_POINTS:g})"
        for arm, seen in measured.items()
        if abs(points := _points(seen, modelled[arm])) > BAR_POINTS
    ]
    real, ours = (
        sorted(measured, key=lambda arm: -percentile(each[arm].ttft_seconds, 50))
        for each in (measured, modelled)
    )
    if real != ours:
        said.append(f"order by TTFT p50: {' > '.join(real)} measured, {' > '.join(ours)} modelled")
    return said


def percentile(values: Seconds, percent: int) -> float:
    """The least value with so many of a hundred not above it."""
    return float(np.percentile(values, percent, method="inverted_cdf"))


def _ratio(cached: Numbers, prompt: Numbers) -> float:
    return int(cached.sum()) / int(prompt.sum())


def _points(seen: Measured, ours: Timed) -> float:
    return 100 * (_ratio(ours.cached_tokens, ours.prompt_tokens) - seen.token_hit_ratio)


def _ttft(values: Seconds) -> Sequence[float]:
    return percentile(values, 50), percentile(values, 90), float(values.mean())


def _arm(arm: str, seen: Measured, ours: Timed) -> str:
    ratio = _ratio(ours.cached_tokens, ours.prompt_tokens)
    cells = [f"{seen.token_hit_ratio:.3f} / {ratio:.3f}", f"{_points(seen, ours):+.1f}"]
    both = zip(_ttft(seen.ttft_seconds), _ttft(ours.ttft_seconds), strict=True)
    cells += [f"{real:.3f} / {told:.3f}" for real, told in both]
    cells.append(f"{seen.busy_seconds():.1f} / {float(ours.prefill_seconds.sum()):.1f}")
    cells.append(f"{_share(seen.replica):.2f} / {_share(ours.replica):.2f}")
    return f"{arm:<19}" + "".join(f"{cell:>16}" for cell in cells)


def _share(replica: Numbers) -> float:
    """Of requests, what the busier replica served."""
    return float(np.bincount(replica).max()) / len(replica)


def _gains(measured: dict[str, Measured], modelled: dict[str, Timed]) -> list[str]:
    """What each arm wins on the one before in seconds of TTFT, and on the first."""
    arms = list(measured)
    steps = [*pairwise(arms), (arms[0], arms[-1])]
    return [
        f"{base} -> {arm}, TTFT less: "
        + ", ".join(
            f"{name} {real:.3f} s measured, {told:.3f} modelled"
            for name, real, told in zip(
                ("p50", "p90", "mean"),
                _won(measured[base].ttft_seconds, measured[arm].ttft_seconds),
                _won(modelled[base].ttft_seconds, modelled[arm].ttft_seconds),
                strict=True,
            )
        )
        for base, arm in steps
    ]


def _won(base: Seconds, values: Seconds) -> Sequence[float]:
    return [before - after for before, after in zip(_ttft(base), _ttft(values), strict=True)]


def _counted(seen: Measured) -> str:
    """What the engines say of themselves: each prompt's prefill by itself, TTFT without router."""
    sums = "; ".join(seen.disagreements()) or "tokens equal the sums of the requests"
    counted = seen.counters
    mean = counted[TTFT_SECONDS] / counted[TTFT_COUNT]
    return f"{sums}; prefill {counted[PREFILL_SECONDS]:.1f} s, TTFT mean {mean:.3f} s"
