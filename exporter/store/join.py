"""Joining: what a gateway and an engine wrote about one call becomes one request.

Rows that say on which `side` they were written are joined by a common id (of the request or of
the response), else by a trace that has one call on each side; the nearest in time within the
join window wins. The gateway knows whose request it was, the engine what it cost and where. The
joined row replaces both in `requests` and is flagged `joined`; what each side said by itself
stays in `request_parts`, by which rows that arrive again are recognised.
"""

import duckdb

from exporter.records import TIERS, Request
from exporter.sources.formats.expressions import COMPUTED
from exporter.store.identity import FRESH, Fresh

# Facts of the engine, where it states them.
_ENGINE_FIRST = (
    "replica", "replica_role", "model_fingerprint", "scope", "adapter",
    "queue_seconds", "prefill_seconds", "block_size", "block_hashes",
)  # fmt: skip
# These belong together and come from one side: the engine's if it counted cached tokens, or if
# nobody did.
_COUNTED = (
    "prompt_tokens", "cached_tokens", *(f"cached_{tier}" for tier in TIERS), "prompt_basis",
)  # fmt: skip
_ENGINE_COUNTED = """e.cached_tokens IS NOT NULL
    OR (g.cached_tokens IS NULL AND e.prompt_tokens IS NOT NULL)"""
# The names of a prompt belong together and come from one side: the engine's if it has any.
_OF_CHAIN = (
    "content_hashes", "piece_hashes", "piece_lengths", "text_bytes", "hash_scope", "hash_key_id",
)  # fmt: skip
_FLAGS = """list_filter(
    list_distinct(list_concat(coalesce(g.flags, []), coalesce(e.flags, []), ['joined'])),
    lambda flag: flag <> 'approximate_chain' OR e.block_hashes IS NULL OR e.text_bytes > 0)"""


# An engine writes its API's prefix before the id it was given.
_ID = "regexp_replace({id}, '^(chatcmpl|cmpl)-', '')"
_KEYS = f"""list_distinct(list_filter(
    [{_ID.format(id="request_id")}, {_ID.format(id="response_id")}], lambda id: id IS NOT NULL))"""


def join_fresh(
    cursor: duckdb.DuckDBPyConnection,
    fresh: Fresh,
    window_seconds: float,
    hit_threshold_ratio: float,
) -> int | None:
    """Joins rows of a batch with rows of the other side, stored or in the same batch.

    Returns how many pairs were both in the batch, None if no row was joined. Temp table
    `superseded` then has the stored rows that were replaced, with the position of the fresh row.
    """
    parameters = {"batch": fresh.batch, "window": window_seconds}
    cursor.execute(f"CREATE OR REPLACE TEMP TABLE pairs AS {_PAIRS}", parameters)
    if not cursor.execute("SELECT count(*) FROM pairs").fetchall()[0][0]:
        return None
    batch = {"batch": fresh.batch}
    cursor.execute(
        f"CREATE OR REPLACE TEMP TABLE joined_rows AS {_merged()}",
        {**batch, "hit_threshold_ratio": hit_threshold_ratio},
    )
    cursor.execute(
        "INSERT INTO request_parts SELECT * FROM requests WHERE rowid IN"
        " (SELECT unnest([gateway, engine]) FROM pairs)"
    )
    cursor.execute(
        """CREATE OR REPLACE TEMP TABLE superseded AS
        WITH halves AS (
            SELECT gateway AS row, engine AS other FROM pairs
            UNION ALL SELECT engine, gateway FROM pairs)
        SELECT r.rowid AS stored_row, r.*, o.position AS replaced_by
        FROM halves JOIN requests r ON r.rowid = row JOIN requests o ON o.rowid = other
        WHERE r.batch < $batch AND o.batch = $batch""",
        batch,
    )
    cursor.execute(
        """DELETE FROM requests
        WHERE batch = $batch AND rowid IN (SELECT unnest([gateway, engine]) FROM pairs)""",
        batch,
    )
    cursor.execute("INSERT INTO requests BY NAME SELECT * FROM joined_rows")
    [(pairs, replaced)] = cursor.execute(
        "SELECT (SELECT count(*) FROM pairs), (SELECT count(*) FROM superseded)"
    ).fetchall()
    return int(pairs - replaced)


def _merged() -> str:
    columns = []
    for name in Request.model_fields:
        if name in _COUNTED:
            value = f"CASE WHEN {_ENGINE_COUNTED} THEN e.{name} ELSE g.{name} END"
        elif name in _ENGINE_FIRST:
            value = f"coalesce(e.{name}, g.{name})"
        elif name in ("ttft_seconds", "ttft_point"):
            value = f"CASE WHEN g.ttft_seconds IS NULL THEN e.{name} ELSE g.{name} END"
        else:
            value = _OTHERWISE.get(name, f"coalesce(g.{name}, e.{name})")
        columns.append(f"{value} AS {name}")
    # The block of one side may be what tells how much of the other's count was a hit.
    return f"""SELECT * REPLACE ({COMPUTED["outcome"]} AS outcome)
        FROM (SELECT {", ".join(columns)}, $batch::BIGINT AS batch,
            CASE WHEN g.batch = $batch THEN g.position ELSE e.position END AS position
        FROM pairs JOIN requests g ON g.rowid = gateway JOIN requests e ON e.rowid = engine)"""


_OTHERWISE = {
    # What was found for either is found anew for both.
    "template": """coalesce(CASE WHEN g.found_template IS NULL THEN g.template END,
        CASE WHEN e.found_template IS NULL THEN e.template END)""",
    "side": "NULL",
    **{
        name: f"if(e.block_hashes IS NULL AND g.block_hashes IS NOT NULL, g.{name}, e.{name})"
        for name in _OF_CHAIN
    },
    "hash_key_id": """if(e.block_hashes IS NULL AND g.block_hashes IS NOT NULL,
        g.hash_key_id, coalesce(e.hash_key_id, g.hash_key_id))""",
    "arrived": "greatest(g.arrived, e.arrived)",
    "flags": _FLAGS,
}
_SIDED = "side IS NOT NULL AND replica_role IS DISTINCT FROM 'decode'"
# Rows near the batch in time that could be one of a pair.
_NEAR = f"""SELECT rowid AS row, side, ts, trace_id, prompt_tokens, batch, {_KEYS} AS keys
    FROM requests WHERE {_SIDED}
        AND ts >= (SELECT min(ts) FROM {FRESH}) - to_seconds($window)
        AND ts <= (SELECT max(ts) FROM {FRESH}) + to_seconds($window)"""
_APART = "abs(epoch_us(g.ts) - epoch_us(e.ts))"
_PAIRS = f"""
    WITH near AS MATERIALIZED ({_NEAR}),
    keyed AS (SELECT row, side, ts, batch, unnest(keys) AS key FROM near),
    traced AS (SELECT * FROM near WHERE trace_id IS NOT NULL
        QUALIFY count(*) OVER (PARTITION BY trace_id, side) = 1),
    candidates AS (
        SELECT g.row AS gateway, e.row AS engine, 1 AS rank, {_APART} AS apart
        FROM keyed g JOIN keyed e ON g.key = e.key AND g.side = 'gateway' AND e.side = 'engine'
        WHERE $batch IN (g.batch, e.batch)
        UNION ALL
        SELECT g.row, e.row, 2, {_APART}
        FROM traced g JOIN traced e
            ON g.trace_id = e.trace_id AND g.side = 'gateway' AND e.side = 'engine'
        WHERE $batch IN (g.batch, e.batch)
            AND coalesce(g.prompt_tokens = e.prompt_tokens, true)),
    chosen AS (
        SELECT *,
            row_number() OVER (PARTITION BY gateway ORDER BY rank, apart, engine) AS of_gateway,
            row_number() OVER (PARTITION BY engine ORDER BY rank, apart, gateway) AS of_engine
        FROM candidates WHERE apart <= $window * 1e6)
    SELECT gateway, engine FROM chosen WHERE of_gateway = 1 AND of_engine = 1"""
