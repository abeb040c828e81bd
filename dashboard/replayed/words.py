"""What a replay found, in sentences: the answer first."""

from dashboard.figures.numbers import UNKNOWN, percent, seconds
from dashboard.replayed.rows import compared, gpu_seconds
from replay import gain_words
from replay.arms import MENDED, PLAIN, arm_named
from replay.counted import counted
from replay.differences import PREFILL, Difference
from replay.experiment import Experiment
from replay.gain_words import days_told

QUESTION = ("What would this traffic have met with caching off, on, and on behind other routers "
            "or in other memory?")  # fmt: skip
OF_CURVE = ("By order of the requests alone, behind round robin, in a least-recently-used cache: "
            "an upper bound at every capacity.")  # fmt: skip
OBSERVED_HINT = "hold the arm that is your router's against that first."
HOW_TOLD = ("Beneath: where it lies in 95 of 100 resamples of stretches of the traffic. Bold: it "
            "has one sign there; else no difference can be told.")  # fmt: skip


def answer(found: Experiment, gpus: int) -> str:
    """What the best router would change beside round robin, and mended prompts beside that; of arms
    that cannot be held against each other, which finds most."""
    if not any(each.requests for each in found.results):
        return "Every request is larger than a replica's memory: nothing was served."
    router = best_router(found)
    if router is None or found.gain is None:
        return _most_found(found)
    lines = []
    if router == PLAIN and any(arm.router != PLAIN for arm in found.arms):
        lines.append("Of the routers tried none brings first tokens sooner than round robin.")
    elif router != PLAIN:
        changes = _changes(found, gpus, router, PLAIN, found.gain.routing_seconds)
        lines.append(f"Adding {router} routing would {changes}.")
    if found.gain.has_layout:
        changes = _changes(found, gpus, found.gain.best, router, found.gain.layout_seconds)
        # Nothing but hashes is known of what would be moved.
        lines.append(f"Mending the layout of prompts would then, at best, {changes}.")
    elif any(arm.traffic == MENDED and arm.router == router for arm in found.arms):
        lines.append(f"Mending the layout of prompts saves no prefill beside {router}.")
    return " ".join([*(lines or [_most_found(found)]), *_sooner(found)])


def best_router(found: Experiment) -> str | None:
    """The router with the soonest first tokens; None where that is not known."""
    return None if found.gain is None else arm_named(found.gain.best).router


def base_arm(found: Experiment) -> str:
    """What arms are held against: round robin, else the first."""
    names = [each.arm for each in found.results]
    return PLAIN if PLAIN in names else names[0]


def best_arm(found: Experiment) -> str | None:
    """The arm to show beside the base: that of the gain, else the one that finds most; None where
    there is no other."""
    if found.gain is not None and found.gain.best != base_arm(found):
        return found.gain.best
    others = [each for each in found.results if each.arm != base_arm(found)]
    best = max(others, key=lambda each: each.token_hit_ratio or 0.0, default=None)
    return None if best is None else best.arm


def unit(found: Experiment) -> str:
    """What amounts are in: by the day where the requests took an hour at least."""
    return "GPU-seconds" if days_told(found) is None else "GPU-seconds a day"


def amount(found: Experiment, gpu_seconds: float) -> str:
    """ "6,755 GPU-seconds of prefill a day"."""
    return f"{number_of(gpu_seconds)} GPU-seconds of prefill{gain_words.a_day(found)}"


def number_of(value: float | None) -> str:
    """An amount, or that it is not known."""
    return UNKNOWN if value is None else gain_words.amount(value)


def beside(found: Experiment) -> list[str]:
    """What to hold the answer against."""
    if found.observed_ratio is None:
        return []
    observed = percent(found.observed_ratio)
    return [f"As it ran, {observed} of these prompt tokens were cached: {OBSERVED_HINT}"]


def limits(found: Experiment) -> list[str]:
    """What no arm can exceed, and what is in none of them."""
    lines = []
    refused = max(each.refused_requests for each in found.results)
    if refused:
        whole = max(each.refused_requests + each.requests for each in found.results)
        are = "is" if refused == 1 else "are"
        lines.append(f"{refused:,} of {counted(whole, 'request')} {are} "
                     "larger than a replica's memory: refused, and in no figure.")  # fmt: skip
    if found.bound_ratio is not None:
        lines.append(f"With prompts as they were recorded no cache could exceed "
                     f"{percent(found.bound_ratio)}: one for all replicas that never loses a "
                     "block.")  # fmt: skip
    return lines


def steps_words(found: Experiment) -> str:
    """What the figure of the gain shows."""
    return (f"{unit(found)} of prefill, from caching off to "
            f"{found.gain.best if found.gain else 'the best arm'}, the arm of the router with the "
            "soonest first tokens.")  # fmt: skip


def gpus_words(gpus: int) -> str:
    """What seconds of replicas are multiplied by."""
    return f"{counted(gpus, 'GPU')} a replica"


def difference(told: Difference | None) -> str:
    """ "-6,755 (-7,203 to -6,226)"; "–" where it is not known."""
    if told is None:
        return UNKNOWN
    change, low, high = (signed(value) for value in (told.change, told.low, told.high))
    return change if change == low == high else f"{change} ({low} to {high})"


def signed(value: float) -> str:
    """With its sign, and as many digits as tell it from 0."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 3
    return f"{value:+,.{digits}f}" if round(value, digits) else "0"


def _changes(found: Experiment, gpus: int, arm: str, base: str, prefill_seconds: float) -> str:
    """What an arm does to prefill beside another: "save … (95 %: … to …)". `prefill_seconds`: that
    it saves by the gain, for where nothing tells how surely."""
    pairs = {(each.arm, each.base): each for each in compared(found, gpus)}
    pair = pairs.get((arm, base))
    if pair is None:
        saved = gpu_seconds(found, gpus, prefill_seconds)
        return f"{_saves(found, saved)} (too few requests to say how surely)"
    told = pair.figures[PREFILL]
    if not pair.is_told(PREFILL):
        return "make no difference to prefill that can be told"
    ends = sorted(abs(end) for end in (told.low, told.high))
    interval = " to ".join(number_of(end) for end in ends)
    return f"{_saves(found, -told.change)} (95 %: {interval})"


def _saves(found: Experiment, saved: float) -> str:
    return f"{'cost' if saved < 0 else 'save'} {amount(found, abs(saved))}"


def _sooner(found: Experiment) -> list[str]:
    """What becomes of the first tokens from round robin to the best arm, where it shows."""
    results = {each.arm: each for each in found.results}
    arms = (PLAIN, found.gain.best if found.gain else PLAIN)
    before, now = (seconds((results[arm].ttft_seconds or {}).get(50)) for arm in arms)
    if before == now:
        return []
    return [f"Half of the first tokens would come within {now} instead of {before}."]


def _most_found(found: Experiment) -> str:
    """By what is found alone, where there is no clock or nothing to hold arms against."""
    known = {each.arm: each.token_hit_ratio for each in found.results}
    best, base = best_arm(found), base_arm(found)
    told = f"{percent(known[base])} of prompt tokens would be found in the cache of {base}"
    if best is None:
        return f"{told}."
    if (known[best] or 0.0) <= (known[base] or 0.0):
        return f"{told}, and no more in that of another arm."
    return f"{told}, {percent(known[best])} in that of {best}."
