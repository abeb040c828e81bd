"""Why the ratio changed, in words: rows of the question `explain`, largest part first.

Knows neither Streamlit nor a terminal, so that page and command line say the same.
"""

from collections.abc import Callable

from dashboard.figures.numbers import percent, points, whole
from dashboard.figures.rows import Row, Rows, number

NOTHING_TO_COMPARE = "Nothing to compare: one of the two windows has no reported prompt tokens."
MOST_NAMED = 3
# A part below a twentieth of a point is not worth a clause.
LEAST_RATIO = 0.0005


def change_words(rows: Rows) -> str:
    """The change of the whole, and what it cost."""
    if not rows or number(rows[0], "change_tokens") is None:
        return NOTHING_TO_COMPARE
    prompt, cached, before, cached_before = (
        sum(number(row, column) or 0.0 for row in rows)
        for column in (
            "reported_prompt_tokens", "cached_tokens",
            "reported_prompt_tokens_before", "cached_tokens_before",
        )
    )  # fmt: skip
    tokens = sum(number(row, "change_tokens") or 0.0 for row in rows)
    more = "more" if tokens < 0 else "fewer"
    return (
        f"Token hit ratio {percent(cached / prompt)}, {percent(cached_before / before)} before: "
        f"{points(change_ratio(rows))}, {whole(abs(tokens))} tokens {more} computed than at the "
        "earlier ratio."
    )


def part_words(by: str, rows: Rows, name: Callable[[object], str]) -> str:
    """The largest parts; '' where nothing changed. `name` makes a value safe to show."""
    named = [row for row in rows[:MOST_NAMED] if _matters(row)]
    if not named:
        return ""
    rest = rows[len(named) :]
    told = "; ".join(
        f"{name(row[by])} {points(row['change_ratio'])} ({_why(row)})" for row in named
    )
    others = f"; {len(rest):,} more together {points(change_ratio(rest))}" if rest else ""
    return f"By {by}: {told}{others}."


def change_ratio(rows: Rows) -> float:
    """The change of the ratio over all rows."""
    return sum(number(row, "change_ratio") or 0.0 for row in rows)


def _matters(row: Row) -> bool:
    return abs(number(row, "change_ratio") or 0.0) >= LEAST_RATIO


def _why(row: Row) -> str:
    """The larger of its two parts, with the figures that made it."""
    ratio, ratio_before = number(row, "token_hit_ratio"), number(row, "token_hit_ratio_before")
    share, share_before = (
        percent(number(row, f"traffic_share_ratio{when}")) for when in ("", "_before")
    )
    if row["seen"] == "appeared":
        return f"new: {share} of the traffic at {percent(ratio)}"
    if row["seen"] == "vanished":
        return f"gone: was {share_before} of the traffic at {percent(ratio_before)}"
    within, mix = (abs(number(row, part) or 0.0) for part in ("within_tokens", "mix_tokens"))
    if within >= mix:
        return f"its ratio {percent(ratio_before)} → {percent(ratio)}"
    return f"its share of the traffic {share_before} → {share}, at {percent(ratio_before)}"
