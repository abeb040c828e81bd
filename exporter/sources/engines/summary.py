"""What a program's metric page tells, in words, worked out from its mapping table.

The command line and the documentation show this; nobody has to keep it up to date.
"""

from typing import NamedTuple

from exporter.sources.engines.mapping import Engine, Row

# The pair behind a hit ratio: hits and what they are a share of, best first.
_PAIRS = (
    ("cached_tokens", "prompt_tokens"),
    ("lookup_hit_tokens", "lookup_tokens"),
    ("hit_count", "lookup_count"),
)
_TELLS = {
    "tiers": ("cached_device", "cached_host", "cached_disk", "cached_remote"),
    "look-ups apart": ("lookup_tokens",),
    "KV memory in use": ("kv_usage_ratio", "kv_running_tokens"),
    "cached and free KV memory": ("kv_cached_tokens",),
    "evictions": ("evicted",),
    "offload": ("offload_tokens", "offload_bytes"),
    "memory of its tiers": ("tier_used",),
    "time to first token": ("ttft_buckets",),
    "prefill time": ("prefill_seconds",),
    "look-ups skipped": ("skipped_count",),
}


class Reports(NamedTuple):
    """What can be seen of one program.

    `hit_ratio` says by which counters, or why not; `observable` is "yes" ("until 0.2.2" where
    newer versions lack it), "amount" (hits, and nothing they could be a share of) or "no".
    """

    observable: str
    hit_ratio: str
    tells: tuple[str, ...]


def reports(engine: Engine) -> Reports:
    """What the table of a program makes visible."""
    observable, hit_ratio = _hit_ratio(engine)
    fields = {row.field for row in engine.rows}
    tells = [name for name, needs in _TELLS.items() if fields.intersection(needs)]
    if engine.tenant_labels:
        tells.append("tenants")
    return Reports(observable, hit_ratio, tuple(tells))


def _hit_ratio(engine: Engine) -> tuple[str, str]:
    by_field: dict[str, Row] = {}
    for row in engine.rows:
        by_field.setdefault(row.field, row)
    found = [(by_field[hits], asked in by_field) for hits, asked in _PAIRS if hits in by_field]
    for row, has_denominator in found:
        if has_denominator:
            return f"until {row.until}" if row.until else "yes", row.provenance or ""
    if found:
        return "amount", f"{found[0][0].provenance}, of how many is not told"
    return "no", engine.notice or "no cached tokens on the page"
