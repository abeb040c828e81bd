"""Numbers as people read them: one place, so that pages and charts cannot differ.

None always reads as "–" (not known or no traffic); it is never printed as 0.
"""

from datetime import timedelta

from queries.on_call.words import UNKNOWN, points, whole

__all__ = [
    "UNKNOWN", "duration", "gib", "percent", "points", "rate", "relative", "seconds",
    "signed_percent", "span", "whole",
]  # fmt: skip


def percent(ratio: float | None) -> str:
    """A ratio of 0 to 1 with one decimal; what is not quite 0 or all never rounds to it."""
    if ratio is None:
        return UNKNOWN
    if 0 < ratio < 0.0005:
        return "< 0.1 %"
    if 0.9995 <= ratio < 1:
        return "> 99.9 %"
    return f"{ratio * 100:.1f} %"


def rate(per_second: float | None) -> str:
    """Tokens a second; small rates keep two digits instead of becoming 0."""
    if per_second is None:
        return UNKNOWN
    digits = 0 if per_second >= 10 or per_second == 0 else 2
    return f"{per_second:,.{digits}f} tokens/s"


def seconds(value: float | None) -> str:
    """A latency: milliseconds below one second, three digits above."""
    if value is None:
        return UNKNOWN
    if value < 0.9995:
        return f"{value * 1000:.0f} ms" if value >= 0.01 else f"{value * 1000:.1f} ms"
    if value < 9.995:
        return f"{value:.2f} s"
    return f"{value:,.1f} s" if value < 99.95 else f"{value:,.0f} s"


def gib(size_bytes: float | None) -> str:
    """Memory in GiB; small amounts keep two digits instead of becoming 0."""
    if size_bytes is None:
        return UNKNOWN
    size = size_bytes / 2**30
    return f"{size:,.2f} GiB" if size < 100 else f"{size:,.0f} GiB"


def duration(value: float | None) -> str:
    """An age or a gap, from milliseconds to days, in at most two units."""
    if value is None or value < 120:
        return seconds(value)
    return span(timedelta(seconds=round(value)))


def relative(now: float | None, before: float | None) -> float | None:
    """Change of a magnitude as a share of what it was; None without a base."""
    if now is None or before is None or before <= 0:
        return None
    return now / before - 1


def signed_percent(change: float | None) -> str:
    """A relative change in whole percent, with its sign."""
    if change is None:
        return UNKNOWN
    change_percent = round(change * 100)
    return f"{change_percent:+,} %" if change_percent else "0 %"


def span(length: timedelta) -> str:
    """A length of time in its two largest units: "24 h", "2 d 4 h", "90 s"."""
    total = int(length.total_seconds())
    if total < 120:
        return f"{total} s"
    parts = []
    units = (("d", 86400), ("h", 3600), ("min", 60))
    for unit, size in units if total >= 2 * 86400 else units[1:]:
        amount, total = divmod(total, size)
        if amount:
            parts.append(f"{amount} {unit}")
    return " ".join(parts[:2])
