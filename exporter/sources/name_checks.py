"""What a naming rule may not be: too large, too slow, unreadable, or a way for secrets out."""

import csv
import io
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb

PATTERN_LIMIT = 512
NAME_LIMIT = 256
# How much of a value a pattern looks at, in characters; names are shorter than that.
SUBJECT_LIMIT = 1024
# How long a pattern may take on a text that long. Usual ones take some microseconds.
PATTERN_SECONDS = 0.02
LOOKUP_BYTES = 1 << 20
LOOKUP_ENTRIES = 10_000
_PATH_LIMIT = 256
_TRIALS = 3

# Last words of a header or path whose value opens a door.
_SECRETS = {
    "authorization", "proxy-authorization", "cookie", "set-cookie", "api-key", "apikey", "token",
    "password", "secret", "credential", "credentials", "x-amz-security-token",
    "ocp-apim-subscription-key",
}  # fmt: skip
_SECRET_ENDS = ("-api-key", "-apikey", "-token", "-password", "-secret", "-authorization")
# Last words of a path that hold what people wrote, or what a model answered.
_PROMPTS = {
    "messages", "message", "content", "contents", "prompt", "prompts", "input", "inputs", "output",
    "outputs", "completion", "completions", "response", "answer", "choices", "parts", "text",
    "system", "instructions", "system-instruction", "systeminstruction", "arguments", "tools",
    "body", "request-body", "response-body", "payload", "reasoning", "thinking", "query",
    "question", "input-ids", "output-ids", "token-ids", "prompt-token-ids",
}  # fmt: skip

_STEP = r'(?:"[^"\\\x00-\x1f]+"|[^."\[\]\\\s]+)'
_INDEX = r"(?:\[(?:\*|\d{1,6})\])*"
_PATH = re.compile(rf"{_STEP}{_INDEX}(?:\.{_STEP}{_INDEX})*")
_PARTS = re.compile(rf"({_STEP})({_INDEX})")


@dataclass(frozen=True)
class Step:
    """A key of an object, and then maybe a place in the list it holds: `[*]`, `[0]`."""

    key: str
    indexes: str


def steps_of(path: str) -> list[Step]:
    """The keys of a path, outermost first. Raises ValueError for what is no path."""
    if len(path) > _PATH_LIMIT or path.startswith("$") or not _PATH.fullmatch(path):
        raise ValueError(
            f"field {path[:_PATH_LIMIT]!r} is no path: write keys with dots between, [*] for every "
            'element of a list, and quotes around a key with a dot, as in a."b.c".d[*]'
        )
    return [Step(key.strip('"'), indexes) for key, indexes in _PARTS.findall(path)]


def forbidden(key: str) -> str | None:
    """Why the value of a key never becomes a name as it is; None where it may."""
    word = key.lower().replace("_", "-")
    if word in _SECRETS or word.endswith(_SECRET_ENDS):
        return "is a secret that must not be kept"
    if holds_prompts(key):
        return "holds prompt text, which is never kept"
    return None


def holds_prompts(key: str) -> bool:
    """Does a key hold what people wrote or a model answered? The last word of a dotted key,
    such as gen_ai.input.messages, says what it holds."""
    return key.lower().replace("_", "-").rpartition(".")[2] in _PROMPTS


def check_pattern(pattern: str) -> None:
    """Raises ValueError for a pattern that is too long or too slow, or that RE2 cannot read.

    RE2 takes time in proportion to the text and to the size of the pattern, whatever the text;
    the text is bounded, and so what a pattern may take at all is found out by a trial.
    """
    if len(pattern) > PATTERN_LIMIT:
        raise ValueError(f"the pattern is longer than {PATTERN_LIMIT} characters: shorten it")
    with duckdb.connect() as connection:
        try:
            connection.execute("SELECT regexp_extract('', $pattern)", {"pattern": pattern})
        except duckdb.Error as error:
            reason = str(error).partition("Error: ")[2]
            raise ValueError(
                f"RE2 cannot read the pattern ({reason}): look-around and back-references do not "
                "exist there, and quotes in YAML are best single ones"
            ) from error
        if not _has_one_group(connection, pattern):
            raise ValueError(
                "the pattern needs exactly one group (…), which is the name: write (?:…) for others"
            )
        slowest = max(_seconds(connection, pattern, text) for text in _hostile_texts(pattern))
    if slowest > PATTERN_SECONDS:
        raise ValueError(
            f"the pattern takes {slowest * 1000:.0f} ms for a text of {SUBJECT_LIMIT} characters, "
            f"allowed are {PATTERN_SECONDS * 1000:.0f}: nest fewer repetitions like {{0,100}}"
        )


def _has_one_group(connection: duckdb.DuckDBPyConnection, pattern: str) -> bool:
    """RE2 itself counts: it refuses to name more groups than there are."""
    named = []
    for names in (["a"], ["a", "b"]):
        literal = "'" + pattern.replace("'", "''") + "'"
        try:
            connection.execute(f"SELECT regexp_extract('', {literal}, {names})")
            named.append(True)
        except duckdb.BinderException:
            named.append(False)
    return named == [True, False]


def _hostile_texts(pattern: str) -> list[str]:
    """Texts that keep many ways to go on open: one letter, a long one, and the pattern's own."""
    return [(text * SUBJECT_LIMIT)[:SUBJECT_LIMIT] for text in ("a", "é", "a1 ", pattern)]


def _seconds(connection: duckdb.DuckDBPyConnection, pattern: str, text: str) -> float:
    """The best of some trials: others may be using the machine."""
    best = float("inf")
    for _ in range(_TRIALS):
        started = time.perf_counter()
        connection.execute(
            "SELECT regexp_extract($text, $pattern)", {"text": text, "pattern": pattern}
        )
        best = min(best, time.perf_counter() - started)
    return best


def read_lookup(file: Path) -> tuple[tuple[str, str], ...]:
    """Value and name pairs of a file. Raises ValueError that says what to change."""
    try:
        with file.open("rb") as stream:
            data = stream.read(LOOKUP_BYTES + 1)
    except OSError as error:
        raise ValueError(
            f"lookup {file.absolute()} cannot be read: {error.strerror}; a path counts from the "
            "folder prefixscope is started in"
        ) from error
    if len(data) > LOOKUP_BYTES:
        raise ValueError(f"lookup {file} is larger than {LOOKUP_BYTES >> 20} MiB")
    try:
        text = data.decode("utf-8-sig")
        pairs = _json_pairs(text) if file.suffix.lower() == ".json" else _csv_pairs(text)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"lookup {file} is not UTF-8 text in rows: {error}") from error
    except ValueError as error:
        raise ValueError(f"lookup {file}: {error}") from error
    if len(pairs) > LOOKUP_ENTRIES:
        raise ValueError(f"lookup {file} has {len(pairs):,} entries, allowed: {LOOKUP_ENTRIES:,}")
    if not all(key.isprintable() and name.isprintable() for key, name in pairs.items()):
        raise ValueError(f"lookup {file} holds a character that cannot be printed")
    if any(len(name) > NAME_LIMIT for name in pairs.values()):
        raise ValueError(f"lookup {file}: a name is longer than {NAME_LIMIT} characters")
    return tuple(pairs.items())


def _json_pairs(text: str) -> dict[str, str]:
    """An object of value: name."""
    try:
        value = json.loads(text, object_pairs_hook=_once_each)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} (line {error.lineno})") from error
    except RecursionError as error:
        raise ValueError("nested beyond reason") from error
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value.values()):
        raise ValueError('expected one object of texts, as in {"value": "name"}')
    return {key.strip(): name.strip() for key, name in value.items() if name.strip()}


def _once_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object as it is, unless a key stands in it twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a value is given twice: keep one of its names")
    return found


def _csv_pairs(text: str) -> dict[str, str]:
    """Rows of value,name; a first row `value,name` is a heading."""
    pairs: dict[str, str] = {}
    reader = csv.reader(io.StringIO(text), strict=True)
    for row in reader:
        cells = [cell.strip() for cell in row]
        if not any(cells) or (not pairs and cells == ["value", "name"]):
            continue
        if len(cells) != 2 or not all(cells):
            raise ValueError(f"line {reader.line_num}: expected two columns, value,name")
        if pairs.get(cells[0], cells[1]) != cells[1]:
            raise ValueError(f"line {reader.line_num}: its value has another name above")
        pairs[cells[0]] = cells[1]
    return pairs
