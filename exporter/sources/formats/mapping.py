"""What a log format is: a typed table from paths in a row to fields of a `Request`.

A format is data. `careful.py` and `quick.py` turn the table into the SQL that files, HTTP batches
and followed logs all run, so a new format adds a table, not code. Only where rows are no flat JSON
objects, one a line, a format also says how to make them so (`reshape`, `documents`).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Literal

# What stands in the row, and so how it is read: `time` is ISO text or an epoch in seconds to
# nanoseconds, `status` an HTTP code or a word, `tokens` a whole number that is not negative,
# `hashes` a list of unsigned integers.
Kind = Literal["text", "bool", "time", "status", "tokens", "seconds", "milliseconds", "hashes"]

# How the format counts the prompt. `inclusive` is its specification, `assumed` its habit,
# which a row can disprove; `exclusive` leaves cached and written tokens out of the prompt.
Basis = Literal["inclusive", "assumed", "exclusive"]

NUMBER_KINDS: tuple[Kind, ...] = ("tokens", "seconds", "milliseconds")

# Fields that shape others but are not stored themselves: answers asked for one prompt (n);
# prompt + output; a request that skips the cache look-up; the salt, kept only as a keyed hash;
# the time of the end, from which the start follows; why a row is none of ours and is set aside;
# a flag of the format's own; what is to be said of the names of a prompt; any word where a row of
# an `assumed` format names its counts by a convention that defines them as inclusive; any word
# where its counts are a guess of the log's.
HELPERS = (
    "choices", "total_tokens", "prompt_logprobs", "cache_salt", "ended", "skip", "note",
    "prompt_note", "convention", "guessed",
)  # fmt: skip

Row = Mapping[str, object]


@dataclass(frozen=True)
class Case:
    """A field is `value` where the text at `path` is one of `words`, or with `other_than`
    where there is a text and it is none of them."""

    value: str
    path: str
    words: tuple[str, ...]
    other_than: bool = False


@dataclass(frozen=True)
class Field:
    """A field of `Request` (or a helper) and the paths in a row that may hold it.

    Paths are tried in order; the first that holds a value wins. `usage.prompt_tokens`
    descends into objects, `"a.b".c` into a key with a dot; `a + b` and `a - b` calculate with
    numbers, known only where all are; a term of digits is itself. `cases` come before paths.
    With `without`, the value at that path and a slash are taken off the front.
    """

    name: str
    kind: Kind
    paths: tuple[str, ...]
    cases: tuple[Case, ...] = ()
    without: str | None = None

    def terms(self) -> Iterator[str]:
        """Every single path named, sums taken apart."""
        for path in self.paths:
            yield from (term for term in re.split(r" [+-] ", path) if not term.isdigit())


def parts_of(path: str) -> list[str]:
    """The keys of a path: `a."b.c"` has the two keys `a` and `b.c`."""
    return [quoted or plain for quoted, plain in re.findall(r'"([^"]+)"|([^."]+)', path)]


@dataclass(frozen=True)
class Naming:
    """How rules of the user name a field: SQL over the `line` of a row, in which `<mapped>`
    stands for what the format itself reads. See `names.py`."""

    name: str
    value: str


@dataclass(frozen=True)
class PromptPlaces:
    """Where rows of a format may carry the prompt.

    `token_ids`: keys of a list of ids as the engine had them. `texts`: keys of a whole prompt as
    text. `requests`: bodies as they are sent to a server of OpenAI's protocol, each put together
    from these paths, the first of which wins ("" is the row itself).
    """

    token_ids: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    requests: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class LogFormat:
    """One log format.

    `signature` tells the format from others: a row is of it when every group has at least
    one path that holds a value. `bare` are keys that tell the format though they hold null,
    where no row has a signature. `constants` are field values every row of the format has.
    `merges_lines` is set where one response may be written as several lines: then the last
    and largest usage of an id wins instead of the first row. `bridges_calls` is set where one
    call may be written twice under two ids, as asked for and as the call it was turned into:
    the second is kept and flagged.

    `relative_time` is the unit of times that count from the start of a trace. `reshape` turns
    one line into rows the table can address; it raises ValueError for a line it cannot read,
    which is then rejected as it stands. `documents` does so for a whole input that is no
    sequence of lines (raising PrefixscopeError), which can therefore not be followed while it
    grows. `sniff` recognises such input by its first bytes and says by what. `line_limit_bytes`
    is set where one line holds so many rows that it is longer than lines usually may be.
    `prompts` says where rows carry the prompt itself, which becomes names as a row is read.
    `fitted` is the format as the first bytes of an input tell it, where a file does not say how
    many tokens its blocks have.
    `names` is no part of a table: it is what the rules of the user add for one source.
    """

    name: str
    title: str
    versions: str
    basis: Basis
    signature: tuple[tuple[str, ...], ...]
    fields: tuple[Field, ...]
    constants: tuple[tuple[str, str], ...] = ()
    bare: tuple[str, ...] = ()
    merges_lines: bool = False
    bridges_calls: bool = False
    relative_time: Literal["seconds", "milliseconds"] | None = None
    reshape: Callable[[str], Iterable[Row]] | None = None
    documents: Callable[[BinaryIO], Iterable[Row | str]] | None = None
    sniff: Callable[[str], str | None] | None = None
    names: tuple[Naming, ...] = ()
    line_limit_bytes: int = 0
    prompts: PromptPlaces | None = None
    fitted: Callable[[bytes], "LogFormat"] | None = None


def text(name: str, *paths: str, cases: tuple[Case, ...] = (), without: str | None = None) -> Field:
    return Field(name, "text", paths, cases, without)


def tokens(name: str, *paths: str) -> Field:
    return Field(name, "tokens", paths)


def seconds(name: str, *paths: str) -> Field:
    return Field(name, "seconds", paths)


def milliseconds(name: str, *paths: str) -> Field:
    return Field(name, "milliseconds", paths)


def time(name: str, *paths: str) -> Field:
    return Field(name, "time", paths)


def flag(name: str, *paths: str, cases: tuple[Case, ...] = ()) -> Field:
    return Field(name, "bool", paths, cases)


def status(*paths: str, cases: tuple[Case, ...] = ()) -> Field:
    return Field("status", "status", paths, cases)


def case(value: str, path: str, *words: str) -> Case:
    return Case(value, path, words)


def unless(value: str, path: str, *words: str) -> Case:
    return Case(value, path, words, other_than=True)


def hashes(name: str, *paths: str) -> Field:
    return Field(name, "hashes", paths)


# Under this key the names of a prompt stand in a row, as they were made when it was read.
NAMED_PROMPT = "prefixscope_prompt"


def prompt_fields(*stated: str) -> tuple[Field, ...]:
    """Names of a prompt that were made here; those `stated` a row may also give by itself."""
    kinds: dict[str, Kind] = {
        "block_hashes": "hashes", "content_hashes": "hashes", "piece_hashes": "hashes",
        "piece_lengths": "hashes", "text_bytes": "tokens", "hash_scope": "text",
        "hash_key_id": "text", "prompt_note": "text",
    }  # fmt: skip
    return tuple(
        Field(name, kind, (f"{NAMED_PROMPT}.{name}", *((name,) if name in stated else ())))
        for name, kind in kinds.items()
    )
