"""The careful reading of a format: its table compiled into the SQL that reads any of its rows.

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

import re
from functools import cache

from exporter.records import TIERS
from exporter.sources.formats.basis import counted
from exporter.sources.formats.expressions import (
    COMPUTED,
    DEFAULTS,
    EARLIEST,
    KINDS,
    LARGEST_COUNT,
    LONGEST_SECONDS,
    STATUS,
    TEXT_LIMIT,
    TIERS_KNOWN,
    TIERS_SUM,
    TIME,
    TS_NUMBER,
    WHOLE_HASHES,
    carried_names,
    constant,
    fields_of,
    first_value,
    in_words,
    named,
    parsed,
    request_columns,
    unknown,
)
from exporter.sources.formats.mapping import NUMBER_KINDS, Field, LogFormat, parts_of

_EXCERPT_LIMIT = 120
_LINE = "rtrim(line, chr(10) || chr(13))"
# Only the ASCII punctuation of a rejected line is shown: the rest may be a prompt.
_UNREADABLE = "[^ !-/:-@\\[-`{-~]"
# Declared by a source that leaves zero out; a count that cannot be used stays unknown all the same.
_ZERO_DECLARED = """coalesce($default_cached_tokens = 0 AND cached_tokens IS NULL
    AND prompt_tokens > 0 AND status = 'ok'
    AND NOT coalesce(list_contains(unusable, 'unusable:cached_tokens'), false), false)"""


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


def _found(log_format: LogFormat, fields: dict[str, Field]) -> str:
    constants = dict(log_format.constants)
    columns = []
    for name in carried_names(log_format):
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


def _cleaned(log_format: LogFormat, fields: dict[str, Field]) -> str:
    """Only values that can be used stay; `unusable` names the numbers that cannot."""
    columns = ", ".join(
        f"{_clean(name, fields.get(name), log_format)} AS {name}"
        for name in carried_names(log_format)
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
    counts = {name: name for name in _COUNTS if name in carried_names(log_format)}
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
