"""Which columns the tables of Why show. Definitions come from the questions' headers."""

from dashboard.figures.rows import Rows, number
from dashboard.tables import Column
from replay.causes import CAUSES

MISSED = (
    Column("cause", "cause", "text", "missed_tokens"),
    Column("tokens", "tokens", "count", "missed_tokens"),
    Column("missed_ratio", "of what missed", "bar", "missed_tokens"),
    Column("prompt_ratio", "of prompt tokens", "ratio", "missed_tokens"),
)

LAYOUT = (
    Column("template", "template", "name", "layout"),
    Column("kind", "kind", "text", "layout"),
    Column("frequency", "changes", "text", "layout"),
    Column("from_token", "from token", "count", "layout"),
    Column("until_token", "to", "count", "layout"),
    Column("share_ratio", "of its requests", "ratio", "layout"),
    Column("gain_ratio", "a fix wins about", "ratio", "layout"),
    Column("gain_tokens", "tokens", "count", "layout"),
    Column("since", "since (UTC)", "moment", "layout"),
    Column("warm_again_by", "warm again by (UTC)", "moment", "layout"),
    Column("model", "model", "name", "layout"),
    Column("advice", "what it is, and what to do", "text", "layout"),
)

FOUND = (
    Column("name", "name", "name", "found_templates"),
    Column("given_name", "called", "text", "found_templates"),
    Column("prompt_ratio", "of prompt tokens", "bar", "found_templates"),
    Column("prefix_tokens", "length, tokens", "count", "found_templates"),
    Column("shared_ratio", "the prefix of them", "ratio", "found_templates"),
    Column("requests", "requests", "count", "found_templates"),
    Column("heir_of", "took over from", "text", "found_templates"),
    Column("first_seen", "first seen (UTC)", "moment", "found_templates"),
    Column("last_seen", "last seen (UTC)", "moment", "found_templates"),
)

CROSSED = (
    Column("replica", "replica", "name", "cross_scope_reuse"),
    Column("tenant", "tenant", "name", "cross_scope_reuse"),
    Column("likely_other_tenants", "likely computed for", "text", "cross_scope_reuse"),
    Column("reused_at_least_tokens", "tokens at least", "count", "cross_scope_reuse"),
    Column("reused_at_most_tokens", "at most", "count", "cross_scope_reuse"),
    Column("reused_requests", "requests", "count", "cross_scope_reuse"),
    Column("last_ts", "last (UTC)", "moment", "cross_scope_reuse"),
    Column("model", "model", "name", "cross_scope_reuse"),
)

ISOLATED = (
    Column("tenants", "tenants", "text", "isolation"),
    Column("other_tenants", "computed first for", "text", "isolation"),
    Column("isolated_tokens", "lost to scopes, tokens", "count", "isolation"),
    Column("merged_tokens", "shared if merged, tokens", "count", "isolation"),
    Column("merged_requests", "requests", "count", "isolation"),
    Column("replica", "replica", "name", "isolation"),
    Column("model", "model", "name", "isolation"),
)

PUBLIC = (
    Column("prefix", "prefix", "text", "public_prefixes"),
    Column("tokens", "length, tokens", "count", "public_prefixes"),
    Column("callers", "tenants", "count", "public_prefixes"),
    Column("scopes", "scopes", "count", "public_prefixes"),
    Column("requests", "requests", "count", "public_prefixes"),
    Column("won_tokens", "one scope wins at most, tokens", "count", "public_prefixes"),
    Column("model", "model", "name", "public_prefixes"),
)

ROUTING = (
    Column("model", "model", "name", "routing_losses"),
    Column("routed_ratio", "routed, of prompt tokens", "bar", "routing_losses"),
    Column("routed_tokens", "tokens", "count", "routing_losses"),
    Column("imbalance_ratio", "busiest ÷ mean", "factor", "routing_losses"),
    Column("busiest_replica", "busiest replica", "name", "routing_losses"),
    Column("copies_ratio", "copies of a block", "factor", "routing_losses"),
    Column("replicas", "replicas", "count", "routing_losses"),
    Column("prompt_tokens", "prompt tokens", "count", "routing_losses"),
)


def waterfall_columns(by: str, rows: Rows) -> tuple[Column, ...]:
    """Cached and every cause that any of the rows has tokens of."""
    causes = [cause for cause in CAUSES if any(number(row, f"{cause}_tokens") for row in rows)]
    return (
        Column(by, by, "name", meaning=f"The {by}; “(not given)” where rows do not say."),
        Column("prompt_tokens", "prompt tokens", "count", "waterfall"),
        Column("cached_tokens", "cached", "count", "waterfall"),
        *(Column(f"{cause}_tokens", cause, "count", "waterfall") for cause in causes),
        Column("explained_ratio", "explained", "ratio", "waterfall"),
    )
