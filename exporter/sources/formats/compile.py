"""Compiles a format's table into the one SQL that reads its rows.

The SQL goes from raw lines to requests in steps:

    parsed    one typed parse of the line; a line that is not JSON parses to NULL
    found     per field, the first path that holds a value
    cleaned   numbers that can be used, times as UTC, words of ours; the rest is NULL and named
    stated    cached tokens as the row states them, tiers and number of answers considered
    counted   prompt tokens made inclusive, cached tokens made possible, and the basis
    judged    TTFT that really is one, scope, flags, and the reason to reject, if any
    columns   the columns of `requests`, in order

Each step selects from `<input>`, the step before it. Parameters (all bound): source, arrived,
key (secret for keyed hashes), hit_threshold_ratio, fingerprint (of the file; NULL over HTTP)
and one `default_*` per field of `DEFAULTS`.
"""

import json
from functools import cache
from typing import cast

from exporter.records import TIERS, Request
from exporter.sources.formats.mapping import HELPERS, NUMBER_KINDS, Field, Kind, LogFormat

REQUEST_COLUMNS = tuple(Request.model_fields)

# What a source may state for rows that do not say it themselves.
DEFAULTS = (
    "replica", "replica_role", "provider", "model", "model_fingerprint",
    "route", "template", "template_version", "tenant", "adapter", "block_size",
)  # fmt: skip

_SQL_TYPES: dict[Kind, str] = {
    "text": "VARCHAR",
    "bool": "BOOLEAN",
    "time": "VARCHAR",
    "status": "VARCHAR",
    "tokens": "UBIGINT",
    "seconds": "DOUBLE",
    "milliseconds": "DOUBLE",
    "hashes": "UBIGINT[]",
}
_TOKEN_FIELDS = (
    "attempt", "turn", "prompt_tokens", "cached_tokens", "cached_device", "cached_host",
    "cached_disk", "cached_remote", "cache_write_tokens", "cache_write_5m", "cache_write_1h",
    "cache_write_other", "output_tokens", "block_size", "choices", "total_tokens",
    "prompt_logprobs",
)  # fmt: skip
_SECOND_FIELDS = ("ttft_seconds", "queue_seconds", "prefill_seconds", "e2e_seconds")
_KINDS: dict[str, Kind] = {
    "ts": "time",
    "stream": "bool",
    "status": "status",
    "block_hashes": "hashes",
    **dict.fromkeys(_TOKEN_FIELDS, "tokens"),
    **dict.fromkeys(_SECOND_FIELDS, "seconds"),
}

# Fields the steps below reason about, so that they are there (as NULL) in every format.
_NEEDED = (
    "ts", "request_id", "attempt", "prompt_tokens", "cached_tokens",
    *(f"cached_{tier}" for tier in TIERS),
    "cache_write_tokens", "output_tokens", "total_tokens", "choices", "prompt_logprobs",
    "block_size", "ttft_seconds", "ttft_point", "e2e_seconds", "stream", "status",
    "ineligible_reason", "cache_salt", "adapter", "model_fingerprint",
)  # fmt: skip

_TIERS_SUM = " + ".join(f"coalesce(cached_{tier}, 0)" for tier in TIERS)
_TIERS_KNOWN = f"coalesce({', '.join(f'cached_{tier}' for tier in TIERS)}) IS NOT NULL"

# Text longer than this is cut: labels and ids are short, and a hostile one must stay so.
_TEXT_LIMIT = 256
_EXCERPT_LIMIT = 120
# A time before 2010 or more than a day ahead of its arrival is a unit read wrongly.
_EARLIEST = "TIMESTAMP '2010-01-01'"
# JSON types that are no token count, or no number of seconds; BIGINT is a negative number.
_NO_COUNT = "['VARCHAR', 'BOOLEAN', 'ARRAY', 'OBJECT', 'BIGINT', 'DOUBLE']"
_NO_SECONDS = "['VARCHAR', 'BOOLEAN', 'ARRAY', 'OBJECT', 'BIGINT']"

# Seconds, milliseconds, microseconds and nanoseconds are told apart by magnitude.
_TIME = """CASE
    WHEN ts_number IS NOT NULL THEN CASE WHEN abs(ts_number) < 1e20 THEN make_timestamp(
        round(ts_number * CASE
            WHEN abs(ts_number) < 1e11 THEN 1e6
            WHEN abs(ts_number) < 1e14 THEN 1e3
            WHEN abs(ts_number) < 1e17 THEN 1
            ELSE 1e-3 END)::BIGINT) END
    WHEN regexp_matches(ts, ':\\d\\d([.,]\\d+)?\\s*(Z|z|UTC|[+-]\\d\\d(:?\\d\\d)?)$')
        THEN make_timestamp(epoch_us(TRY_CAST(ts AS TIMESTAMPTZ)))
    ELSE TRY_CAST(ts AS TIMESTAMP) END"""

_STATUS = """CASE
    WHEN status IS NULL OR status IN ('200', 'ok', 'success', 'completed') THEN 'ok'
    WHEN status IN ('499', '0', 'cancelled', 'canceled', 'aborted') THEN 'cancelled'
    WHEN status IN ('incomplete', 'in_progress', 'queued') THEN 'incomplete'
    WHEN TRY_CAST(status AS INTEGER) BETWEEN 200 AND 299 THEN 'ok'
    ELSE 'error' END"""


@cache
def compile_format(log_format: LogFormat, *, careful: bool = False) -> str:
    """One SELECT over a relation `lines(position, line_number, line)`.

    Result: position, line_number, `doubtful`, `reason` of a reject (NULL for a good row), a
    redacted `excerpt` of a rejected line, and the columns of `requests` the format can fill.

    The quick reading takes JSON numbers as they are and marks rows with a number of the wrong
    type, or that are not JSON, as doubtful; only those are read again with `careful`, which
    looks at each number as text and names what it cannot use. Nothing else differs.
    """
    fields = {entry.name: entry for entry in log_format.fields}
    unknown = set(fields) - set(REQUEST_COLUMNS) - set(HELPERS)
    if unknown:
        raise ValueError(f"format {log_format.name} maps unknown fields {sorted(unknown)}")
    query = "lines"
    for step in (
        _parsed(log_format, careful),
        _found(log_format, fields),
        _cleaned(log_format, fields, careful),
        _stated(),
        _counted(log_format),
        _judged(),
        _columns(log_format),
    ):
        query = f"({step.replace('<input>', query)})"
    return query[1:-1]


def request_columns(log_format: LogFormat) -> list[str]:
    """The columns of `requests` a format can fill, in order; the others stay NULL."""
    ours = {"arrived", "source", "source_format", "scope", "outcome", "prompt_basis", "flags"}
    filled = ours.union(_names(log_format), DEFAULTS) - set(HELPERS)
    return [name for name in REQUEST_COLUMNS if name in filled]


def _names(log_format: LogFormat) -> list[str]:
    """Every field the steps carry for this format."""
    return list(
        dict.fromkeys([*_NEEDED, *DEFAULTS, *(entry.name for entry in log_format.fields)])
    )


def _parsed(log_format: LogFormat, careful: bool) -> str:
    structure = json.dumps(_structure(log_format, careful))
    return f"SELECT *, TRY(json_transform(line, '{structure}')) AS body FROM <input>"


def _structure(log_format: LogFormat, careful: bool) -> dict[str, object]:
    """The typed shape of a row, as `json_transform` reads it."""
    tree: dict[str, object] = {}
    for entry in log_format.fields:
        kind: object = ["UBIGINT"] if entry.kind == "hashes" else _SQL_TYPES[entry.kind]
        if careful and entry.kind in NUMBER_KINDS:
            kind = "VARCHAR"
        for path in entry.terms():
            node = tree
            *parents, leaf = path.split(".")
            for parent in parents:
                node = cast(dict[str, object], node.setdefault(parent, {}))
            node[leaf] = kind
    return tree


def _found(log_format: LogFormat, fields: dict[str, Field]) -> str:
    columns = ", ".join(
        f"{_value(name, log_format, fields)} AS {name}" for name in _names(log_format)
    )
    return f"SELECT position, line_number, line, body IS NULL AS unparsed, {columns} FROM <input>"


def _value(name: str, log_format: LogFormat, fields: dict[str, Field]) -> str:
    """SQL of the first path that holds a value."""
    constants = dict(log_format.constants)
    if name in constants:
        return f"'{constants[name]}'"
    if name not in fields:
        return f"NULL::{_SQL_TYPES[_KINDS.get(name, 'text')]}"
    options = [_path_value(path) for path in fields[name].paths]
    return options[0] if len(options) == 1 else f"coalesce({', '.join(options)})"


def _path_value(path: str) -> str:
    terms = [
        "body." + ".".join(f'"{part}"' for part in term.split(".")) for term in path.split(" + ")
    ]
    return terms[0] if len(terms) == 1 else " + ".join(f"TRY_CAST({t} AS DOUBLE)" for t in terms)


def _cleaned(log_format: LogFormat, fields: dict[str, Field], careful: bool) -> str:
    """Only values that can be used stay."""
    columns = ", ".join(
        f"{_clean(name, fields.get(name), careful)} AS {name}" for name in _names(log_format)
    )
    return f"""SELECT position, line_number, line, unparsed, ts AS stated_ts, {columns},
        {"false" if careful else _doubtful(fields)} AS doubtful,
        {_unusable(fields) if careful else "NULL::VARCHAR[]"} AS unusable
        FROM (SELECT *, TRY_CAST(ts AS DOUBLE) AS ts_number FROM <input>)"""


def _clean(name: str, entry: Field | None, careful: bool) -> str:
    kind = _KINDS.get(name, "text")
    value = name
    if kind == "tokens":
        value = _usable_count(name) if careful and entry else f"{name}::BIGINT"
    elif kind == "seconds" and entry:
        value = _usable_seconds(name, entry)
    elif kind == "time":
        value = _TIME
    elif kind == "status":
        value = _STATUS
    elif kind == "text" and entry:
        # An object or list is no label, and may hold what must not be kept.
        value = f"""CASE WHEN strlen({name}) <= {_TEXT_LIMIT} AND {name}[1] NOT IN ('{{', '[', '')
            THEN {name} WHEN {name}[1] NOT IN ('{{', '[') THEN left({name}, {_TEXT_LIMIT}) END"""
    return f"coalesce({value}, $default_{name})" if name in DEFAULTS else value


def _usable_count(name: str) -> str:
    number = f"TRY_CAST({name} AS DOUBLE)"
    whole = f"{number} >= 0 AND {number} < 9e15 AND {number} = floor({number})"
    return f"CASE WHEN {whole} THEN {number}::BIGINT END"


def _usable_seconds(name: str, entry: Field) -> str:
    number = f"TRY_CAST({name} AS DOUBLE)"
    scale = " / 1000" if entry.kind == "milliseconds" else ""
    return f"CASE WHEN {number} >= 0 AND isfinite({number}) THEN {number}{scale} END"


def _doubtful(fields: dict[str, Field]) -> str:
    """Whether the row is no JSON, or may hold a number of the wrong type.

    Looking at types costs a second parse, so only rows are looked at in which a number people
    rely on is missing, or so small that it may be a boolean.
    """
    counts = [entry for entry in fields.values() if entry.kind == "tokens"]
    spans = [entry for entry in fields.values() if entry.kind in ("seconds", "milliseconds")]
    relied_on = [
        f"{entry.name} IS NULL"
        for entry in (*counts, *spans)
        if entry.name in ("prompt_tokens", "cached_tokens", "output_tokens", *_SECOND_FIELDS)
    ]
    finite = [f"NOT isfinite(TRY_CAST({entry.name} AS DOUBLE))" for entry in spans]
    looked_at = " OR ".join([*relied_on, *finite, "prompt_tokens <= 1", "cached_tokens = 1"])
    wrong = " OR ".join(
        f"list_has_any(json_type(line, [{_json_paths(group)}]), {kinds})"
        for group, kinds in ((counts, _NO_COUNT), (spans, _NO_SECONDS))
        if group
    )
    return f"""CASE WHEN unparsed THEN true WHEN {looked_at} THEN {wrong} ELSE false END"""


def _json_paths(fields: list[Field]) -> str:
    return ", ".join(f"'$.{path}'" for entry in fields for path in entry.terms())


def _unusable(fields: dict[str, Field]) -> str:
    names = ", ".join(
        f"""CASE WHEN {entry.name} IS NOT NULL AND ({_clean(entry.name, entry, True)}) IS NULL
            THEN 'unusable:{entry.name}' END"""
        for entry in fields.values()
        if entry.kind in NUMBER_KINDS
    )
    return f"nullif(list_filter([{names}], lambda name: name IS NOT NULL), [])"


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
            SELECT *, CASE WHEN cached_tokens IS NULL AND {_TIERS_KNOWN} THEN {_TIERS_SUM}
                ELSE cached_tokens END AS cached_sum
            FROM <input>))"""


def _counted(log_format: LogFormat) -> str:
    """Prompt tokens made inclusive, cached tokens made possible, and how that was decided.

    More cached than prompt: an excess of at most a block or 2 % is counting noise and capped.
    More than that is impossible where the format is inclusive by specification, and proves
    that cached tokens are beside the prompt where it only usually is.
    """
    beside = {
        "inclusive": "false",
        "assumed": """coalesce(stated_cached > prompt_tokens AND NOT within_tolerance
            OR stated_cached + written > 0
            AND total_tokens - output_tokens = prompt_tokens + stated_cached + written, false)""",
        "exclusive": "coalesce(stated_cached, cache_write_tokens) IS NOT NULL",
    }[log_format.basis]
    otherwise = {
        "inclusive": "'inclusive'",
        "assumed": """CASE WHEN total_tokens - output_tokens = prompt_tokens THEN 'inclusive'
            ELSE 'assumed' END""",
        "exclusive": "'unknown'",
    }[log_format.basis]
    return f"""
    SELECT * EXCLUDE (prompt_tokens, cached_tokens), prompt_tokens AS stated_prompt,
        nullif(CASE WHEN beside THEN prompt_tokens + coalesce(stated_cached, 0) + written
            ELSE prompt_tokens END, 0) AS prompt_tokens,
        CASE WHEN beside THEN stated_cached
            WHEN prompt_tokens > 0 AND within_tolerance THEN least(stated_cached, prompt_tokens)
            END AS cached_tokens,
        CASE WHEN beside THEN 'exclusive' ELSE {otherwise} END AS prompt_basis
    FROM (SELECT *, {beside} AS beside FROM <input>)"""


_FLAGS = {
    "no_time": "stated_ts IS NULL",
    "no_id": "request_id IS NULL AND $fingerprint IS NULL",
    "divided_by_choices": "stated_cached < cached_sum",
    "cached_capped": "NOT beside AND stated_cached > stated_prompt AND within_tolerance",
    "cached_impossible": "NOT beside AND NOT within_tolerance",
    "zero_prompt": "stated_prompt = 0 AND prompt_tokens IS NULL",
    "tiers_disagree": f"{_TIERS_KNOWN} AND {_TIERS_SUM} <> cached_sum",
    "ttft_not_streamed": "ttft_seconds IS NOT NULL AND NOT stream",
    "ttft_equals_end": "stream IS DISTINCT FROM false AND ttft_seconds >= e2e_seconds",
}


def _judged() -> str:
    rules = ", ".join(f"CASE WHEN {rule} THEN '{name}' END" for name, rule in _FLAGS.items())
    any_rule = " OR ".join(f"coalesce({rule}, false)" for rule in _FLAGS.values())
    return f"""
    SELECT * EXCLUDE (ts, ttft_seconds, ineligible_reason, attempt, request_id, cached_tokens),
        coalesce(ts, $arrived) AS ts,
        CASE WHEN ttft_seconds > 0 AND stream IS DISTINCT FROM false
            AND (e2e_seconds IS NULL OR ttft_seconds < e2e_seconds)
            THEN ttft_seconds END AS ttft_seconds,
        coalesce(ineligible_reason,
            CASE WHEN prompt_logprobs IS NOT NULL THEN 'lookup_skipped' END) AS ineligible_reason,
        greatest(coalesce(attempt, 1), 1) AS attempt,
        CASE WHEN request_id IS NULL AND $fingerprint IS NOT NULL
            THEN 'line:' || md5(concat_ws(':', $key, $fingerprint, position, rtrim(line, chr(10) || chr(13))))
            ELSE request_id END AS request_id,
        CASE WHEN prompt_basis <> 'unknown' THEN cached_tokens END AS cached_tokens,
        CASE WHEN coalesce(cache_salt, adapter, model_fingerprint) IS NOT NULL THEN left(
            sha256($key || to_json([cache_salt, adapter, model_fingerprint])), 16) END AS scope,
        CASE WHEN unusable IS NOT NULL OR {any_rule} THEN nullif(list_concat(
            coalesce(unusable, []),
            list_filter([{rules}], lambda name: name IS NOT NULL)), []) END AS flags,
        CASE WHEN unparsed THEN if(json_valid(line), 'not_an_object', 'invalid_json')
            WHEN stated_ts IS NOT NULL AND ts IS NULL THEN 'unreadable_time'
            WHEN ts < {_EARLIEST} OR ts > $arrived + INTERVAL 1 DAY THEN 'implausible_time'
            WHEN request_id IS NULL AND stated_ts IS NULL AND stated_prompt IS NULL
                AND unusable IS NULL THEN CASE
                WHEN json_type(line) = 'OBJECT' THEN 'no_known_field' ELSE 'not_an_object' END
            END AS reason
    FROM <input>"""


def _columns(log_format: LogFormat) -> str:
    eligible = """CASE WHEN block_size > 0 THEN (prompt_tokens - 1) // block_size * block_size
        ELSE prompt_tokens END"""
    ours = {
        "arrived": "$arrived",
        "source": "$source",
        "source_format": f"'{log_format.name}'",
        "ttft_point": "CASE WHEN ttft_seconds IS NOT NULL THEN ttft_point END",
        "outcome": f"""CASE WHEN cached_tokens IS NULL OR prompt_tokens IS NULL THEN 'unknown'
            WHEN cached_tokens = 0 THEN 'miss'
            WHEN cached_tokens >= $hit_threshold_ratio * ({eligible}) THEN 'hit'
            ELSE 'partial' END""",
    }
    columns = ", ".join(
        f"{ours[name]} AS {name}" if name in ours else name for name in request_columns(log_format)
    )
    masked = f"left(line, {_EXCERPT_LIMIT})"
    for letters, mask in (("\\p{L}", "a"), ("\\p{N}", "0")):
        masked = f"regexp_replace({masked}, '{letters}', '{mask}', 'g')"
    return f"""SELECT position, line_number, doubtful, reason,
        CASE WHEN reason IS NOT NULL THEN {masked} END AS excerpt, {columns} FROM <input>"""
