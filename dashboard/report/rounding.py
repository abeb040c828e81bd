"""Rounds a report's fractions, so that the same store and week give the same bytes.

Sums of fractions depend in their last bits on the order in which threads add them. Nine digits
are far more than any figure here is known to.
"""

from dataclasses import fields, is_dataclass
from typing import TypeVar, cast

DIGITS = 9
T = TypeVar("T")


def rounded(value: T) -> T:
    """The same with every fraction to DIGITS significant digits, inside dataclasses and tuples."""
    return cast(T, _rounded(value))


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, tuple):
        return tuple(_rounded(each) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{each.name: _rounded(getattr(value, each.name))
                              for each in fields(value)})  # fmt: skip
    return value
