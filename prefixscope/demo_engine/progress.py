"""One line every half minute: what the exporter has seen of this run, asked as anybody would."""

from datetime import UTC, datetime
from typing import Any

import requests

from replay.counted import counted

EVERY_SECONDS = 30
_PATIENCE_SECONDS = 10

Rows = list[dict[str, Any]]


def line(exporter: str, since: datetime) -> str:
    """The line of this moment. A question that is not answered in time is left for the next."""
    try:
        tokens, outcomes, ages = (
            _rows(exporter, question, since)
            for question in ("hit_ratio", "ttft_by_outcome", "block_ages")
        )
    except requests.RequestException as error:
        return f"{_clock()}  the exporter did not answer: {error}"
    return f"{_clock()}  {text(tokens, outcomes, ages)}"


def _rows(exporter: str, question: str, since: datetime) -> Rows:
    reply = requests.get(
        f"{exporter}/api/v1/query/{question}",
        params={"since": since.isoformat()},
        timeout=_PATIENCE_SECONDS,
    )
    reply.raise_for_status()
    rows: Rows = reply.json()
    return rows


def text(tokens: Rows, outcomes: Rows, ages: Rows) -> str:
    """Requests by outcome, tokens from cache, and what had to make room.

    This engine reports the age of every block it loses (others sample), so that ages can be
    counted; and it loses them to others only, since nothing clears its cache.
    """
    ratio = tokens[0]["token_hit_ratio"] if tokens else None
    if ratio is None:
        return "no request has been recorded yet"
    requests = {row["outcome"]: row["requests"] for row in outcomes}
    evicted = sum(row["sampled"] for row in ages if row["kind"] == "lifetime")
    kinds = ", ".join(f"{requests.get(kind, 0)} {kind}" for kind in ("hit", "partial", "miss"))
    return (
        f"{ratio:.1%} of {tokens[0]['reported_prompt_tokens']:,} prompt tokens came from cache; "
        f"requests: {kinds}; {counted(evicted, 'block')} evicted"
    )


def _clock() -> str:
    return f"{datetime.now(UTC):%H:%M:%S}"
