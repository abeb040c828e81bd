"""Rows of templates whose chains are compared: as many as fit into little memory, whole sessions,
the same rows whenever the same time is looked at again.

Chains are large and lie where rows came in, so that a row here and there costs as much as all: rows
of many templates are read in one pass.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

import duckdb
import pyarrow as pa

# Requests of a template.
MOST_REQUESTS = 300
# Hashes of chains, contents as many, of a template, and of all that are read in one pass: 16 MB,
# about 100 MB with all that is worked out from them.
MOST_HASHES = 1_000_000
# Templates that are looked at, those with most prompt tokens first.
MOST_TEMPLATES = 40


@dataclass(frozen=True)
class Asked:
    """A model and template, None where rows give none, and a window, UTC without a zone."""

    model: str | None
    template: str | None
    since: datetime
    until: datetime


@dataclass(frozen=True)
class _Planned:
    number: int
    asked: Asked
    hashes: int


def samples(
    cursor: duckdb.DuckDBPyConnection, since: datetime, until: datetime
) -> Iterator[tuple[Asked, pa.Table]]:
    """Rows of each template in the window that have chains, what has most prompt tokens first, with
    the columns of the question `request_chains`, which `exporter.causes` reads."""
    bounds = {"since": since, "until": until, "most_templates": MOST_TEMPLATES,
              "most_requests": MOST_REQUESTS, "most_hashes": MOST_HASHES}  # fmt: skip
    cursor.execute(_PICK, bounds)
    rows = cursor.execute(_PLAN).fetchall()
    planned = [
        _Planned(number, Asked(model, template, since, until), hashes)
        for number, model, template, hashes in rows
    ]
    for templates in _passes(planned):
        numbers = {"first": templates[0].number, "last": templates[-1].number}
        table = cursor.sql(_READ, params=numbers).to_arrow_table()
        for each in templates:
            own = table.filter(pa.compute.equal(table["number"], each.number))
            yield each.asked, own.drop_columns(["number"])
    cursor.execute("DROP TABLE layout_picked")


def _passes(planned: Sequence[_Planned]) -> Iterator[list[_Planned]]:
    """Templates in their order, together as long as they are few hashes."""
    sums, total, passed = [], 0, 0
    for each in planned:
        total += each.hashes
        if total > MOST_HASHES:
            passed, total = passed + 1, each.hashes
        sums.append((passed, each))
    for _, group in groupby(sums, key=lambda pair: pair[0]):
        yield [each for _, each in group]


_PICK = """CREATE OR REPLACE TEMP TABLE layout_picked AS
    WITH asked AS (
        SELECT batch, position, session, model, template, prompt_tokens, len(block_hashes) AS blocks
        FROM requests
        WHERE ts >= $since AND ts < $until AND prompt_tokens > 0
            AND len(block_hashes) BETWEEN 1 AND $most_hashes
            AND replica_role IS DISTINCT FROM 'decode'
    ),
    templates AS (
        SELECT model, template, row_number() OVER (
            ORDER BY sum(prompt_tokens) DESC, model, template) AS number
        FROM asked GROUP BY model, template HAVING count(*) > 1
    )
    SELECT number, templates.model, templates.template, batch, position, blocks
    FROM asked JOIN templates ON asked.model IS NOT DISTINCT FROM templates.model
        AND asked.template IS NOT DISTINCT FROM templates.template
    WHERE number <= $most_templates
    WINDOW in_order AS (PARTITION BY number ORDER BY
        hash(coalesce(session, concat(batch, '/', position))), batch, position)
    QUALIFY row_number() OVER in_order <= $most_requests
        AND sum(blocks) OVER in_order <= $most_hashes"""
_PLAN = """SELECT number, model, template, sum(blocks)::BIGINT FROM layout_picked
    GROUP BY number, model, template ORDER BY number"""
_READ = """WITH wanted AS (
        SELECT number, batch, position FROM layout_picked WHERE number BETWEEN $first AND $last
    )
    SELECT
        number, ts, trace_id, coalesce(session, '') AS session, coalesce(replica, '') AS replica,
        coalesce(provider, '') AS provider, coalesce(model, '') AS model,
        coalesce(model_fingerprint, '') AS model_fingerprint,
        coalesce(tenant, '') AS tenant, coalesce(scope, '') AS scope,
        prompt_tokens, cached_tokens, cache_write_tokens, output_tokens,
        queue_seconds, ttft_seconds, ttft_point, e2e_seconds,
        coalesce(ineligible_reason, '') AS ineligible_reason, block_size,
        block_hashes, content_hashes, piece_hashes, piece_lengths, text_bytes,
        coalesce(hash_scope, '') AS hash_scope, coalesce(hash_key_id, '') AS hash_key_id,
        batch, position
    FROM requests JOIN wanted USING (batch, position)"""
