"""What an experiment comes to: an arm as a row of figures, and the gain in a sentence or two."""

from replay.arms import OFF, PLAIN, ArmResult
from replay.experiment import Experiment


def gain_words(found: Experiment, gpus: int) -> list[str]:
    """What caching and routing win, for people; none without the arms that tell it."""
    if found.gain is None:
        return []
    saved = _a_day(found.gain.caching_seconds * gpus, found.days)
    lines = [f"Caching saves {saved} of prefill (off → round-robin)."]
    best = found.gain.best
    if best not in (OFF, PLAIN):
        saved = _a_day(found.gain.routing_seconds * gpus, found.days)
        lines.append(f"Routing by {best} saves {saved} more.{_interval(found, best, gpus)}")
    return lines


def _a_day(gpu_seconds: float, days: float | None) -> str:
    if days is None:
        return f"{gpu_seconds:,.0f} GPU-seconds"
    return f"{gpu_seconds / days:,.0f} GPU-seconds a day"


def _interval(found: Experiment, arm: str, gpus: int) -> str:
    """Where the saving lies in 95 of 100 resamples of the traffic."""
    for each in found.differences:
        if each.arm == arm and each.figure == "prefill_seconds":
            days = found.days or 1.0
            low, high = sorted((-each.high * gpus / days, -each.low * gpus / days))
            return f" (95 %: {low:,.0f} to {high:,.0f})"
    return ""


def arm_row(each: ArmResult, gpus: int) -> dict[str, object]:
    """Its figures by name; those that need a clock are left out without one."""
    facts: dict[str, object] = {
        "arm": each.arm,
        "requests": each.requests,
        "refused_requests": each.refused_requests,
        "prompt_tokens": each.prompt_tokens,
        "cached_tokens": each.cached_tokens,
        "token_hit_ratio": each.token_hit_ratio,
        "imbalance_ratio": each.imbalance_ratio,
        "evicted_blocks": each.evicted_blocks,
        "loaded_tokens": each.loaded_tokens,
        "stored_blocks": each.stored_blocks,
    }
    if each.prefill_seconds is not None:
        facts["prefill_seconds"] = each.prefill_seconds
        facts["prefill_gpu_seconds"] = each.prefill_seconds * gpus
        facts["ttft_mean_seconds"] = each.ttft_mean_seconds
        for percentile, seconds in (each.ttft_seconds or {}).items():
            facts[f"ttft_p{percentile}_seconds"] = seconds
    return facts
