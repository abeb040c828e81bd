"""The SQL that both readings of a format are made of: types, limits and words of its fields, how a
path is looked up, and the columns that are worked out of others.
"""

import json
import re
from typing import cast, get_args

from exporter.records import TIERS, HashScope, ReplicaRole, Request, TtftPoint
from exporter.sources.formats.mapping import (
    HELPERS,
    NUMBER_KINDS,
    Case,
    Field,
    Kind,
    LogFormat,
    parts_of,
)

REQUEST_COLUMNS = tuple(Request.model_fields)

# What a source may state for rows that do not say it themselves.
DEFAULTS = (
    "side", "replica", "replica_role", "provider", "model", "model_fingerprint",
    "route", "template", "template_version", "tenant", "adapter", "block_size", "cached_tokens",
)  # fmt: skip
SQL_TYPES: dict[Kind, str] = {
    "text": "VARCHAR",
    "bool": "BOOLEAN",
    "time": "VARCHAR",
    "status": "VARCHAR",
    "tokens": "DOUBLE",
    "seconds": "DOUBLE",
    "milliseconds": "DOUBLE",
    "hashes": "UBIGINT[]",
}
_TOKEN_FIELDS = (
    "attempt", "turn", "prompt_tokens", "cached_tokens", "cached_device", "cached_host",
    "cached_disk", "cached_remote", "cache_write_tokens", "cache_write_5m", "cache_write_1h",
    "cache_write_other", "output_tokens", "block_size", "choices", "total_tokens",
    "prompt_logprobs", "text_bytes",
)  # fmt: skip
_SECOND_FIELDS = ("ttft_seconds", "queue_seconds", "prefill_seconds", "e2e_seconds")
KINDS: dict[str, Kind] = {
    "ts": "time",
    "ended": "time",
    "stream": "bool",
    "status": "status",
    "block_hashes": "hashes",
    "content_hashes": "hashes",
    "piece_hashes": "hashes",
    "piece_lengths": "hashes",
    **dict.fromkeys(_TOKEN_FIELDS, "tokens"),
    **dict.fromkeys(_SECOND_FIELDS, "seconds"),
}

# Fields the careful reading reasons about, so that they are there (as NULL) in every format.
_NEEDED = (
    "ts", "request_id", "attempt", "prompt_tokens", "cached_tokens",
    *(f"cached_{tier}" for tier in TIERS),
    "cache_write_tokens", "output_tokens", "total_tokens", "choices", "prompt_logprobs",
    "block_size", "block_hashes", "ttft_seconds", "ttft_point", "e2e_seconds", "stream", "status",
    "ineligible_reason", "scope", "cache_salt", "adapter", "model_fingerprint", "ended", "skip",
    "note", "prompt_note", "text_bytes", "convention", "guessed",
)  # fmt: skip

TIERS_SUM = " + ".join(f"coalesce(cached_{tier}, 0)" for tier in TIERS)
TIERS_KNOWN = f"coalesce({', '.join(f'cached_{tier}' for tier in TIERS)}) IS NOT NULL"

# Fields that have words of ours only: any other word is as good as none.
_WORDS = {"replica_role": ReplicaRole, "hash_scope": HashScope, "ttft_point": TtftPoint}
# A chain with a hash that cannot be read is no chain; content hashes are those of a chain's blocks.
_WHOLE_CHAIN = "list_count(block_hashes) = len(block_hashes)"
WHOLE_HASHES = {
    "block_hashes": _WHOLE_CHAIN,
    "content_hashes": f"""coalesce({_WHOLE_CHAIN} AND list_count(content_hashes) = len(block_hashes)
        AND len(content_hashes) = len(block_hashes), false)""",
    "piece_hashes": "list_count(piece_hashes) = len(piece_hashes)",
    # The cut that makes pieces makes none of no length, and a length is kept in one byte.
    "piece_lengths": """coalesce(list_count(piece_hashes) = len(piece_hashes)
        AND list_count(piece_lengths) = len(piece_hashes)
        AND len(piece_lengths) = len(piece_hashes)
        AND coalesce(list_min(piece_lengths) > 0, true)
        AND coalesce(list_max(piece_lengths) < 256, true), false)""",
}

# Text longer than this is cut: labels and ids are short, and a hostile one must stay so.
TEXT_LIMIT = 256
# No prompt, answer or block has so many tokens; below it, nine billion rows can be summed.
LARGEST_COUNT = "1e9"
# No request takes so long; anything above is no number of seconds.
LONGEST_SECONDS = "1e9"
# A time before 2010 or more than a day ahead of its arrival is a unit read wrongly.
EARLIEST = "TIMESTAMP '2010-01-01'"
# Seconds, milliseconds, microseconds and nanoseconds are told apart by magnitude. A plain cast to
# TIMESTAMP drops a UTC offset instead of applying it, so text with one goes another way.
TIME = """CASE
    WHEN ts_number IS NOT NULL THEN CASE WHEN abs(ts_number) < 1e20 THEN make_timestamp(
        round(ts_number * CASE
            WHEN abs(ts_number) < 1e11 THEN 1e6
            WHEN abs(ts_number) < 1e14 THEN 1e3
            WHEN abs(ts_number) < 1e17 THEN 1
            ELSE 1e-3 END)::BIGINT) END
    WHEN suffix(ts, 'Z') THEN TRY_CAST(ts AS TIMESTAMP)
    WHEN regexp_matches(ts, ':\\d\\d([.,]\\d+)?\\s*(Z|z|UTC|[+-]\\d\\d(:?\\d\\d)?)$')
        THEN make_timestamp(epoch_us(TRY_CAST(ts AS TIMESTAMPTZ)))
    ELSE TRY_CAST(ts AS TIMESTAMP) END"""

# Casting every ISO text to a number in vain would cost more than looking at its last letter.
TS_NUMBER = "CASE WHEN NOT suffix({ts}, 'Z') THEN TRY_CAST({ts} AS DOUBLE) END"

STATUS = """CASE
    WHEN status IS NULL OR status IN ('200', 'ok', 'success', 'completed') THEN 'ok'
    WHEN status IN ('499', '0', 'cancelled', 'canceled', 'aborted') THEN 'cancelled'
    WHEN status IN ('incomplete', 'in_progress', 'queued') THEN 'incomplete'
    WHEN TRY_CAST(status AS INTEGER) BETWEEN 200 AND 299 THEN 'ok'
    ELSE 'error' END"""


_ELIGIBLE = """CASE WHEN block_size > 0
    THEN floor((prompt_tokens - 1) / block_size) * block_size ELSE prompt_tokens END"""
# Columns worked out from the others, the same in both readings.
COMPUTED = {
    "side": "CASE WHEN side IN ('gateway', 'engine') THEN side END",
    "arrived": "$arrived",
    "source": "$source",
    "ttft_point": "CASE WHEN ttft_seconds IS NOT NULL THEN ttft_point END",
    "outcome": f"""CASE WHEN cached_tokens IS NULL OR prompt_tokens IS NULL THEN 'unknown'
        WHEN cached_tokens = 0 THEN 'miss'
        WHEN cached_tokens >= $hit_threshold_ratio * ({_ELIGIBLE}) THEN 'hit'
        ELSE 'partial' END""",
    # A row may state the scope as it was hashed where the salt was known, with the same key.
    "scope": """CASE WHEN regexp_full_match(scope, '[0-9a-f]{16}') THEN scope
        WHEN scope IS NOT NULL THEN left(sha256($key || scope), 16)
        WHEN coalesce(cache_salt, adapter, model_fingerprint) IS NOT NULL THEN left(
        sha256($key || to_json([cache_salt, adapter, model_fingerprint])), 16) END""",
}


def fields_of(log_format: LogFormat) -> dict[str, Field]:
    """The format's fields by name; a name that is not in the vocabulary is a mistake in it."""
    fields = {entry.name: entry for entry in log_format.fields}
    unknown = set(fields) - set(REQUEST_COLUMNS) - set(HELPERS)
    if unknown:
        raise ValueError(f"format {log_format.name} maps unknown fields {sorted(unknown)}")
    numbers = {p for f in log_format.fields if f.kind in NUMBER_KINDS for p in f.terms()}
    words = {case.path for entry in log_format.fields for case in entry.cases}
    # As a word a number has several spellings; traces are read with care, as they stand.
    if (both := numbers & words) and not log_format.relative_time:
        raise ValueError(f"format {log_format.name} reads {sorted(both)} as number and as word")
    return fields


def request_columns(log_format: LogFormat) -> list[str]:
    """The columns of `requests` a format can fill, in order; the others stay NULL."""
    filled = {*COMPUTED, *carried_names(log_format), "prompt_basis", "flags"}
    return [name for name in REQUEST_COLUMNS if name in filled]


def carried_names(log_format: LogFormat) -> list[str]:
    """Every field that the careful reading carries for this format."""
    return list(dict.fromkeys([*_NEEDED, *DEFAULTS, *mapped_names(log_format)]))


def mapped_names(log_format: LogFormat) -> list[str]:
    """The fields a format gives values for."""
    constants = [name for name, _ in log_format.constants]
    named = [naming.name for naming in log_format.names]
    return [*(entry.name for entry in log_format.fields), *constants, *named]


def named(log_format: LogFormat, name: str, mapped: str) -> str:
    """What a field is called by the rules of the user, else as the format reads it."""
    for naming in log_format.names:
        if naming.name == name:
            return naming.value.replace("<mapped>", mapped)
    return mapped


def parsed(log_format: LogFormat, numbers: str | None = None) -> str:
    """The typed parse of each line; `numbers` overrides the type numbers are read as."""
    structure = json.dumps(_structure(log_format, numbers))
    return f"SELECT *, TRY(json_transform(line, '{structure}')) AS body FROM <input>"


def _structure(log_format: LogFormat, numbers: str | None) -> dict[str, object]:
    """The typed shape of a row, as `json_transform` reads it."""
    tree: dict[str, object] = {}
    for entry in log_format.fields:
        kind: object = ["UBIGINT"] if entry.kind == "hashes" else SQL_TYPES[entry.kind]
        if numbers and entry.kind in NUMBER_KINDS:
            kind = numbers
        for path in entry.terms():
            _place(tree, path, kind)
    for entry in log_format.fields:
        for case in entry.cases:
            _place(tree, case.path, "VARCHAR")
        if entry.without is not None:
            _place(tree, entry.without, "VARCHAR")
    return tree


def _place(tree: dict[str, object], path: str, kind: object) -> None:
    """Puts a leaf into the shape; what stands there already stays."""
    node = tree
    *parents, leaf = parts_of(path)
    for parent in parents:
        node = cast(dict[str, object], node.setdefault(parent, {}))
    node.setdefault(leaf, kind)


def unknown(name: str) -> str:
    """NULL of the type the field is stored as."""
    kind = KINDS.get(name, "text")
    return f"NULL::{'BIGINT' if kind == 'tokens' else SQL_TYPES[kind]}"


def first_value(entry: Field, *, as_text: bool = False) -> str:
    """SQL of the first path that holds a value; `as_text` where numbers were read as text."""
    options = [_case(case, entry.kind) for case in entry.cases]
    for path in entry.paths:
        first, *rest = re.split(r" ([+-]) ", path)
        number = "TRY_CAST({} AS DOUBLE)" if rest else "{}"
        value = number.format(value_at(first))
        for sign, term in zip(rest[::2], rest[1::2], strict=True):
            value += f" {sign} {number.format(value_at(term))}"
        options.append(f"({value})::VARCHAR" if rest and as_text else value)
    found = options[0] if len(options) == 1 else f"coalesce({', '.join(options)})"
    if entry.without is None:
        return found
    front = f"{value_at(entry.without)}::VARCHAR || '/'"
    behind = f"substr({found}, length({front}) + 1)"
    return f"CASE WHEN starts_with({found}, {front}) THEN {behind} ELSE {found} END"


def _case(case: Case, kind: Kind) -> str:
    value = _quoted(case.value) + ("::BOOLEAN" if kind == "bool" else "")
    words = ", ".join(_quoted(word) for word in case.words)
    found = f"{value_at(case.path)}::VARCHAR {'NOT IN' if case.other_than else 'IN'} ({words})"
    return f"CASE WHEN {found} THEN {value} END"


def value_at(path: str) -> str:
    """SQL of what a path holds in the parsed line; a number is itself."""
    if path.isdigit():
        return path
    return "body." + ".".join(f'"{part}"' for part in parts_of(path))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def in_words(name: str, value: str) -> str:
    """SQL of a text that is one of our words where the field has only those."""
    if name not in _WORDS:
        return value
    words = ", ".join(_quoted(word) for word in get_args(_WORDS[name]))
    return f"CASE WHEN {value} IN ({words}) THEN {value} END"


def constant(name: str, value: str) -> str:
    """SQL of a value every row of a format has, in the field's type."""
    kind = KINDS.get(name, "text")
    return f"{_quoted(value)}::BIGINT" if kind == "tokens" else _quoted(value)
