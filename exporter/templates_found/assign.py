"""Rows without a template get the one found that their chain begins with; the longest one wins.

A row that names its template keeps it. What was found for a row may be found longer later, and then
changes; `found_template` tells the two apart.
"""

from datetime import datetime
from typing import cast

import duckdb

from exporter.store import rollup
from exporter.store.fold import folded_batch

# SQL condition: a row has a chain and nobody said which template it is of. Names of blocks that
# mean something within one trace only cannot name a template.
UNNAMED = """template IS NULL AND block_hashes IS NOT NULL AND hash_scope IS DISTINCT FROM 'trace'
    AND replica_role IS DISTINCT FROM 'decode'"""
# The same of rows that were looked at before.
NOT_GIVEN = UNNAMED.replace("template IS NULL", "(template IS NULL OR found_template IS NOT NULL)")
# SQL: where the names of a row's blocks mean the same; see `found_prefixes`.
PLACE = "if(hash_scope = 'engine', coalesce(replica, ''), '')"

# Columns that no sum needs.
_LARGE = "block_hashes, content_hashes, piece_hashes, piece_lengths"
_OWN = f"""
    WITH asked AS (
        SELECT rowid AS stored_row, coalesce(hash_key_id, '') AS hash_key_id, {PLACE} AS place,
            unnest(list_transform($blocks, lambda blocks: block_hashes[blocks])) AS prefix
        FROM requests WHERE {{condition}})
    SELECT stored_row, arg_max(name, blocks) AS name,
        arg_max(coalesce(given_name, name), blocks) AS template
    FROM asked JOIN found_prefixes USING (prefix, hash_key_id, place)
        JOIN found_templates USING (name)
    GROUP BY stored_row"""
# Gives the rows of a batch their templates, before they are folded. Parameters: batch, blocks.
ASSIGN_FRESH = f"""UPDATE requests SET template = own.template, found_template = own.name
    FROM ({_OWN.format(condition=f"batch = $batch AND {UNNAMED}")}) own
    WHERE requests.rowid = own.stored_row"""


def found_blocks(cursor: duckdb.DuckDBPyConnection) -> list[int]:
    """How long found templates are, in blocks of their chains: where to look in a chain."""
    rows = cursor.execute("SELECT DISTINCT blocks FROM found_prefixes ORDER BY blocks").fetchall()
    return [blocks for (blocks,) in rows]


def assign_stored(
    cursor: duckdb.DuckDBPyConnection, since: datetime, until: datetime, blocks: list[int]
) -> int:
    """Gives stored rows of a span their templates and moves their sums in the roll-ups; returns how
    many changed. Counters for Prometheus keep what was known when a row arrived: they cannot fall.
    """
    condition = f"ts >= $since AND ts < $until AND {NOT_GIVEN}"
    return _assign(cursor, condition, {"since": since, "until": until, "blocks": blocks})


def assign_later(
    cursor: duckdb.DuckDBPyConnection, after: int, until: int, blocks: list[int]
) -> int:
    """The same for rows of the batches after one up to another that have none yet: what was found
    while they came in."""
    condition = f"batch > $after AND batch <= $until AND {UNNAMED}"
    return _assign(cursor, condition, {"after": after, "until": until, "blocks": blocks})


def _assign(cursor: duckdb.DuckDBPyConnection, condition: str, given: dict[str, object]) -> int:
    cursor.execute(
        f"""CREATE OR REPLACE TEMP TABLE turned AS
        SELECT r.rowid AS stored_row, own.name AS own_name, own.template AS own_template,
            r.* EXCLUDE ({_LARGE})
        FROM requests r JOIN ({_OWN.format(condition=condition)}) own ON r.rowid = own.stored_row
        WHERE (r.template, r.found_template) IS DISTINCT FROM (own.template, own.name)""",
        given,
    )
    return move(cursor)


def move(cursor: duckdb.DuckDBPyConnection) -> int:
    """Gives the rows of temp table `turned` their own template and name, in store and roll-ups;
    returns how many."""
    folded = f"batch <= {folded_batch(cursor)}"
    rollups = (rollup.HOUR,)
    rollup.add(cursor, "turned", where=folded, sign=-1, rollups=rollups)
    moved = "(SELECT * REPLACE (own_template AS template) FROM turned)"
    rollup.add(cursor, moved, where=folded, rollups=rollups)
    cursor.execute(
        """UPDATE requests SET template = turned.own_template, found_template = turned.own_name
        FROM turned WHERE requests.rowid = turned.stored_row"""
    )
    counted = cursor.execute("SELECT count(*) FROM turned").fetchone()
    cursor.execute("DROP TABLE turned")
    return cast(tuple[int], counted)[0]


def rename(cursor: duckdb.DuckDBPyConnection, name: str, template: str) -> int:
    """Gives all stored rows of the found template `name` another template; returns how many
    changed. What is summed of other rows: `names.move_sums`."""
    cursor.execute(
        f"""CREATE OR REPLACE TEMP TABLE turned AS SELECT rowid AS stored_row,
            $name AS own_name, $template AS own_template, * EXCLUDE ({_LARGE})
        FROM requests WHERE found_template = $name AND template IS DISTINCT FROM $template""",
        {"name": name, "template": template},
    )
    return move(cursor)
