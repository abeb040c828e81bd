"""What an experiment comes to: an arm as a row of figures, and what each change saves, in words."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from replay.arms import MERGED, Arm, base_of
from replay.counted import counted
from replay.differences import PREFILL, Difference
from replay.experiment import Experiment
from replay.groups import GroupResult
from replay.serving import ArmResult, Moved

_HOUR_DAYS = 1 / 24
# From so many seconds on fractions say nothing, of one amount and of several that add up.
_WHOLE, _LARGE = 10, 100


def gain_words(found: Experiment, gpus: int) -> list[str]:
    """What caching saves, then each router, the one with the soonest first tokens first, then each
    other change, held against the arm that is the same but for it; none without arms to hold each
    other against, or without a clock."""
    results = {each.arm: each for each in found.results if each.prefill_seconds is not None}
    known = [arm for arm in found.arms if arm.name in results]
    ordered = sorted(known, key=lambda arm: _place(arm, results[arm.name]))
    return [
        _sentence(_Change(found, arm, near[0], near[1], gpus), results)
        for arm in ordered
        if (near := base_of(arm, known)) is not None
    ]


def _place(arm: Arm, result: ArmResult) -> tuple[int, float]:
    if not arm.caches:
        return 0, 0.0
    return (1, result.ttft_mean_seconds or 0.0) if arm == Arm(router=arm.router) else (2, 0.0)


@dataclass(frozen=True)
class _Change:
    """An arm beside the one that is the same but for the field `changed`."""

    found: Experiment
    arm: Arm
    base: Arm
    changed: str
    gpus: int

    @property
    def is_caching(self) -> bool:
        """Told the other way round: of caching is said what it saves where it is on."""
        return self.changed == "caches"

    @property
    def difference(self) -> Difference | None:
        """In prefill seconds; None where it is not known how surely."""
        pair = [self.arm.name, self.base.name, PREFILL]
        told = (
            each for each in self.found.differences if [each.arm, each.base, each.figure] == pair
        )
        return next(told, None)

    def saved(self, prefill_seconds: float) -> float:
        """GPU-seconds that are saved, a day where that can be told, where an arm takes more."""
        sign = 1 if self.is_caching else -1
        return sign * prefill_seconds * self.gpus / (days_told(self.found) or 1.0)


def _sentence(change: _Change, results: Mapping[str, ArmResult]) -> str:
    subject, told = _subject(change), change.difference
    arm, base = results[change.arm.name], results[change.base.name]
    beside = f" beside {change.base.name}"
    notes = []
    if change.is_caching:
        beside, notes = "", [f"{change.arm.name} → {change.base.name}"]
    if told is not None and told.low <= 0 <= told.high:
        return f"{subject} makes no difference{beside} that can be told."
    if told is not None:
        saved = change.saved(told.change)
        # Both ends are on the side of the difference itself, which "saves" or "costs" says.
        low, high = sorted(abs(change.saved(end)) for end in (told.low, told.high))
        notes.append(f"95 %: {amount(low)} to {amount(high)}")
    elif arm.requests == base.requests:
        saved = change.saved((arm.prefill_seconds or 0.0) - (base.prefill_seconds or 0.0))
        if not saved:
            return f"{subject} makes no difference{beside}."
    else:
        return f"{subject}: too few requests fit both to say what it saves{beside}."
    if arm.requests != base.requests:
        notes.append("of requests that fit both")
    brackets = f" ({'; '.join(notes)})" if notes else ""
    return f"{subject} {_saves(saved, change.found)}{beside}{brackets}."


def _subject(change: _Change) -> str:
    """The change by which an arm differs, as the subject of a sentence."""
    arm, setting = change.arm, change.found.setting
    return {
        "caches": "Caching",
        "router": f"Routing by {arm.router}",
        "replicas": f"Serving by {counted(arm.replicas, 'replica')} instead of {setting.replicas}",
        "memory_factor": f"Memory of {arm.memory_factor:g} × the size",
        "tier_factor": f"A host tier of {arm.tier_factor:g} × the device's memory"
                       if arm.tier_factor else "Doing without a host tier",
        "block_tokens": f"Reuse by blocks of {arm.block_tokens} tokens instead of "
                        f"{setting.rule.block_tokens}",
        "lifetime_seconds": f"Losing idle blocks after {arm.lifetime_seconds or 0:g} s",
        "traffic": "Doing without isolation of trust scopes" if arm.traffic == MERGED
                   else "Mending the layout",
    }[change.changed]  # fmt: skip


def split_words(found: Experiment, gpus: int) -> str | None:
    """Of what the best arm saves beside caching off, whose it is; None where that is not known."""
    gain = found.gain
    if gain is None:
        return None
    parts = {"caching": gain.caching_seconds, "routing": gain.routing_seconds}
    if gain.has_layout:
        parts["layout"] = gain.layout_seconds
    scale = gpus / (days_told(found) or 1.0)
    digits = 2 if abs(sum(parts.values()) * scale) < _LARGE else 0
    # Rounded before they are summed, so that a reader's sum is ours.
    rounded = {name: round(seconds * scale, digits) for name, seconds in parts.items()}
    told = " + ".join(f"{name} {_with_digits(each, digits)}" for name, each in rounded.items())
    whole = _with_digits(sum(rounded.values()), digits)
    return f"Saved by {gain.best}: {told} = {whole} GPU-seconds of prefill{a_day(found)}."


def days_told(found: Experiment) -> float | None:
    """Days of traffic; None where it took less than an hour, which says nothing of a day."""
    return found.days if found.days is not None and found.days >= _HOUR_DAYS else None


def a_day(found: Experiment) -> str:
    """ " a day" where amounts are of one, else ''."""
    return "" if days_told(found) is None else " a day"


def _saves(gpu_seconds: float, found: Experiment) -> str:
    word = "costs" if gpu_seconds < 0 else "saves"
    return f"{word} {amount(abs(gpu_seconds))} GPU-seconds of prefill{a_day(found)}"


def amount(value: float) -> str:
    """Seconds; small ones keep two digits instead of becoming 0."""
    return _with_digits(value, 0 if abs(value) >= _WHOLE else 2)


def _with_digits(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}" if value else "0"


def arm_row(each: ArmResult, gpus: int, token_bytes: int | None = None) -> dict[str, object]:
    """Its figures by name; those that need a clock are left out without one, and bytes where
    nobody knows what KV weighs."""
    whole = Moved(each.loaded_tokens, each.stored_tokens)
    return {
        "arm": each.arm,
        "requests": each.requests,
        "refused_requests": each.refused_requests,
        "prompt_tokens": each.prompt_tokens,
        "cached_tokens": each.cached_tokens,
        "token_hit_ratio": each.token_hit_ratio,
        "imbalance_ratio": each.imbalance_ratio,
        "evicted_blocks": each.evicted_blocks,
        **_moved(whole, token_bytes),
        "tiers": {tier: _moved(moved, token_bytes) for tier, moved in each.moved.items()},
        **_times(each, gpus),
    }


def _moved(moved: Moved, token_bytes: int | None) -> dict[str, object]:
    tokens = asdict(moved)
    if token_bytes is None:
        return tokens
    sizes = {"loaded_bytes": moved.loaded_tokens, "stored_bytes": moved.stored_tokens}
    return tokens | {name: count * token_bytes for name, count in sizes.items()}


def group_row(each: GroupResult, gpus: int, token_bytes: int | None = None) -> dict[str, object]:
    """Figures of one group in one arm, by the same names."""
    loaded: dict[str, object] = {"loaded_tokens": each.loaded_tokens}
    if token_bytes is not None:
        loaded["loaded_bytes"] = each.loaded_tokens * token_bytes
    return {
        "arm": each.arm,
        "group": each.group,
        "requests": each.requests,
        "prompt_tokens": each.prompt_tokens,
        "cached_tokens": each.cached_tokens,
        "token_hit_ratio": each.token_hit_ratio,
        "evicted_blocks": each.evicted_blocks,
        **loaded,
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
