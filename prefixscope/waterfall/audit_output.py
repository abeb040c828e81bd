"""How audits of scopes and of routing are written beside a waterfall."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rich.console import Console

from exporter.isolation.audit import Audit
from exporter.isolation.routed import RoutedAudit
from exporter.isolation.rows import judged_sums, pair_rows, pair_sums, prefix_rows
from prefixscope import tables
from prefixscope.waterfall.attribution import PartAudit
from replay.counted import counted

# Rows of a table for people; json has up to a thousand.
_SHOWN = 12


@dataclass(frozen=True)
class Audits:
    """Those that were asked for."""

    scopes: Audit | None = None
    routing: RoutedAudit | None = None

    def asked(self) -> list[PartAudit]:
        """In the order in which they are told."""
        return [audit for audit in (self.scopes, self.routing) if audit is not None]

    def facts(self) -> dict[str, object]:
        """For programs."""
        facts: dict[str, object] = {}
        if self.scopes is not None:
            facts["isolation"] = _scope_facts(self.scopes)
        if self.routing is not None:
            facts["routing"] = _routing_rows(self.routing)
        return facts

    def print(self, console: Console) -> None:
        """For people."""
        if self.scopes is not None:
            _print_scopes(console, self.scopes)
        if self.routing is not None:
            console.print()
            rows = _routing_rows(self.routing)
            _print_table(console, rows, _ROUTING, "What routing lost, and how even it was")


def _scope_facts(audit: Audit) -> dict[str, object]:
    judged, sums = judged_sums(audit), pair_sums(audit)
    return {
        "scopes": len(set(audit.table["scope"].to_pylist())),
        "warm_up_seconds": audit.rules.warm_up / timedelta(seconds=1),
        "judged_requests": judged.requests,
        "judged_cached_tokens": judged.cached_tokens,
        "cannot_tell_requests": judged.unclear_requests,
        "cannot_tell_tokens": judged.unclear_tokens,
        **vars(sums),
        "pairs": pair_rows(audit),
        "least_tenants": audit.rules.least_callers,
        "public_prefixes": [_iso(row) for row in prefix_rows(audit)],
    }


def _iso(row: Mapping[str, object]) -> dict[str, object]:
    return {
        name: f"{value:%Y-%m-%dT%H:%M:%S.%fZ}" if isinstance(value, datetime) else value
        for name, value in row.items()
    }


def _routing_rows(audit: RoutedAudit) -> list[dict[str, object]]:
    """One for each model, most prompt tokens first."""
    models = sorted(audit.models.items(), key=lambda entry: -entry[1].prompt_tokens)
    return [
        {
            "model": model,
            "replicas": len(sums.computed_tokens),
            "prompt_tokens": sums.prompt_tokens,
            "routed_tokens": sums.routed_tokens,
            "routed_ratio": sums.routed_ratio,
            "imbalance_ratio": sums.imbalance_ratio,
            "copies_ratio": sums.copies_ratio,
            "computed_tokens": sums.computed_tokens,
        }
        for model, sums in models
    ]


_ROUTING = ("model", "replicas", "prompt_tokens", "routed_tokens", "routed_ratio",
            "imbalance_ratio", "copies_ratio")  # fmt: skip
_PAIRS = ("tenants", "other_tenants", "isolated_tokens", "merged_tokens", "reused_at_least_tokens",
          "reused_requests", "model", "replica", "scope", "other_scope")  # fmt: skip
_PREFIXES = ("prefix", "tokens", "callers", "requests", "won_tokens", "model")


def _print_scopes(console: Console, audit: Audit) -> None:
    pairs = [row for row in pair_rows(audit) if row["other_scope"] is not None]
    console.print()
    _print_table(console, pairs, _PAIRS, "Scopes, and who computed first what they had in common")
    prefixes = prefix_rows(audit)
    if prefixes:
        console.print()
        title = f"Prefixes of so many tenants at least: {audit.rules.least_callers}"
        _print_table(console, prefixes, _PREFIXES, title)
    for note in _scope_notes(audit):
        console.print(note, markup=False, soft_wrap=True)


def _print_table(
    console: Console, rows: Sequence[tables.Row], names: Sequence[str], title: str
) -> None:
    console.print(title if rows else f"{title}: nothing", markup=False, style="bold")
    columns = [(name.replace("_", " "), name, tables.formatter(name)) for name in names]
    if rows:
        tables.print_rows(console, columns, rows[:_SHOWN])


def _scope_notes(audit: Audit) -> Iterator[str]:
    judged, sums = judged_sums(audit), pair_sums(audit)
    if sums.reused_at_least_tokens:
        yield (
            f"At least {sums.reused_at_least_tokens:,} cached tokens of "
            f"{counted(sums.reused_requests, 'request')} had been computed in another scope and "
            "not in their own: the engine does"
            " not keep the scopes apart."
        )
    elif judged.cached_tokens:
        yield (
            f"No reuse across scopes among {counted(judged.requests, 'request')} and"
            f" {judged.cached_tokens - judged.unclear_tokens:,} cached tokens."
        )
    if judged.unclear_tokens:
        days = audit.rules.warm_up / timedelta(days=1)
        yield (
            f"Of {judged.unclear_tokens:,} cached tokens of "
            f"{counted(judged.unclear_requests, 'request')} nobody can tell whose they were: "
            "the log had told of their replica for less than"
            f" {days:g} days (--warm-up), or leaves out who had them."
        )
