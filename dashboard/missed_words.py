"""The waterfall of missed tokens in a sentence, for pages and the weekly report alike."""

from datetime import timedelta

from dashboard.figures.cause_words import MEANINGS, tokens_of
from dashboard.figures.numbers import percent, span, whole
from dashboard.figures.rows import Row, number
from replay.causes import CAUSES

_MOST_NAMED = 3


def sentence(row: Row, mark: str = "") -> str:
    """What the window comes to, its largest causes named. `row` is of `waterfall` and has prompt
    tokens; `mark` stands around what matters most: "**" where Markdown is read."""
    prompt = number(row, "prompt_tokens") or 0.0
    found = sorted(((tokens_of(row, cause), cause) for cause in CAUSES), reverse=True)
    most = [
        f"{mark}{percent(tokens / prompt)} {cause}{mark} ({MEANINGS[cause].says})"
        for tokens, cause in found[:_MOST_NAMED]
        if tokens
    ]
    cached = percent((number(row, "cached_tokens") or 0.0) / prompt)
    missed = f" Missed most: {', '.join(most)}." if most else " Nothing missed."
    return f"Of {whole(prompt)} prompt tokens {mark}{cached} were cached{mark}.{missed}"


def caution(row: Row) -> str:
    """What the figures leave out, and what may only be older than what is remembered."""
    said = [f"{percent(number(row, 'explained_ratio'))} of reported prompt tokens have causes"]
    for column, words in (
        ("chainless_prompt_tokens", "without a chain"),
        ("late_prompt_tokens", "came after their minute was sealed"),
        ("unreported_prompt_tokens", "do not report cached tokens"),
    ):
        if tokens := number(row, column):
            said.append(f"{whole(tokens)} tokens {words}")
    if number(row, "new_warming_tokens"):
        horizon = number(row, "horizon_seconds")
        # A window that begins with the log has nothing known before it.
        remembered = f" ({span(timedelta(seconds=horizon))} are known)" if horizon else ""
        said.append(f"the log is young{remembered}: what counts as new may be older than the log")
    return "; ".join(said) + "."
