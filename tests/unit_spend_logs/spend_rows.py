"""Rows of LiteLLM's spend logs: made up by number, and those of a real run."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from exporter.store.store import Store

RECORDED = Path(__file__).parent / "recorded" / "litellm-1.108.7.jsonl"
# What nobody may ever see: it stands wherever a row can hold what people wrote.
CANARY = "CANARY-prompt-8d21"

Row = dict[str, object]


def minutes_ago(minutes: float) -> datetime:
    """To the millisecond, as the column keeps it."""
    moment = datetime.now(UTC) - timedelta(minutes=minutes)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def row(number: int, start: datetime | None = None, **changes: object) -> Row:
    """A row with 100 + number prompt tokens, of which number are cached; by default it began so
    many minutes ago that the next one is younger."""
    began = start or minutes_ago(60 * 24 - number)
    usage = {"prompt_tokens_details": {"cached_tokens": number}}
    metadata: Row = {
        "usage_object": usage,
        "error_information": {"error_code": None, "traceback": CANARY},
        "proxy_server_request": {"body": CANARY},
        "prompt_management_metadata": {"prompt_id": None, "prompt_variables": {"a": CANARY}},
    }
    return {
        "request_id": f"r-{number:05}", "litellm_call_id": f"c-{number:05}", "api_key": "k",
        "call_type": "acompletion", "spend": 0.01, "prompt_tokens": 100 + number,
        "completion_tokens": 5, "total_tokens": 105 + number, "model": "m", "status": "success",
        "startTime": _iso(began), "endTime": _iso(began + timedelta(seconds=2)),
        "completionStartTime": _iso(began + timedelta(seconds=0.5)), "cache_hit": "False",
        "metadata": metadata, "messages": {"content": CANARY}, "response": {"content": CANARY},
        "proxy_server_request": {"body": CANARY}, "request_tags": ["blue"], **changes,
    }  # fmt: skip


def _iso(moment: datetime) -> str:
    naive = moment.astimezone(UTC).replace(tzinfo=None)
    return f"{naive.isoformat(timespec='milliseconds')}Z"


def prompts(store: Store, source: str = "litellm") -> list[int]:
    """Prompt tokens of every stored row, which tell which rows are there and how often."""
    query = "SELECT prompt_tokens FROM requests WHERE source = $source ORDER BY 1"
    return [n for (n,) in store.cursor().execute(query, {"source": source}).fetchall()]


def recorded(kind: str) -> list[Row]:
    """`spend_log` or `payload` of every call of the recorded run."""
    lines = RECORDED.read_text(encoding="utf-8").splitlines()
    return [json.loads(line)[kind] for line in lines]


def to_milliseconds(rows: Iterable[Row]) -> list[Row]:
    """As they are once the column has rounded their times."""
    return [
        {
            name: _rounded(str(value)) if name.endswith("Time") else value
            for name, value in one.items()
        }
        for one in rows
    ]


def _rounded(text: str) -> str:
    moment = datetime.fromisoformat(text)
    return _iso(moment + timedelta(microseconds=500))
