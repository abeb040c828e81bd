"""What a log format is: a typed table from paths in a row to fields of a `Request`.

A format is data. `compile.py` turns the table into one SQL that files, HTTP batches and
followed logs all run, so a new format adds a table, not code.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

# What stands in the row, and so how it is read: `time` is ISO text or an epoch in seconds to
# nanoseconds, `status` an HTTP code or a word, `tokens` a whole number that is not negative,
# `hashes` a list of unsigned integers.
Kind = Literal["text", "bool", "time", "status", "tokens", "seconds", "milliseconds", "hashes"]

# How the format counts the prompt. `inclusive` is its specification, `assumed` its habit,
# which a row can disprove; `exclusive` leaves cached and written tokens out of the prompt.
Basis = Literal["inclusive", "assumed", "exclusive"]

NUMBER_KINDS: tuple[Kind, ...] = ("tokens", "seconds", "milliseconds")

# Fields that shape others but are not stored themselves: answers asked for one prompt (n);
# prompt + output; a request that skips the cache look-up; the salt, kept only as a keyed hash.
HELPERS = ("choices", "total_tokens", "prompt_logprobs", "cache_salt")


@dataclass(frozen=True)
class Field:
    """A field of `Request` (or a helper) and the paths in a row that may hold it.

    Paths are tried in order; the first that holds a value wins. `usage.prompt_tokens`
    descends into objects; `a + b` is the sum of two numbers, known only where both are.
    """

    name: str
    kind: Kind
    paths: tuple[str, ...]

    def terms(self) -> Iterator[str]:
        """Every single path named, sums taken apart."""
        for path in self.paths:
            yield from path.split(" + ")


@dataclass(frozen=True)
class LogFormat:
    """One log format.

    `signature` tells the format from others: a row is of it when every group has at least
    one path that holds a value. `constants` are field values every row of the format has.
    `merges_lines` is set where one response may be written as several lines: then the last
    and largest usage of an id wins instead of the first row.
    """

    name: str
    title: str
    versions: str
    basis: Basis
    signature: tuple[tuple[str, ...], ...]
    fields: tuple[Field, ...]
    constants: tuple[tuple[str, str], ...] = ()
    merges_lines: bool = False


def text(name: str, *paths: str) -> Field:
    return Field(name, "text", paths)


def tokens(name: str, *paths: str) -> Field:
    return Field(name, "tokens", paths)


def seconds(name: str, *paths: str) -> Field:
    return Field(name, "seconds", paths)


def milliseconds(name: str, *paths: str) -> Field:
    return Field(name, "milliseconds", paths)


def time(name: str, *paths: str) -> Field:
    return Field(name, "time", paths)


def flag(name: str, *paths: str) -> Field:
    return Field(name, "bool", paths)


def status(*paths: str) -> Field:
    return Field("status", "status", paths)


def hashes(name: str, *paths: str) -> Field:
    return Field(name, "hashes", paths)
