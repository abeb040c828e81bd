"""The quick reading of a format: rows that need no judgement; every other row is doubtful.

It is short because starting a long statement costs more than running it on a small batch.
Whatever it does not call doubtful it must read exactly as the careful reading would.
"""

import re
from functools import cache

from exporter.sources.formats.aside import SET_ASIDE
from exporter.sources.formats.basis import NOBODY_KNOWS
from exporter.sources.formats.expressions import (
    COMPUTED,
    EARLIEST,
    LARGEST_COUNT,
    LONGEST_SECONDS,
    STATUS,
    TEXT_LIMIT,
    TIERS_KNOWN,
    TIERS_SUM,
    TIME,
    TS_NUMBER,
    WHOLE_HASHES,
    constant,
    fields_of,
    first_value,
    in_words,
    mapped_names,
    named,
    parsed,
    request_columns,
    unknown,
    value_at,
)
from exporter.sources.formats.mapping import Field, LogFormat, parts_of

# How a value begins that is no number, or one that needs care: negative, or text not of digits.
_NO_NUMBER = r'true|false|\[|\{|-|N|I|"[0-9]*[^0-9"]|""'
_FRACTION = r"[0-9]+\.[0-9]*[1-9]"
_FIRST = f"coalesce($earliest::TIMESTAMP, {EARLIEST})"
_RELIED_ON = (
    "prompt_tokens", "cached_tokens", "output_tokens",
    "ttft_seconds", "queue_seconds", "prefill_seconds", "e2e_seconds",
)  # fmt: skip
# Further counts that would be rounded where they are stored.
_STORED = (
    "turn", "cache_write_tokens", "cache_write_5m", "cache_write_1h", "cache_write_other",
    "text_bytes",
)  # fmt: skip
_NOT_STREAMED = "ttft_seconds IS NOT NULL AND NOT stream"
_OF_TEXT = "block_hashes IS NOT NULL AND text_bytes IS NOT NULL"


# Columns the reasoning below names, so that they are there (as NULL) in every format.
_NEEDED = (
    "ts", "request_id", "prompt_tokens", "cached_tokens", "cache_write_tokens", "output_tokens",
    "total_tokens", "block_size", "ttft_seconds", "ttft_point", "e2e_seconds", "stream",
    "attempt", "prompt_logprobs", "ineligible_reason", "scope", "cache_salt", "adapter",
    "model_fingerprint", "side", "ended", "skip", "note", "prompt_note", "text_bytes",
    "provider", "model", "convention", "guessed",
)  # fmt: skip


@cache
def compile_quick(log_format: LogFormat, given_defaults: frozenset[str] = frozenset()) -> str:
    """One SELECT over `lines(position, line_number, line)`; see `compile_careful`.

    Rows that need judgement are left out and handed to `set_aside`. `given_defaults` are the
    fields the source states a default for. Result: the columns of `requests` the format can
    fill; parameter `batch` is the number of the batch.
    """
    columns, found, doubtful = _parts(log_format, given_defaults)
    return f"""SELECT $batch::BIGINT AS batch, {columns} FROM ({found})
        WHERE CASE WHEN {doubtful} THEN {SET_ASIDE} ELSE true END"""


@cache
def compile_told(log_format: LogFormat, given_defaults: frozenset[str] = frozenset()) -> str:
    """The same reading of every row, in the order of the lines; `doubted` tells which need
    judgement. What else such a row gives is nothing to rely on."""
    columns, found, doubtful = _parts(log_format, given_defaults)
    return f"SELECT {doubtful} AS doubted, {columns} FROM ({found})"


def _parts(log_format: LogFormat, given_defaults: frozenset[str]) -> tuple[str, str, str]:
    """SQL of the columns, of the relation they are worked out from, and of what calls for doubt."""
    fields = fields_of(log_format)
    source = f"({parsed(log_format)})".replace("<input>", "lines")
    found = _found(log_format, fields, given_defaults).replace("<input>", source)
    doubtful = _doubtful(log_format, fields)
    if "cached_tokens" in given_defaults:  # whether it may stand in is judged with care
        doubtful += " OR cached_tokens IS NULL"
    carried = {*_names(log_format), *given_defaults, *COMPUTED, "prompt_basis", "flags"}
    columns = ", ".join(
        f"{_column(name, log_format)} AS {name}"
        for name in request_columns(log_format)
        if name in carried
    )
    return f"position, '{log_format.name}' AS source_format, {columns}", found, doubtful


def _names(log_format: LogFormat) -> list[str]:
    return list(dict.fromkeys([*_NEEDED, "status", *mapped_names(log_format)]))


def _found(log_format: LogFormat, fields: dict[str, Field], given: frozenset[str]) -> str:
    columns = []
    for name in [*_names(log_format), *sorted(given - set(_names(log_format)))]:
        value = named(log_format, name, _value(name, log_format, fields))
        stated = name in given and name != "cached_tokens"
        columns.append(f"coalesce({value}, $default_{name}) AS {name}" if stated
                       else f"{value} AS {name}")  # fmt: skip
    number = TS_NUMBER.format(ts=first_value(fields["ts"])) if "ts" in fields else "NULL"
    return f"""SELECT position, line_number, line, body IS NULL AS unparsed,
        {_may_hide(log_format, fields)} AS may_hide,
        {number} AS ts_number, {", ".join(columns)}, {TIME} AS began FROM <input>"""


def _value(name: str, log_format: LogFormat, fields: dict[str, Field]) -> str:
    constants = dict(log_format.constants)
    if name in constants:
        return constant(name, constants[name])
    if name not in fields:
        return unknown(name)
    value = first_value(fields[name])
    if name == "prompt_tokens" and log_format.basis == "exclusive":
        others = [n for n in ("cached_tokens", "cache_write_tokens") if n in fields]
        beside = (first_value(fields[other]) for other in others)
        return " + ".join([f"({value})", *(f"coalesce({other}, 0)" for other in beside)])
    text = in_words(name, f"nullif({value}, '')")
    return {"milliseconds": f"({value}) / 1000", "text": text}.get(fields[name].kind, value)


def _column(name: str, log_format: LogFormat) -> str:
    return {
        **COMPUTED,
        "ts": "began",
        "attempt": "greatest(coalesce(attempt, 1), 1)",
        "status": STATUS,
        "ttft_point": """CASE WHEN ttft_seconds IS NOT NULL AND stream IS DISTINCT FROM false
            THEN ttft_point END""",
        "ttft_seconds": "CASE WHEN stream IS DISTINCT FROM false THEN ttft_seconds END",
        "flags": _flags(log_format),
        "prompt_basis": {
            "inclusive": "'inclusive'",
            "assumed": """if(coalesce((total_tokens - output_tokens)::VARCHAR, convention) IS NULL,
                'assumed', 'inclusive')""",
            "exclusive": "'exclusive'",
        }[log_format.basis],
    }.get(name, name)


def _flags(log_format: LogFormat) -> str:
    if "text_bytes" not in fields_of(log_format):
        return f"CASE WHEN {_NOT_STREAMED} THEN ['ttft_not_streamed'] END"
    return f"""CASE WHEN {_NOT_STREAMED} AND {_OF_TEXT}
            THEN ['ttft_not_streamed', 'approximate_chain']
        WHEN {_NOT_STREAMED} THEN ['ttft_not_streamed']
        WHEN {_OF_TEXT} THEN ['approximate_chain'] END"""


def _doubtful(log_format: LogFormat, fields: dict[str, Field]) -> str:
    """What calls for a careful reading: anything to flag, to reject, to correct or to hash."""
    counts = [entry for entry in fields.values() if entry.kind == "tokens"]
    spans = [entry for entry in fields.values() if entry.kind in ("seconds", "milliseconds")]
    texts = [entry.name for entry in fields.values() if entry.kind == "text"]
    # Relative times are laid with care, and a row without a prompt count always needs it.
    if log_format.relative_time is not None or "prompt_tokens" not in fields:
        return "true"
    rules = [
        f"coalesce(began NOT BETWEEN {_FIRST} AND $arrived + INTERVAL 1 DAY, true)",
        "request_id IS NULL",
        "coalesce(prompt_tokens <= 0 OR cached_tokens > prompt_tokens, prompt_tokens IS NULL)",
        "prompt_logprobs IS NOT NULL",
        "skip IS NOT NULL OR note IS NOT NULL OR prompt_note IS NOT NULL",
        "ineligible_reason = 'response_cache' OR guessed IS NOT NULL",
        _outside([entry.name for entry in counts], LARGEST_COUNT),
        *(f"{e.name} <> floor({e.name})" for e in counts if e.name in (*_RELIED_ON, *_STORED)),
        _wrong_types(counts, spans),
    ]
    if texts:
        labels = f"concat({', '.join(texts)})"
        longest = f"greatest({', '.join(f'strlen({name})' for name in texts)})"
        # Most rows have no more in all their texts.
        rules.append(f"CASE WHEN strlen({labels}) > {TEXT_LIMIT} THEN {longest} > {TEXT_LIMIT} END")
        rules.append(f"contains({labels}, '{{') OR contains({labels}, '[')")
    if spans:
        rules.append(_outside([entry.name for entry in spans], LONGEST_SECONDS))
    if "turn" in fields:
        no_number = rf'"({"|".join(_leaves([fields["turn"]]))})"\s*:\s*(true|false)'
        rules.append(f"CASE WHEN turn <= 1 THEN regexp_matches(line, '{no_number}') END")
    if hashed := [name for name in WHOLE_HASHES if name in fields]:
        broken = (f"{name} IS NOT NULL AND NOT ({WHOLE_HASHES[name]})" for name in hashed)
        # Most rows have no hashes; a CASE looks no further at those.
        rules.append(f"CASE WHEN coalesce({', '.join(hashed)}) IS NOT NULL THEN "
                     f"{' OR '.join(broken)} END")  # fmt: skip
    if "ttft_seconds" in fields:
        rules.append("stream IS DISTINCT FROM false AND ttft_seconds >= e2e_seconds")
        rules.append("ttft_seconds = 0")
    if "cached_device" in fields:
        rules.append(
            f"CASE WHEN {TIERS_KNOWN} THEN coalesce({TIERS_SUM} <> cached_tokens, true) END"
        )
    if log_format.basis == "assumed":
        rules.append("total_tokens - output_tokens <> prompt_tokens")
        rules.append(f"coalesce(cached_tokens::VARCHAR, convention) IS NULL AND {NOBODY_KNOWS}")
    if log_format.basis == "exclusive":
        # The prompt here is the sum already.
        rules.append("cached_tokens IS NULL OR total_tokens - output_tokens <> prompt_tokens")
    return f"unparsed OR {' OR '.join(f'coalesce({rule}, false)' for rule in rules)}"


def _outside(names: list[str], limit: str) -> str:
    """Below zero, or at or above the limit; NaN counts as above everything."""
    listed = ", ".join(names)
    return f"least({listed}) < 0 OR NOT greatest({listed}) < {limit}"


def _wrong_types(counts: list[Field], spans: list[Field]) -> str:
    """Whether a number people rely on has the wrong type.

    The parse turns other types into NULL, and true and false into 1 and 0. So the text of a
    row is searched where such a number is missing or that small, or is a sum or one of several
    that may hide it; where all that is small is 0, as often nothing was cached, only if it has a
    false at all.
    """
    relied_on = [entry for entry in (*counts, *spans) if entry.name in _RELIED_ON]
    told = [entry.name for entry in counts if entry.name not in ("attempt", "turn", "choices")]
    small = " OR ".join(f"{name} > 0 AND {name} <= 1" for name in told)
    searched = " OR ".join([
        "may_hide",
        f"CASE WHEN least({', '.join(told)}) <= 1 THEN contains(line, 'false') OR {small} END",
        *(f"{entry.name} IS NULL" for entry in relied_on),
        *(f"{entry.name} IN (0, 1, 0.001)" for entry in spans),
        *(f"{entry.name} IS NOT NULL" for entry in spans if _calculates(entry)),
    ])  # fmt: skip
    pattern = "|".join(
        rf'"({"|".join(_leaves(group))})"\s*:\s*({values})'
        for group, values in ((counts, f"{_NO_NUMBER}|{_FRACTION}"), (spans, _NO_NUMBER))
        if group
    )
    return f"CASE WHEN {searched} THEN regexp_matches(line, '{pattern}') END"


def _may_hide(log_format: LogFormat, fields: dict[str, Field]) -> str:
    """Whether a count that people rely on may be another one than the first that the row has: a
    number of the wrong type is none to the parse."""
    several = [
        entry for entry in fields.values()
        if entry.kind == "tokens" and entry.name in _RELIED_ON and len(tuple(entry.terms())) > 1
    ]  # fmt: skip
    if log_format.basis == "exclusive" or any(_calculates(entry) for entry in several):
        return "true"
    missing = (f"{value_at(entry.paths[0])} IS NULL" for entry in several)
    return " OR ".join(missing) or "false"


def _calculates(entry: Field) -> bool:
    return any(len(re.split(r" [+-] ", path)) > 1 for path in entry.paths)


def _leaves(fields: list[Field]) -> list[str]:
    """The last names of all paths."""
    return sorted({re.escape(parts_of(path)[-1]) for entry in fields for path in entry.terms()})
