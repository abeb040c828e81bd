"""LiteLLM's tables as its migrations of several times make them, by their columns.

The first is its baseline of March 2025, the last its schema of November 2026 (LiteLLM 1.110). A
test compares the last with LiteLLM's own migrations where those are at hand.
"""

from dataclasses import dataclass

Columns = dict[str, str]

_TEXT = "TEXT NOT NULL DEFAULT ''"
_COUNT = "INTEGER NOT NULL DEFAULT 0"
_BIG = "BIGINT NOT NULL DEFAULT 0"
_MONEY = "DOUBLE PRECISION NOT NULL DEFAULT 0.0"

_BASELINE: Columns = {
    "request_id": "TEXT NOT NULL PRIMARY KEY",
    "call_type": "TEXT NOT NULL",
    "api_key": _TEXT,
    "spend": _MONEY,
    "total_tokens": _COUNT,
    "prompt_tokens": _COUNT,
    "completion_tokens": _COUNT,
    "startTime": "TIMESTAMP(3) NOT NULL",
    "endTime": "TIMESTAMP(3) NOT NULL",
    "completionStartTime": "TIMESTAMP(3)",
    "model": _TEXT,
    "model_id": "TEXT DEFAULT ''",
    "model_group": "TEXT DEFAULT ''",
    "custom_llm_provider": "TEXT DEFAULT ''",
    "api_base": "TEXT DEFAULT ''",
    "user": "TEXT DEFAULT ''",
    "metadata": "JSONB DEFAULT '{}'",
    "cache_hit": "TEXT DEFAULT ''",
    "cache_key": "TEXT DEFAULT ''",
    "request_tags": "JSONB DEFAULT '[]'",
    "team_id": "TEXT",
    "end_user": "TEXT",
    "requester_ip_address": "TEXT",
    "messages": "JSONB DEFAULT '{}'",
    "response": "JSONB DEFAULT '{}'",
}
_BY_DECEMBER_2025: Columns = {
    **_BASELINE,
    "session_id": "TEXT",
    "status": "TEXT",
    "proxy_server_request": "JSONB DEFAULT '{}'",
    "mcp_namespaced_tool_name": "TEXT",
    "organization_id": "TEXT",
    "agent_id": "TEXT",
}
_NEWEST: Columns = {
    **_BY_DECEMBER_2025,
    "request_duration_ms": "INTEGER",
    "created_at": "TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP",
    "updated_at": "TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP",
    "litellm_call_id": "TEXT",
    "billing_agent_id": "TEXT",
}


@dataclass(frozen=True)
class Era:
    """The table of spend logs at one time, and on what it has an index beside its key."""

    spend_logs: Columns
    indexed: tuple[str, ...]


ERAS = {
    "2025-03": Era(_BASELINE, ('"startTime"', "end_user")),
    "2025-12": Era(_BY_DECEMBER_2025, ('"startTime"', "end_user", "session_id")),
    "2026-11": Era(_NEWEST, ('"startTime"', '"startTime", request_id', "litellm_call_id")),
}

_DAILY: Columns = {
    "id": "TEXT NOT NULL PRIMARY KEY DEFAULT gen_random_uuid()::text",
    "date": "TEXT NOT NULL",
    "api_key": "TEXT NOT NULL",
    "model": "TEXT",
    "model_group": "TEXT",
    "custom_llm_provider": "TEXT",
    "mcp_namespaced_tool_name": "TEXT",
    "endpoint": "TEXT",
    "prompt_tokens": _BIG,
    "completion_tokens": _BIG,
    "cache_read_input_tokens": _BIG,
    "cache_creation_input_tokens": _BIG,
    "compression_saved_tokens": _BIG,
    "compression_savings_spend": _MONEY,
    "prompt_caching_savings_spend": _MONEY,
    "gateway_injected_caching_savings_spend": _MONEY,
    "autorouter_savings_spend": _MONEY,
    "spend": _MONEY,
    "api_requests": _BIG,
    "successful_requests": _BIG,
    "failed_requests": _BIG,
    "total_response_time_ms": _BIG,
    "timed_requests": _BIG,
    "created_at": "TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP",
    "updated_at": "TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP",
}
DAILY_USER: Columns = {**_DAILY, "user_id": "TEXT"}
DAILY_TEAM: Columns = {**_DAILY, "team_id": "TEXT", "ptu_flat_cost": _MONEY}
# Their first version, of March 2025: before cached tokens were counted.
OLDEST_DAILY_USER: Columns = {
    name: kind
    for name, kind in DAILY_USER.items()
    if name
    in (
        "id", "user_id", "date", "api_key", "model", "model_group", "custom_llm_provider",
        "prompt_tokens", "completion_tokens", "spend", "created_at", "updated_at",
    )
}  # fmt: skip
CONFIG: Columns = {"param_name": "TEXT NOT NULL PRIMARY KEY", "param_value": "JSONB"}


def create(name: str, columns: Columns) -> str:
    """The statement that makes a table."""
    listed = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
    return f'CREATE TABLE "{name}" ({listed})'
