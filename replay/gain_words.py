"""What an experiment comes to: an arm as a row of figures, and the gain in a sentence or two."""

from replay.arms import OFF, PLAIN, ArmResult
from replay.experiment import Experiment

_HOUR_DAYS = 1 / 24


def gain_words(found: Experiment, gpus: int) -> list[str]:
    """What caching saves, and then each router, the one with the soonest first tokens first; none
    without the arms that tell it."""
    if found.gain is None:
        return []
    plain = next(each for each in found.results if each.arm == PLAIN).prefill_seconds or 0.0
    lines = [f"Caching {_saves(found.gain.caching_seconds * gpus, found)} (off → round-robin)."]
    routed = [each for each in found.results if each.arm not in (OFF, PLAIN)]
    for each in sorted(routed, key=lambda each: each.ttft_mean_seconds or 0.0):
        saved = (plain - (each.prefill_seconds or 0.0)) * gpus
        low, high = _interval(found, each.arm, gpus)
        if low is not None and high is not None and low <= 0 <= high:
            lines.append(f"Routing by {each.arm} makes no difference that can be told.")
            continue
        told = "" if low is None else f" (95 %: {low:,.0f} to {high:,.0f})"
        lines.append(f"Routing by {each.arm} {_saves(saved, found)} beside round-robin{told}.")
    return lines


def _saves(gpu_seconds: float, found: Experiment) -> str:
    """By the day only where the requests took an hour at least."""
    word = "costs" if gpu_seconds < 0 else "saves"
    amount, a_day = abs(gpu_seconds), ""
    if found.days is not None and found.days >= _HOUR_DAYS:
        amount, a_day = amount / found.days, " a day"
    return f"{word} {amount:,.0f} GPU-seconds of prefill{a_day}"


def _interval(found: Experiment, arm: str, gpus: int) -> tuple[float | None, float | None]:
    """Between what the saving lies in 95 of 100 resamples of the traffic; None: not known."""
    for each in found.differences:
        if each.arm == arm and each.figure == "prefill_seconds":
            days = found.days if found.days is not None and found.days >= _HOUR_DAYS else 1.0
            return -each.high * gpus / days, -each.low * gpus / days
    return None, None


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
