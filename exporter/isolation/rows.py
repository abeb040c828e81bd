"""An audit as rows, the same for the command and for the store."""

from collections.abc import Iterator

from exporter.isolation.audit import Audit, Judged, ScopePair

# Of pairs and prefixes the largest: a fleet with a scope for every user has millions.
MOST_ROWS = 1000

Row = dict[str, object]


def pair_rows(audit: Audit) -> list[Row]:
    """One for each model, replica, scope and the scope that computed first, those that say most
    first; and one for each of which something cannot be told (`other_scope` None)."""
    tenants = audit.tenants()
    found = sorted(audit.pairs.items(), key=lambda entry: _weight(entry[1]), reverse=True)
    rows: list[Row] = [
        {
            **_named(group, tenants),
            "other_scope": other,
            "other_tenants": tenants.get(other, ""),
            **vars(pair),
            "cannot_tell_requests": 0,
            "cannot_tell_tokens": 0,
        }
        for (group, other), pair in found[:MOST_ROWS]
    ]
    return [*rows, *_unclear_rows(audit, tenants)]


def _weight(pair: ScopePair) -> tuple[int, int, int]:
    return pair.reused_at_least_tokens, pair.isolated_tokens, pair.merged_tokens


def _named(group: tuple[str, str, str], tenants: dict[str, str]) -> Row:
    model, replica, scope = group
    named = {"model": model, "replica": replica, "scope": scope}
    return {**named, "tenants": tenants.get(scope, "")}


def _unclear_rows(audit: Audit, tenants: dict[str, str]) -> Iterator[Row]:
    unclear = [(group, judged) for group, judged in audit.judged.items() if judged.unclear_requests]
    unclear.sort(key=lambda entry: -entry[1].unclear_tokens)
    nothing = vars(ScopePair())
    for group, judged in unclear[:MOST_ROWS]:
        yield {
            **_named(group, tenants),
            "other_scope": None,
            "other_tenants": None,
            **nothing,
            "cannot_tell_requests": judged.unclear_requests,
            "cannot_tell_tokens": judged.unclear_tokens,
        }


def prefix_rows(audit: Audit) -> list[Row]:
    """Public prefixes, the most tokens won first."""
    return [
        {
            "model": prefix.model,
            "prefix": prefix.name,
            "tokens": prefix.found.tokens,
            "callers": prefix.found.callers,
            "scopes": prefix.found.scopes,
            "requests": prefix.found.requests,
            "won_tokens": prefix.found.won_tokens,
            "first_ts": prefix.first,
            "last_ts": prefix.last,
        }
        for prefix in audit.prefixes[:MOST_ROWS]
    ]


def judged_sums(audit: Audit) -> Judged:
    """Over all models, replicas and scopes."""
    total = Judged()
    for each in audit.judged.values():
        for name, tokens in vars(each).items():
            setattr(total, name, getattr(total, name) + tokens)
    return total


def pair_sums(audit: Audit) -> ScopePair:
    """Over all pairs. A request that has to do with several scopes counts for each."""
    total = ScopePair()
    for each in audit.pairs.values():
        for name, tokens in vars(each).items():
            setattr(total, name, getattr(total, name) + tokens)
    return total
