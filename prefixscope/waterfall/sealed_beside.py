"""What was named when minutes were sealed, beside what all rows at once tell: by how much they
differ."""

from prefixscope.chain_window import Window
from prefixscope.client import Answers
from prefixscope.waterfall.attribution import Sums
from replay.causes import CAUSES

# Of rows without a chain, which are not sealed, `attribute` says these.
_NOT_COMPARED = ("rounding", "ineligible", "unexplained")
_COMPARED = tuple(name for name in CAUSES if name not in _NOT_COMPARED)


def beside_sealed(answers: Answers, window: Window, total: Sums) -> str | None:
    """A line for people; None where nothing of the window is sealed.

    A window counts by whole minutes there. What came late is in the one and not in the other, and
    what is not sealed yet differs from nothing: then no causes are compared.
    """
    (sealed,) = answers.ask("waterfall", window.params()).to_pylist()
    if not sealed["requests"]:
        return None
    whole = total.prompt_tokens - total.chainless_prompt_tokens
    if (waiting := whole - sealed["prompt_tokens"] - sealed["late_prompt_tokens"]) > 0:
        return (
            f"Minute by minute, two minutes late (missed_tokens), {waiting:,} of these {whole:,} "
            "prompt tokens are not named yet; with --until before them the rest is compared"
        )
    more = {
        name: sealed[f"{name}_tokens"] - total.causes[name]
        for name in _COMPARED
        if sealed[f"{name}_tokens"] != total.causes[name]
    }
    named = sum(total.causes[name] for name in _COMPARED)
    late = sealed["late_prompt_tokens"]
    beside = f"; {late:,} prompt tokens came late and were not named then" if late else ""
    if not more:
        return f"The same was named minute by minute, two minutes late (missed_tokens){beside}"
    differences = ", ".join(f"{name} {tokens:+,}" for name, tokens in more.items())
    return (
        f"Minute by minute, two minutes late (missed_tokens), these {named:,} tokens were named "
        f"otherwise by {differences}{beside}"
    )
