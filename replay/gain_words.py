"""What an experiment comes to: an arm as a row of figures, and what each change saves, in words."""

from replay.arms import Arm, base_of
from replay.differences import PREFILL, Difference
from replay.experiment import Experiment
from replay.groups import GroupResult
from replay.serving import ArmResult

_HOUR_DAYS = 1 / 24


def gain_words(found: Experiment, gpus: int) -> list[str]:
    """What caching saves, then each router, the one with the soonest first tokens first, then each
    other change, held against the arm that is the same but for it; none without arms to hold each
    other against, or without a clock."""
    results = {each.arm: each for each in found.results if each.prefill_seconds is not None}
    lines = []
    for arm in _in_order(found, results):
        near = base_of(arm, found.arms)
        if near is not None and arm.name in results:
            lines.append(_sentence(found, arm, near[0], near[1], results, gpus))
    return lines


def _in_order(found: Experiment, results: dict[str, ArmResult]) -> list[Arm]:
    def place(arm: Arm) -> tuple[int, float]:
        if not arm.caches:
            return 0, 0.0
        if arm == Arm(router=arm.router):
            return 1, (results[arm.name].ttft_mean_seconds or 0.0) if arm.name in results else 0.0
        return 2, 0.0

    return sorted(found.arms, key=place)


def _sentence(
    found: Experiment, arm: Arm, base: Arm, changed: str, results: dict[str, ArmResult], gpus: int
) -> str:
    """What one change saves. Caching is held the other way round: what it saves where it is on."""
    subject, beside = _subject(found, arm, changed), f" beside {base.name}"
    sign = 1
    if not arm.caches and base.caches:
        subject, beside, sign = "Caching", f" ({arm.name} → {base.name})", -1
    told = _difference(found, arm.name, base.name)
    seconds = sign * gpus * (
        -told.change if told else
        (results[base.name].prefill_seconds or 0.0) - (results[arm.name].prefill_seconds or 0.0)
    )  # fmt: skip
    if told is not None and told.low <= 0 <= told.high:
        return f"{subject} makes no difference{beside} that can be told."
    interval = ""
    if told is not None:
        ends = sorted(-sign * gpus * end / _days(found) for end in (told.low, told.high))
        interval = f" (95 %: {ends[0]:,.0f} to {ends[1]:,.0f})"
    return f"{subject} {_saves(seconds, found)}{beside}{interval}."


def _subject(found: Experiment, arm: Arm, changed: str) -> str:
    """The change by which an arm differs, as the subject of a sentence."""
    device = "× the device's memory"
    mended = f" ({', '.join(found.mended_words)})" if found.mended_words else ""
    return {
        "router": f"Routing by {arm.router}",
        "replicas": f"Serving by {arm.replicas} replicas instead of {found.setting.replicas}",
        "memory_factor": f"Memory of {arm.memory_factor:g} × as much",
        "tier_factor": f"A host tier of {arm.tier_factor or 0:g} {device}",
        "block_tokens": f"Reuse by blocks of {arm.block_tokens} tokens",
        "lifetime_seconds": f"Losing idle blocks after {arm.lifetime_seconds or 0:g} s",
        "traffic": "Reuse without isolation" if arm.traffic == "merged"
                   else f"Mending the layout{mended}",
        "caches": "Switching caching off",
    }[changed]  # fmt: skip


def _difference(found: Experiment, arm: str, base: str) -> Difference | None:
    pairs = ((each.arm, each.base, each.figure, each) for each in found.differences)
    return next((each for *told, each in pairs if told == [arm, base, PREFILL]), None)


def _days(found: Experiment) -> float:
    """What is told is by the day only where the requests took an hour at least."""
    return found.days if found.days is not None and found.days >= _HOUR_DAYS else 1.0


def _saves(gpu_seconds: float, found: Experiment) -> str:
    word = "costs" if gpu_seconds < 0 else "saves"
    a_day = " a day" if found.days is not None and found.days >= _HOUR_DAYS else ""
    return f"{word} {abs(gpu_seconds) / _days(found):,.0f} GPU-seconds of prefill{a_day}"


def arm_row(each: ArmResult, gpus: int) -> dict[str, object]:
    """Its figures by name; those that need a clock are left out without one."""
    return {
        "arm": each.arm,
        "requests": each.requests,
        "refused_requests": each.refused_requests,
        "prompt_tokens": each.prompt_tokens,
        "cached_tokens": each.cached_tokens,
        "token_hit_ratio": each.token_hit_ratio,
        "imbalance_ratio": each.imbalance_ratio,
        "evicted_blocks": each.evicted_blocks,
        "loaded_tokens": each.loaded_tokens,
        "stored_tokens": each.stored_tokens,
        **_times(each, gpus),
    }


def group_row(each: GroupResult, gpus: int) -> dict[str, object]:
    """Figures of one group in one arm, by the same names."""
    return {
        "arm": each.arm,
        "group": each.group,
        "requests": each.requests,
        "prompt_tokens": each.prompt_tokens,
        "cached_tokens": each.cached_tokens,
        "token_hit_ratio": each.token_hit_ratio,
        **_times(each, gpus),
    }


def _times(each: ArmResult | GroupResult, gpus: int) -> dict[str, object]:
    if each.prefill_seconds is None:
        return {}
    ttft = (each.ttft_seconds or {}).items()
    return {
        "prefill_seconds": each.prefill_seconds,
        "prefill_gpu_seconds": each.prefill_seconds * gpus,
        "ttft_mean_seconds": each.ttft_mean_seconds,
        **{f"ttft_p{percentile}_seconds": seconds for percentile, seconds in ttft},
    }
