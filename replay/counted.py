"""Counted things in words, so that one is not "1 requests"."""


def counted(number: float | None, one: str, many: str | None = None) -> str:
    """ "1 request", "3,000 requests"; with `many` where that is not `one` and an s: "1 row is",
    "3 rows are". None, which is not known, is a dash and many."""
    several = f"{one}s" if many is None else many
    if number is None:
        return f"– {several}"
    return f"{number:,.0f} {one if number == 1 else several}"
