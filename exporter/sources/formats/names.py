"""Naming rules as SQL: part of the one reading that files, HTTP bodies and followed logs share.

A rule reads the row itself, so it sees also what the format does not map. Whatever a rule gives
is a name in full: trimmed, not empty, no object or list, and no longer than a text may be.
Text of the user reaches SQL only as `_literal`, in which nothing can be taken for anything else.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from exporter.sources.formats.expressions import TEXT_LIMIT
from exporter.sources.formats.mapping import LogFormat, Naming
from exporter.sources.name_checks import SUBJECT_LIMIT, steps_of
from exporter.sources.names import Rule, SourceNames

# Where rows carry the headers of the HTTP request they describe.
HEADER_PLACES = (
    "headers",
    "request.headers",
    "request_headers",
    "http.request.headers",
    "metadata.headers",
    "metadata.requester_custom_headers",
    "metadata.requester_metadata.headers",
    "proxy_server_request.headers",
)
# Of a longer list no more elements are looked at.
ELEMENT_LIMIT = 64
# What proxies write for a header that was not sent.
_ABSENT = "-"
_BLANKS = "' ' || chr(9) || chr(10) || chr(13)"
_BUCKETS = 256


@cache
def with_names(log_format: LogFormat, names: SourceNames | None) -> LogFormat:
    """The format as it reads rows of a source with these rules; None or no rules: as it is."""
    rules = names.rules() if names is not None else {}
    if not rules:
        return log_format
    paths = _simple_paths(rules)
    namings = (
        Naming(field, f"coalesce({', '.join(_value(rule, paths) for rule in listed)})")
        for field, listed in rules.items()
    )
    return replace(log_format, names=tuple(namings))


def rule_values(names: SourceNames) -> dict[str, list[str]]:
    """SQL over `line` of what each rule gives, by field, in order; `<mapped>` is the format's."""
    rules = names.rules()
    paths = _simple_paths(rules)
    return {field: [_value(rule, paths) for rule in listed] for field, listed in rules.items()}


def _simple_paths(rules: dict[str, tuple[Rule, ...]]) -> list[str]:
    """The paths that lead to one value. All are found in one look at the row, which DuckDB
    takes once where several rules ask for the same list of paths."""
    fields = [rule.field for listed in rules.values() for rule in listed if rule.field]
    return list(dict.fromkeys(_json_path(field) for field in fields if "[*]" not in field))


def _value(rule: Rule, paths: list[str]) -> str:
    """SQL of the name a rule gives, NULL where it gives none."""
    if rule.mapped:
        return "<mapped>"
    if rule.constant is not None:
        return _literal(rule.constant)
    if rule.header is not None:
        return _first(f"[{_name(_header(rule.header.lower()), rule)}]")
    assert rule.field is not None
    path = _json_path(rule.field)
    if "[*]" in rule.field:
        elements = f"TRY(json_extract(line, {_literal(path)}))[1:{ELEMENT_LIMIT}]"
        return _first(f"list_transform({_scalars(elements)}, "
                      f"lambda element: {_name('element', rule)})")  # fmt: skip
    found = f"TRY(json_value(line, {_list(paths)}))[{paths.index(path) + 1}] ->> '$'"
    return _first(f"[{_name(f'({found})', rule)}]")


def _first(names: str) -> str:
    """The first that is a name: text as long as a prompt is none."""
    return f"list_filter({names}, lambda name: length(name) <= {TEXT_LIMIT})[1]"


def _name(value: str, rule: Rule) -> str:
    """What the rule makes of a text it found."""
    trimmed = f"trim(left({value}, {SUBJECT_LIMIT}), {_BLANKS})"
    name = f"nullif(nullif({trimmed}, ''), {_literal(_ABSENT)})"
    if rule.pattern is not None:
        name = f"nullif(regexp_extract({name}, {_literal(rule.pattern)}, 1), '')"
    if rule.lookup is not None:
        name = _looked_up(name, rule.entries)
    return f"left(sha256($key || 'name' || {name}), 16)" if rule.hashed else name


def _header(name: str) -> str:
    """The text of a header, wherever the row keeps its headers. A list holds repeated headers,
    of which the first counts."""
    return f"coalesce({', '.join(_header_in(place, name) for place in _header_objects())})"


def _header_objects() -> Iterator[str]:
    found = f"TRY(json_extract(line, {_list([_json_path(place) for place in HEADER_PLACES])}))"
    for number in range(len(HEADER_PLACES)):
        yield f"{found}[{number + 1}]"


def _header_in(place: str, name: str) -> str:
    keys = f"list_filter(json_keys({place}), lambda key: lower(key) = {_literal(name)})"
    path = f"""'$."' || {keys}[1] || '"'"""
    return f"""coalesce(json_value({place}, {path}) ->> '$',
        json_value({place}, {path} || '[0]') ->> '$')"""


def _scalars(elements: str) -> str:
    """The texts and numbers of a list of JSON values: an object or list is no name."""
    kept = f"list_filter({elements}, lambda found: left(found::VARCHAR, 1) NOT IN ('{{', '['))"
    return f"list_transform({kept}, lambda found: found ->> '$')"


def _looked_up(value: str, entries: tuple[tuple[str, str], ...]) -> str:
    """The name of a value. A long list is cut into buckets by hash, so that a row is compared
    with a few values only; and the values themselves do not stand in a statement."""
    buckets: list[dict[str, str]] = [{} for _ in range(_BUCKETS)]
    for key, name in entries:
        digest = hashlib.md5(key.encode(), usedforsecurity=False).hexdigest()
        buckets[int(digest[:2], 16)][digest] = name
    texts = _literal(json.dumps([json.dumps(bucket) for bucket in buckets]))
    bucket = f"""from_json({texts}, '["VARCHAR"]')[('0x' || left(md5({value}), 2))::INTEGER + 1]"""
    return f"json_extract_string({bucket}, '$.' || md5({value}))"


def _json_path(path: str) -> str:
    return "$" + "".join(f'."{step.key}"{step.indexes}' for step in steps_of(path))


def _list(texts: list[str]) -> str:
    return f"[{', '.join(_literal(text) for text in texts)}]"


@cache
def _literal(text: str) -> str:
    """A text constant in which quotes, dollars and everything else SQL could take for its own
    are written as their codes."""
    written = (
        letter if letter.isalnum() or not letter.isascii() else f"\\x{ord(letter):02x}"
        for letter in text
    )
    return f"E'{''.join(written)}'"
