"""What a replay found: for people, or for programs."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from prefixscope.tables import Column, formatter, print_rows, terminal

if TYPE_CHECKING:
    from replay.arms import ArmResult
    from replay.experiment import Experiment

_DAY_SECONDS = 86_400


def as_json(found: "Experiment", gpus: int) -> dict[str, object]:
    """`arms` in the order asked for; figures that need a clock are left out without one."""
    setting = found.setting
    return {
        "assumptions": setting.words(),
        "replicas": setting.replicas,
        "capacity_blocks": setting.capacity_blocks,
        "block_tokens": setting.rule.block_tokens,
        "unlimited": found.bound_ratio,
        "arms": [_arm(each, gpus) for each in found.results],
        "differences": [asdict(each) for each in found.differences],
        "gain": asdict(found.gain) if found.gain else None,
        "days": found.days,
    }


def _arm(each: "ArmResult", gpus: int) -> dict[str, object]:
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


def _factor(value: object) -> str:
    return "–" if not isinstance(value, float) else f"{value:.2f}"


def _whole(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, float) else "–"


_COLUMNS: tuple[Column, ...] = (
    ("arm", "arm", formatter("arm")),
    ("token hit ratio", "token_hit_ratio", formatter("token_hit_ratio")),
    ("TTFT p50 s", "ttft_p50_seconds", formatter("seconds")),
    ("p90", "ttft_p90_seconds", formatter("seconds")),
    ("p99", "ttft_p99_seconds", formatter("seconds")),
    ("GPU-seconds of prefill", "prefill_gpu_seconds", _whole),
    ("busiest ÷ mean replica", "imbalance_ratio", _factor),
    ("evicted blocks", "evicted_blocks", formatter("blocks")),
    ("tokens from the tier below", "loaded_tokens", formatter("tokens")),
    ("refused", "refused_requests", formatter("requests")),
)  # fmt: skip


def print_experiment(found: "Experiment", gpus: int) -> None:
    """The assumptions, a line an arm, and what it comes to in a sentence."""
    console = terminal()
    for word in found.setting.words():
        console.print(f"Assumed: {word}", style="dim", markup=False)
    rows = [_arm(each, gpus) for each in found.results]
    shown = [
        column for column in _COLUMNS
        if any(row.get(column[1]) not in (None, 0) for row in rows)
    ]  # fmt: skip
    print_rows(console, shown, rows)
    if found.bound_ratio is not None:
        console.print(
            f"No cache could do better than {found.bound_ratio:.2%}: one for all replicas that"
            " never loses a block.",
            style="dim",
        )
    for line in gain_words(found, gpus):
        console.print(line, markup=False)


def gain_words(found: "Experiment", gpus: int) -> list[str]:
    """What caching and routing win, for people; none without the arms that tell it."""
    if found.gain is None:
        return []
    saved = _a_day(found.gain.caching_seconds * gpus, found.days)
    lines = [f"Caching saves {saved} of prefill (off → round-robin)."]
    best = found.gain.best
    if best not in ("off", "round-robin"):
        saved = _a_day(found.gain.routing_seconds * gpus, found.days)
        lines.append(f"Routing by {best} saves {saved} more.{_interval(found, best, gpus)}")
    return lines


def _a_day(gpu_seconds: float, days: float | None) -> str:
    if days is None:
        return f"{gpu_seconds:,.0f} GPU-seconds"
    return f"{gpu_seconds / days:,.0f} GPU-seconds a day"


def _interval(found: "Experiment", arm: str, gpus: int) -> str:
    """Where the saving lies in 95 of 100 resamples of the traffic."""
    for each in found.differences:
        if each.arm == arm and each.figure == "prefill_seconds":
            days = found.days or 1.0
            low, high = sorted((-each.high * gpus / days, -each.low * gpus / days))
            return f" (95 %: {low:,.0f} to {high:,.0f})"
    return ""
