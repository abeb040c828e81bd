"""One question put to recorded traffic: the same requests through every arm, in one setting."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from replay.arms import Arm, base_of
from replay.curve import curve
from replay.differences import Difference, Resamples
from replay.gain import Gain, best_routed, gain, mended
from replay.groups import GroupResult, by_group
from replay.prompts import Prompts
from replay.recorded import Recorded
from replay.rules import CacheRule
from replay.serving import ArmResult, Outcome, serve_arm, summed
from replay.setting import Setting, distinct
from replay.traffic import Flags


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """`results`: of the arms as asked for, and behind them the best router's with mended prompts
    where there are any. `differences`: of every arm to round robin (else to the first), and to the
    arm that is the same but for one thing. `by`: "template" and "tenant" where requests have any.
    `bound_ratio`: the token hit ratio of one cache that never loses a block, for requests as they
    were recorded: no arm of these can do better, whichever it refuses. `days`: how long those
    counted took, None without any time between them. `observed_ratio`: what was cached as it ran.
    """

    setting: Setting
    arms: tuple[Arm, ...]
    results: list[ArmResult]
    differences: list[Difference]
    gain: Gain | None
    by: dict[str, list[GroupResult]]
    bound_ratio: float | None
    days: float | None
    mended_words: list[str] = field(default_factory=list)
    observed_ratio: float | None = None


def experiment(recorded: Recorded, setting: Setting) -> Experiment:
    """Run every arm. NotAnArm where there is none, or one that traffic or setting do not allow;
    ValueError for a rule with a lifetime of its own."""
    setting.checked(recorded)
    prompts = recorded.prompts
    first = min(setting.warm_up_requests, len(prompts))
    which = np.arange(len(prompts)) >= first
    outcomes = _outcomes(recorded, setting, which)
    names = {arm.name: each for arm, each in outcomes.items()}
    counted = prompts.arrived[first:]
    days = float(counted[-1] - counted[0]) / 86_400 if len(counted) else 0.0
    labels = {"template": recorded.template, "tenant": recorded.tenant}
    return Experiment(
        setting=setting,
        arms=tuple(outcomes),
        results=[summed(name, each, which) for name, each in names.items()],
        differences=_compared(outcomes, which, setting.router.seed),
        gain=gain(outcomes, which),
        by={name: by_group(each, names, which) for name, each in labels.items() if each},
        bound_ratio=_bound_ratio(prompts, setting.rule, first, outcomes),
        days=days or None,
        mended_words=recorded.mended_words,
        observed_ratio=recorded.token_hit_ratio,
    )


def _outcomes(recorded: Recorded, setting: Setting, which: Flags) -> dict[Arm, Outcome]:
    """Of all arms asked for, and of the best router's with mended prompts."""
    found = {arm: serve_arm(arm, recorded, setting) for arm in distinct(setting.arms)}
    best = best_routed(found, which)
    if best is not None and recorded.mended is not None and mended(best) not in found:
        found[mended(best)] = serve_arm(mended(best), recorded, setting)
    return found


def _bound_ratio(
    prompts: Prompts, rule: CacheRule, first: int, outcomes: Mapping[Arm, Outcome]
) -> float | None:
    """Of the requests that an arm serves; where arms refuse others, the highest of these."""
    served = {each.refused.tobytes(): ~each.refused for each in outcomes.values()}
    ratios = []
    for which in served.values():
        found = curve(prompts.picked(which), rule, int(which[:first].sum()))
        ratios.append(found.ratio_at(found.enough_blocks))
    return max((ratio for ratio in ratios if ratio is not None), default=None)


def _base(outcomes: Mapping[Arm, Outcome]) -> Arm:
    """What all arms are held against: round robin, else the first."""
    return Arm() if Arm() in outcomes else next(iter(outcomes))


def _compared(outcomes: Mapping[Arm, Outcome], which: Flags, seed: int) -> list[Difference]:
    """Of each arm to what all are held against, and to the one that differs in one thing."""
    resamples, common = Resamples(which, seed), _base(outcomes)
    found = []
    for arm, each in outcomes.items():
        near = base_of(arm, outcomes)
        for base in dict.fromkeys([common, near[0] if near else common]):
            if base != arm:
                found += resamples.differences(arm.name, each, base.name, outcomes[base])
    return found
