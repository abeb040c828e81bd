"""OpenAI's organization usage API: GET /v1/organization/usage/completions.

Seen in the published schema of November 2026. `input_tokens` is inclusive: cached and written
tokens are in it. Days are UTC. Requests of every API key of the organization are counted, batches
too; embeddings, images and audio have reports of their own.
"""

from datetime import UTC, datetime

from exporter.sources.usage_reports.table import Grain, ReportTable, Sum

# The most buckets a page may have, by their length.
_LIMITS: dict[Grain, int] = {"1d": 31, "1h": 168}


def _moment(value: object) -> datetime:
    """Unix seconds, whole ones."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("no Unix seconds")
    return datetime.fromtimestamp(value, UTC)


def _query(since: datetime, until: datetime | None, grain: Grain) -> list[tuple[str, str]]:
    end = [("end_time", str(int(until.timestamp())))] if until else []
    return [
        ("start_time", str(int(since.timestamp()))), *end, ("bucket_width", grain),
        ("limit", str(_LIMITS[grain])), ("group_by", "model"), ("group_by", "project_id"),
    ]  # fmt: skip


OPENAI = ReportTable(
    provider="openai",
    title="OpenAI",
    url="https://api.openai.com/v1/organization/usage/completions",
    key_variable="OPENAI_ADMIN_KEY",
    key_advice="an admin key of the organization (sk-admin-…, from platform.openai.com, "
    "Settings, Organization, Admin keys); keys of projects cannot read usage",
    headers=lambda key: {"Authorization": f"Bearer {key}"},
    query=_query,
    start="start_time",
    end="end_time",
    moment=_moment,
    measures={
        "requests": Sum(("num_model_requests",), required=False),
        "prompt_tokens": Sum(("input_tokens",)),
        "cached_tokens": Sum(("input_cached_tokens",), required=False),
        "cache_write_tokens": Sum(("input_cache_write_tokens",), required=False),
        "output_tokens": Sum(("output_tokens",), required=False),
    },
    tenant=("project_id", "api_key_id", "user_id"),
)
