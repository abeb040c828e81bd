"""Rows of one template whose chains are compared: of the last day, as many as fit into little
memory, whole sessions, the same rows whenever the same time is looked at again."""

from dataclasses import dataclass
from datetime import datetime

import duckdb
import pyarrow as pa

# Requests of a template, and hashes of their chains (contents as many): 16 MB, about 100 MB with
# all that is worked out from them.
MOST_REQUESTS, MOST_HASHES = 300, 1_000_000
# Templates that are looked at, those with most prompt tokens first.
MOST_TEMPLATES = 40


@dataclass(frozen=True)
class Asked:
    """A model and template, None where rows give none, and a window, UTC without a zone."""

    model: str | None
    template: str | None
    since: datetime
    until: datetime


def templates(cursor: duckdb.DuckDBPyConnection, since: datetime, until: datetime) -> list[Asked]:
    """What was asked for in the window with chains of tokens, what has most prompt tokens first."""
    rows = cursor.execute(
        _TEMPLATES, {"since": since, "until": until, "most": MOST_TEMPLATES}
    ).fetchall()
    return [Asked(model, template, since, until) for model, template in rows]


def read_sample(cursor: duckdb.DuckDBPyConnection, asked: Asked) -> pa.Table:
    """Its rows with the columns of the question `request_chains`, which `exporter.causes` reads."""
    bounds = {"most_requests": MOST_REQUESTS, "most_hashes": MOST_HASHES}
    return cursor.sql(_READ, params=vars(asked) | bounds).to_arrow_table()


_TEMPLATES = """SELECT model, template FROM requests
    WHERE ts >= $since AND ts < $until AND prompt_tokens > 0 AND len(block_hashes) > 0
        AND replica_role IS DISTINCT FROM 'decode'
    GROUP BY ALL HAVING count(*) > 1
    ORDER BY sum(prompt_tokens) DESC, model, template LIMIT $most"""
_READ = """WITH picked AS (
        SELECT batch, position FROM requests
        WHERE ts >= $since AND ts < $until AND prompt_tokens > 0 AND len(block_hashes) > 0
            AND replica_role IS DISTINCT FROM 'decode'
            AND model IS NOT DISTINCT FROM $model AND template IS NOT DISTINCT FROM $template
        WINDOW in_order AS (
            ORDER BY hash(coalesce(session, concat(batch, '/', position))), batch, position)
        QUALIFY row_number() OVER in_order <= $most_requests
            AND sum(len(block_hashes)) OVER in_order <= $most_hashes
    )
    SELECT
        ts, trace_id, coalesce(session, '') AS session, coalesce(replica, '') AS replica,
        coalesce(provider, '') AS provider, coalesce(model, '') AS model,
        coalesce(model_fingerprint, '') AS model_fingerprint,
        coalesce(tenant, '') AS tenant, coalesce(scope, '') AS scope,
        prompt_tokens, cached_tokens, cache_write_tokens, output_tokens,
        queue_seconds, ttft_seconds, ttft_point, e2e_seconds,
        coalesce(ineligible_reason, '') AS ineligible_reason, block_size,
        block_hashes, content_hashes, piece_hashes, piece_lengths, text_bytes,
        coalesce(hash_scope, '') AS hash_scope, coalesce(hash_key_id, '') AS hash_key_id,
        batch, position
    FROM requests SEMI JOIN picked USING (batch, position)"""
