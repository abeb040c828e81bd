"""Rows of what a replay found that page and document share: whose the gain is, what differs, who
gains, and the curve of capacities.

Amounts are GPU-seconds of prefill, by the day where the requests took an hour at least.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dashboard.figures.rows import Row
from replay.arms import OFF, PLAIN, arm_named
from replay.curve import Curve
from replay.differences import PREFILL, Difference
from replay.experiment import Experiment
from replay.gain_words import days_told
from replay.groups import GroupResult
from replay.serving import PERCENTILES

_CURVE_POINTS = 120
# Below this share of what memory wins at all, it wins nothing worth a line.
_NO_GAIN = 0.02
TTFT = tuple(f"ttft_p{percentile}_seconds" for percentile in PERCENTILES)


def gpu_seconds(found: Experiment, gpus: int, prefill_seconds: float) -> float:
    """Of all replicas' GPUs, a day where that can be told."""
    return prefill_seconds * gpus / (days_told(found) or 1.0)


@dataclass(frozen=True)
class Step:
    """One bar of the gain, from `begin` to `end`: what is spent where it starts from 0, else what
    a change saves (towards 0) or costs. `change`: its name among the gain's parts, '' of a sum."""

    name: str
    change: str
    begin: float
    end: float

    @property
    def amount(self) -> float:
        """What is spent, or saved; below 0 what a change costs."""
        return self.begin - self.end if self.change else self.end


def gain_steps(found: Experiment, gpus: int) -> list[Step]:
    """From caching off by caching, routing and layout to the best arm; none without the arms that
    tell it. Layout is left out where no mended prompts were tried."""
    off = next((each.prefill_seconds for each in found.results if each.arm == OFF), None)
    if found.gain is None or off is None:
        return []
    routed = arm_named(found.gain.best).router
    routing = "Routing" if routed == PLAIN else f"Routing by {routed}"
    changes = [("caching", "Caching", found.gain.caching_seconds),
               ("routing", routing, found.gain.routing_seconds)]  # fmt: skip
    if found.gain.has_layout:
        changes.append(("layout", "Layout mended", found.gain.layout_seconds))
    at = gpu_seconds(found, gpus, off)
    steps = [Step("Caching off", "", 0.0, at)]
    for change, name, saved in changes:
        steps.append(Step(name, change, at, at - gpu_seconds(found, gpus, saved)))
        at = steps[-1].end
    return [*steps, Step("Left to compute", "", 0.0, at)]


@dataclass(frozen=True)
class Compared:
    """One arm beside another: the differences by figure; prefill as GPU-seconds."""

    arm: str
    base: str
    figures: dict[str, Difference]

    def is_told(self, figure: str) -> bool:
        """Whether the interval leaves no doubt of the sign."""
        known = self.figures.get(figure)
        return known is not None and not known.low <= 0 <= known.high


def compared(found: Experiment, gpus: int) -> list[Compared]:
    """Each arm beside each that it is held against, in the order of the experiment."""
    pairs: dict[tuple[str, str], dict[str, Difference]] = {}
    for each in found.differences:
        own = _in_gpu_seconds(found, gpus, each) if each.figure == PREFILL else each
        pairs.setdefault((each.arm, each.base), {})[each.figure] = own
    return [Compared(arm, base, figures) for (arm, base), figures in pairs.items()]


def _in_gpu_seconds(found: Experiment, gpus: int, each: Difference) -> Difference:
    ends = (gpu_seconds(found, gpus, end) for end in (each.change, each.low, each.high))
    return Difference(each.arm, each.base, each.figure, *ends)


@dataclass(frozen=True)
class GroupRow:
    """One template or tenant in two arms. `arm`: None where it served none of its requests.
    `saved`: None where that is not known."""

    group: str
    base: GroupResult
    arm: GroupResult | None
    saved: float | None

    @property
    def token_hit_ratios(self) -> tuple[float | None, float | None]:
        """In the base and in the arm."""
        return self.base.token_hit_ratio, self.arm.token_hit_ratio if self.arm else None

    @property
    def evicted_blocks(self) -> tuple[int | None, int | None]:
        """In the base and in the arm."""
        return self.base.evicted_blocks, self.arm.evicted_blocks if self.arm else None

    @property
    def ttft_p90_seconds(self) -> tuple[float | None, float | None]:
        """In the base and in the arm."""
        of_arm = self.arm.ttft_seconds if self.arm else None
        return (self.base.ttft_seconds or {}).get(90), (of_arm or {}).get(90)


def group_rows(found: Experiment, by: str, arm: str, base: str, gpus: int) -> list[GroupRow]:
    """Each group of `base`, most tokens first, beside the same requests in `arm`."""
    others = {each.group: each for each in found.by.get(by, []) if each.arm == arm}
    made = []
    for each in found.by.get(by, []):
        if each.arm == base:
            other = others.get(each.group)
            made.append(GroupRow(each.group, each, other, _saved(found, gpus, each, other)))
    return made


def _saved(
    found: Experiment, gpus: int, base: GroupResult, arm: GroupResult | None
) -> float | None:
    if arm is None or base.prefill_seconds is None or arm.prefill_seconds is None:
        return None
    return gpu_seconds(found, gpus, base.prefill_seconds - arm.prefill_seconds)


def ratios_by(found: Experiment, by: str) -> list[Row]:
    """A row a group: its name as `group`, and its token hit ratio in each arm by the arm's name."""
    made: dict[str, dict[str, object]] = {}
    for each in found.by.get(by, []):
        made.setdefault(each.group, {"group": each.group})[each.arm] = each.token_hit_ratio
    return list(made.values())


def curve_rows(curve: Curve, block_tokens: int, capacity_blocks: int | None = None) -> list[Row]:
    """Hit ratios at capacities evenly spaced on a logarithmic axis, from where memory begins to
    win to where more wins nothing, and at that of the replay."""
    tokens = curve.hit_tokens
    least = int(np.searchsorted(tokens, tokens[0] + _NO_GAIN * (tokens[-1] - tokens[0])))
    ends = max(least // 4, 1), max(curve.enough_blocks, 1) * 1.2
    blocks = set(np.geomspace(*ends, _CURVE_POINTS).astype(int).tolist())
    return [
        {"capacity_tokens": size * block_tokens, "token_hit_ratio": curve.ratio_at(size)}
        for size in sorted(blocks | ({capacity_blocks} if capacity_blocks else set()))
    ]


def at_capacity(rows: Sequence[Row], capacity_tokens: float | None) -> Row | None:
    """The row of the replay's own capacity; None where it has none."""
    return next((row for row in rows if row["capacity_tokens"] == capacity_tokens), None)


def thinned(rows: Sequence[Row], most: int) -> list[Row]:
    """At most so many of them, evenly, with the last."""
    step = max(-(-len(rows) // most), 1)
    return list(rows[::-1][::step][::-1])
