"""Compiles a format's table into the SQL that reads its rows.

Two readings of one meaning. The *careful* one (here) handles everything a row can get wrong,
in steps; the *quick* one (`quick.py`) takes only rows that need no judgement and calls every
other row doubtful, so that it is short. A batch is read quickly, its doubtful rows carefully;
a test holds the two to the same answers.

    parsed    one typed parse of the line, numbers as text; no JSON parses to NULL
    found     per field, the first path that holds a value
    cleaned   numbers that can be used, times as UTC, words of ours; the rest is NULL and named
    stated    cached tokens as the row states them, tiers and number of answers considered
    counted   prompt tokens made inclusive, cached tokens made possible, and the basis
    judged    TTFT that really is one, scope, flags, and the reason to reject, if any
    columns   the columns of `requests`, in order

Each step selects from `<input>`, the step before it. Parameters (all bound): source, arrived,
began (when taking in the input began), earliest (rows before it are refused), key (secret for
keyed hashes), hit_threshold_ratio, fingerprint (of the file; NULL over HTTP) and one `default_*`
per field of `DEFAULTS`.
"""

import json
import re
from functools import cache
from typing import cast, get_args

from exporter.records import TIERS, HashScope, ReplicaRole, Request, TtftPoint
from exporter.sources.formats.basis import counted
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
# Declared by a source that leaves zero out; a count that cannot be used stays unknown all the same.
_ZERO_DECLARED = """coalesce($default_cached_tokens = 0 AND cached_tokens IS NULL
    AND prompt_tokens > 0 AND status = 'ok'
    AND NOT coalesce(list_contains(unusable, 'unusable:cached_tokens'), false), false)"""

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

# Fields the steps below reason about, so that they are there (as NULL) in every format.
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
_EXCERPT_LIMIT = 120
_LINE = "rtrim(line, chr(10) || chr(13))"
# Only the ASCII punctuation of a rejected line is shown: the rest may be a prompt.
_UNREADABLE = "[^ !-/:-@\\[-`{-~]"
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


@cache
def compile_careful(log_format: LogFormat) -> str:
    """One SELECT over a relation `lines(position, line_number, line)`.

    Result: position, line_number, `reason` of a reject (NULL for a good row), a redacted
    `excerpt` of a rejected line, and the columns of `requests` the format can fill.
    """
    fields = fields_of(log_format)
    query = "lines"
    for step in (
        parsed(log_format, numbers="VARCHAR"),
        _found(log_format, fields),
        _cleaned(log_format, fields),
        _stated(),
        counted(log_format.basis),
        _judged(log_format),
        _columns(log_format),
    ):
        query = f"({step.replace('<input>', query)})"
    return query[1:-1]


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
    filled = {*COMPUTED, *_names(log_format), "prompt_basis", "flags"}
    return [name for name in REQUEST_COLUMNS if name in filled]


def _names(log_format: LogFormat) -> list[str]:
    """Every field the steps carry for this format."""
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


def _found(log_format: LogFormat, fields: dict[str, Field]) -> str:
    constants = dict(log_format.constants)
    columns = []
    for name in _names(log_format):
        if name in constants:
            value = constant(name, constants[name])
        elif name in fields:
            value = first_value(fields[name], as_text=True)
        else:
            value = unknown(name)
        columns.append(f"{value} AS {name}")
    return f"""SELECT position, line_number, line,
        body IS NULL OR TRY(json_type(line)) IS NULL AS unparsed, {", ".join(columns)}
        FROM <input>"""


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


def _cleaned(log_format: LogFormat, fields: dict[str, Field]) -> str:
    """Only values that can be used stay; `unusable` names the numbers that cannot."""
    columns = ", ".join(
        f"{_clean(name, fields.get(name), log_format)} AS {name}" for name in _names(log_format)
    )
    names = ", ".join(
        f"""CASE WHEN {entry.name} IS NOT NULL AND ({_number(entry)}) IS NULL
            THEN 'unusable:{entry.name}' END"""
        for entry in fields.values()
        if entry.kind in (*NUMBER_KINDS, "hashes")
    )
    return f"""SELECT position, line_number, line, unparsed,
        coalesce(ts, ended) AS stated_ts, {columns},
        nullif(list_filter([{names}], lambda name: name IS NOT NULL), []) AS unusable
        FROM (SELECT *, {TS_NUMBER.format(ts="ts")} AS ts_number,
            {TS_NUMBER.format(ts="ended")} AS ended_number FROM <input>)"""


def _clean(name: str, entry: Field | None, log_format: LogFormat) -> str:
    kind = KINDS.get(name, "text")
    if entry and entry.kind in (*NUMBER_KINDS, "hashes"):
        value = _number(entry)
    elif kind in ("time", "status"):
        value = {"time": re.sub(r"\bts", name, TIME), "status": STATUS}[kind]
    elif entry and kind == "text":
        # An object or list is no label, and may hold what must not be kept.
        found = [*entry.paths, *(case.path for case in entry.cases)]
        paths = ", ".join(f"'$.{'.'.join(_keyed(path))}'" for path in found)
        label = f"list_has_any(TRY(json_type(line, [{paths}])), ['VARCHAR', 'BIGINT', 'UBIGINT'])"
        value = f"""CASE WHEN {name}[1] NOT IN ('{{', '[') OR {label}
            THEN nullif(left({name}, {TEXT_LIMIT}), '') END"""
        value = in_words(name, value)
    else:
        value = name
    value = named(log_format, name, value)
    stated = name in DEFAULTS and name != "cached_tokens"
    return f"coalesce({value}, $default_{name})" if stated else value


def _keyed(path: str) -> list[str]:
    return [f'"{part}"' for part in parts_of(path)]


def _number(entry: Field) -> str:
    """The number if it can be used: finite, not negative, and whole where it is a count; a chain
    of hashes if every one can."""
    if entry.kind == "hashes":
        return f"CASE WHEN {WHOLE_HASHES[entry.name]} THEN {entry.name} END"
    number = f"TRY_CAST({entry.name} AS DOUBLE)"
    if entry.kind == "tokens":
        whole = f"{number} >= 0 AND {number} < {LARGEST_COUNT} AND {number} = floor({number})"
        return f"CASE WHEN {whole} THEN {number}::BIGINT END"
    if entry.kind == "milliseconds":
        number = f"({number} / 1000)"
    return f"CASE WHEN {number} >= 0 AND {number} < {LONGEST_SECONDS} THEN {number} END"


def _stated() -> str:
    """What the row states, before it is judged: cached from tiers where only they are given,
    and divided by the number of answers where only that explains more cached than prompt."""
    return f"""
    SELECT *, stated_cached <= prompt_tokens
            + greatest(coalesce(block_size, 16), prompt_tokens * 0.02) AS within_tolerance
    FROM (
        SELECT *, coalesce(cache_write_tokens, 0) AS written,
            CASE WHEN choices > 1 AND cached_sum > prompt_tokens THEN cached_sum // choices
                ELSE cached_sum END AS stated_cached
        FROM (
            SELECT *, CASE WHEN cached_tokens IS NULL AND {TIERS_KNOWN} THEN {TIERS_SUM}
                WHEN {_ZERO_DECLARED} THEN 0 ELSE cached_tokens END AS cached_sum,
                {_ZERO_DECLARED} AND NOT coalesce({TIERS_KNOWN}, false) AS zero_declared
            FROM <input>))"""


_FLAGS = {
    "no_time": "stated_ts IS NULL",
    "relative_time": "{relative} AND stated_ts IS NOT NULL",
    "no_id": "request_id IS NULL AND $fingerprint IS NULL",
    "divided_by_choices": "stated_cached < cached_sum",
    "cached_capped": "NOT beside AND stated_cached > stated_prompt AND within_tolerance",
    "cached_impossible": "NOT beside AND NOT within_tolerance",
    "zero_prompt": "stated_prompt = 0 AND prompt_tokens IS NULL",
    "tiers_disagree": f"{TIERS_KNOWN} AND {TIERS_SUM} <> cached_sum",
    "ttft_not_streamed": "ttft_seconds IS NOT NULL AND NOT stream",
    "ttft_zero": "ttft_seconds = 0",
    "ttft_equals_end": "stream IS DISTINCT FROM false AND ttft_seconds >= e2e_seconds",
    "response_cache_hit": "ineligible_reason = 'response_cache'",
    "usage_guessed": "guessed IS NOT NULL",
    "zero_declared": "zero_declared",
    "approximate_chain": "block_hashes IS NOT NULL AND text_bytes IS NOT NULL",
}
# What a response cache replays was counted when the engine ran; no engine ran now. What a log
# guessed was not counted at all.
_NOT_COUNTED = "ineligible_reason = 'response_cache' OR guessed IS NOT NULL"
_COUNTS = (
    "prompt_tokens", "cached_tokens", *(f"cached_{tier}" for tier in TIERS), "cache_write_tokens",
    "cache_write_5m", "cache_write_1h", "cache_write_other", "output_tokens",
)  # fmt: skip


def _judged(log_format: LogFormat) -> str:
    relative = str(log_format.relative_time is not None).lower()
    started = _start(log_format)
    # A trace may well be longer than a day.
    latest = "'infinity'" if log_format.relative_time else "$arrived + INTERVAL 1 DAY"
    flags = {name: rule.format(relative=relative) for name, rule in _FLAGS.items()}
    rules = ", ".join(f"CASE WHEN {rule} THEN '{name}' END" for name, rule in flags.items())
    any_rule = " OR ".join(f"coalesce({rule}, false)" for rule in flags.values())
    counts = {name: name for name in _COUNTS if name in _names(log_format)}
    counts["cached_tokens"] = "CASE WHEN prompt_basis <> 'unknown' THEN cached_tokens END"
    counted = ", ".join(
        f"CASE WHEN coalesce(NOT ({_NOT_COUNTED}), true) THEN {value} END AS {name}"
        for name, value in counts.items()
    )
    return f"""
    SELECT * EXCLUDE (
            ts, ttft_seconds, ineligible_reason, attempt, request_id, {", ".join(counts)}),
        {counted},
        CASE WHEN ttft_seconds > 0 AND stream IS DISTINCT FROM false
            AND (e2e_seconds IS NULL OR ttft_seconds < e2e_seconds)
            AND ineligible_reason IS DISTINCT FROM 'response_cache'
            THEN ttft_seconds END AS ttft_seconds,
        coalesce({started}, $arrived) AS ts,
        coalesce(ineligible_reason,
            CASE WHEN prompt_logprobs IS NOT NULL THEN 'lookup_skipped' END) AS ineligible_reason,
        greatest(coalesce(attempt, 1), 1) AS attempt,
        CASE WHEN request_id IS NULL AND $fingerprint IS NOT NULL
            THEN 'line:' || md5(concat_ws(':', $key, $fingerprint, position, {_LINE}))
            ELSE request_id END AS request_id,
        CASE WHEN coalesce(note, prompt_note) IS NOT NULL OR unusable IS NOT NULL OR {any_rule}
            THEN nullif(list_concat(coalesce(unusable, []), list_filter(
            [{rules}, note, prompt_note], lambda name: name IS NOT NULL)), []) END AS flags,
        CASE WHEN unparsed THEN if(json_valid(line) AND TRY(json_type(line)) IS NOT NULL,
                'not_an_object', 'invalid_json')
            WHEN skip IS NOT NULL THEN skip
            WHEN stated_ts IS NOT NULL AND {started} IS NULL THEN 'unreadable_time'
            WHEN {started} < {EARLIEST} OR {started} > {latest} THEN 'implausible_time'
            WHEN {started} < $earliest::TIMESTAMP THEN 'before_retention'
            WHEN request_id IS NULL AND stated_ts IS NULL AND stated_prompt IS NULL
                AND stream IS NULL AND unusable IS NULL THEN CASE
                WHEN TRY(json_type(line)) = 'OBJECT' THEN 'no_known_field' ELSE 'not_an_object' END
            END AS reason
    FROM <input>"""


def _start(log_format: LogFormat) -> str:
    """When a request began: as stated, laid from the moment its trace was taken in, or before
    its end."""
    if log_format.relative_time is not None:
        unit = {"seconds": 1e6, "milliseconds": 1e3}[log_format.relative_time]
        amount = "TRY_CAST(stated_ts AS DOUBLE)"
        return f"""CASE WHEN {amount} >= 0 AND {amount} < {LONGEST_SECONDS}
            THEN $began + to_microseconds(round({amount} * {unit:.0f})::BIGINT) END"""
    return "coalesce(ts, ended - to_microseconds(round(coalesce(e2e_seconds, 0) * 1e6)::BIGINT))"


def _columns(log_format: LogFormat) -> str:
    columns = ", ".join(
        f"{COMPUTED[name]} AS {name}" if name in COMPUTED else name
        for name in request_columns(log_format)
    )
    masked = f"regexp_replace(left({_LINE}, {_EXCERPT_LIMIT}), '{_UNREADABLE}', 'x', 'g')"
    return f"""SELECT position, line_number, reason,
        CASE WHEN reason IS NOT NULL THEN {masked} END AS excerpt,
        '{log_format.name}' AS source_format, {columns} FROM <input>"""
