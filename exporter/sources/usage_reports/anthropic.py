"""Anthropic's Admin API: GET /v1/organizations/usage_report/messages.

Seen in the published schema of November 2026. Prompt tokens are told in exclusive parts: what was
neither read nor written, what was read from the cache, and what was written by lifetime; their
sum is our inclusive count. Days are UTC. How many requests there were is not told.
"""

from datetime import UTC, datetime

from exporter.sources.usage_reports.table import Grain, ReportTable, Sum

VERSION = "2023-06-01"
# The most buckets a page may have, by their length.
_LIMITS: dict[Grain, int] = {"1d": 31, "1h": 168}
_READ, _WRITTEN = "cache_read_input_tokens", "cache_creation.*"


def _moment(value: object) -> datetime:
    """RFC 3339, with its zone."""
    if not isinstance(value, str):
        raise ValueError("no time")
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError("no zone")
    return moment


def _query(since: datetime, until: datetime | None, grain: Grain) -> list[tuple[str, str]]:
    end = [("ending_at", _text(until))] if until else []
    return [
        ("starting_at", _text(since)), *end, ("bucket_width", grain),
        ("limit", str(_LIMITS[grain])), ("group_by[]", "model"), ("group_by[]", "workspace_id"),
    ]  # fmt: skip


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


ANTHROPIC = ReportTable(
    provider="anthropic",
    title="Anthropic",
    url="https://api.anthropic.com/v1/organizations/usage_report/messages",
    key_variable="ANTHROPIC_ADMIN_KEY",
    key_advice="an Admin API key (sk-ant-admin…, from platform.claude.com, Settings, Admin keys); "
    "keys that send messages cannot read usage, and single accounts have no Admin API",
    headers=lambda key: {"x-api-key": key, "anthropic-version": VERSION},
    query=_query,
    start="starting_at",
    end="ending_at",
    moment=_moment,
    measures={
        "prompt_tokens": Sum(("uncached_input_tokens", _READ, _WRITTEN)),
        "cached_tokens": Sum((_READ,)),
        "cache_write_tokens": Sum((_WRITTEN,)),
        "output_tokens": Sum(("output_tokens",), required=False),
    },
    tenant=("workspace_id", "api_key_id", "account_id", "service_account_id"),
)
