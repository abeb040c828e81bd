"""Which format a log has, and why we think so."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from exporter.errors import PrefixscopeError
from exporter.sources.formats import FORMATS, ndjson
from exporter.sources.formats.mapping import LogFormat, parts_of
from replay.counted import counted

_SAMPLED_ROWS = 64


@dataclass(frozen=True)
class Decision:
    """The format chosen and the reason, in words."""

    log_format: LogFormat
    because: str


def detect(sample: bytes, name: str) -> Decision:
    """Decides from the first rows. `name` is what the input is called in an error.

    Raises PrefixscopeError when there are rows but none has a known shape. Input without any
    JSON object is read as our own NDJSON, so that each line is rejected with its reason.
    """
    text = sample.decode(errors="replace")
    for known in FORMATS:
        if known.sniff and (because := known.sniff(text)):
            return Decision(known, because)
    rows = _objects(sample)
    if not rows:
        return Decision(ndjson.FORMAT, "no JSON object in the first lines")
    fits = {known.name: sum(_fits(known, row) for row in rows) for known in FORMATS}
    best = max(FORMATS, key=lambda known: fits[known.name])
    if not fits[best.name] and (bare := _by_bare_keys(rows)):
        return bare
    if not fits[best.name]:
        keys = ", ".join(sorted({key for row in rows for key in row})[:12]) or "none"
        known_names = ", ".join(known.name for known in FORMATS)
        raise PrefixscopeError(
            f"{name}: not a request log prefixscope knows. Its rows have the keys: {keys}. "
            f"Known formats: {known_names}; choose one: --format, "
            "format: in the settings, ?format= in the address"
        )
    found = " and ".join(_first_present(group, rows) for group in best.signature)
    return Decision(best, f"{fits[best.name]} of {counted(len(rows), 'sampled row')} have {found}")


def _by_bare_keys(rows: Sequence[dict[str, object]]) -> Decision | None:
    """The format told by a key that holds null in every row."""
    for known in FORMATS:
        for key in known.bare:
            if any(key in row for row in rows):
                return Decision(known, f"rows have {key}, though it is null")
    return None


def _objects(sample: bytes) -> list[dict[str, object]]:
    rows = []
    for line in sample.splitlines()[:_SAMPLED_ROWS]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):  # no JSON, or nested beyond reason
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def _fits(log_format: LogFormat, row: dict[str, object]) -> bool:
    return all(any(_has(row, path) for path in group) for group in log_format.signature)


def _has(row: dict[str, object], path: str) -> bool:
    value: object = row
    for part in parts_of(path):
        if not isinstance(value, dict) or value.get(part) is None:
            return False
        value = value[part]
    return True


def _first_present(group: Sequence[str], rows: Sequence[dict[str, object]]) -> str:
    return next(path for path in group if any(_has(row, path) for row in rows))
