"""Layout findings of the templates in a store, kept as a whole in `layout_findings` and
`template_ranges`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from exporter.causes.rows import Part, parts_of
from exporter.layout_found.command import lint_command
from exporter.layout_found.sample import Asked, samples
from exporter.store.store import Store
from replay.layout_chains.findings import layout_findings
from replay.layout_chains.groups import groups_of
from replay.layout_chains.prompts import Prompts
from replay.layout_chains.ranges import ranges_of
from replay.layout_chains.words import advice_on

# How far back is looked.
WINDOW = timedelta(days=1)
# Of rows without a template, groups of fewer requests are not looked at.
MIN_GROUP_REQUESTS = 5

Row = dict[str, Any]

_APPROXIMATE = " Prompts are known by chunks of their text, so that all counts are approximate."

_NEWEST = "SELECT max(ts) FROM requests WHERE len(block_hashes) > 0"
_ADD_FINDING = """INSERT INTO layout_findings BY NAME SELECT
    $window_since AS window_since, $window_until AS window_until, $model AS model,
    $template AS template, '' AS segment, $kind AS kind, $frequency AS frequency,
    $from_token AS from_token, $until_token AS until_token, $requests AS requests,
    $template_requests AS template_requests, $prompt_tokens AS prompt_tokens,
    $lost_tokens AS lost_tokens, $gain_tokens AS gain_tokens, $since AS since,
    $warm_again_by AS warm_again_by, $advice AS advice, $command AS command"""
_ADD_RANGE = """INSERT INTO template_ranges BY NAME SELECT
    $window_since AS window_since, $window_until AS window_until, $model AS model,
    $template AS template, $template_requests AS template_requests,
    $from_token AS from_token, $until_token AS until_token, $requests AS requests,
    $same_requests AS same_requests, $reuse_requests AS reuse_requests,
    $content_requests AS content_requests"""


@dataclass(frozen=True)
class Judged:
    """What is written: a dict for each row of the two tables."""

    findings: list[Row]
    ranges: list[Row]


def judge_layout(store: Store, until: datetime) -> Judged:
    """Look at the day before `until` (UTC without a zone) and keep what was found instead of what
    was kept before."""
    judged = found_in(store.cursor(), until - WINDOW, until)
    with store.write() as cursor:
        cursor.execute("DELETE FROM layout_findings")
        cursor.execute("DELETE FROM template_ranges")
        for row in judged.findings:
            cursor.execute(_ADD_FINDING, row)
        for row in judged.ranges:
            cursor.execute(_ADD_RANGE, row)
    return judged


def judge_newest(store: Store) -> None:
    """The same of the last day that has rows with chains; nothing where there are none."""
    [(newest,)] = store.cursor().execute(_NEWEST).fetchall()
    if newest is not None:
        judge_layout(store, newest + timedelta(seconds=1))


def found_in(cursor: duckdb.DuckDBPyConnection, since: datetime, until: datetime) -> Judged:
    """What there is to find from `since` to before `until`, kept nowhere. Templates without chains
    have no rows."""
    judged = Judged([], [])
    for asked, table in samples(cursor, since, until):
        for part, prompts in _groups(table, asked):
            judged.findings.extend(_finding_rows(asked, part, prompts))
            judged.ranges.extend(_range_rows(asked, part, prompts))
    return judged


def _groups(table: pa.Table, asked: Asked) -> Iterator[tuple[Part, Prompts]]:
    """Requests that can be compared; without a template, those that seem to have the same."""
    for part in parts_of(table, approximate=True):
        prompts = _prompts(table, part)
        if asked.template is not None:
            yield part, prompts
            continue
        for rows in groups_of(prompts):
            if len(rows) >= MIN_GROUP_REQUESTS:
                yield part, prompts.taken(rows)


def _prompts(table: pa.Table, part: Part) -> Prompts:
    """The rows of a part that are judged by its rule. Those known by their text are in units of it,
    and what was cached of them is not compared with their chunks: neither is exact."""
    traffic, judged = part.traffic, np.flatnonzero(part.judged)
    rows = part.rows[judged]
    whole = len(judged) == len(part.rows)
    chains = traffic.chains if whole else traffic.chains.sorted(judged)
    own = table.take(rows)
    started = own["ts"].cast(pa.int64()).to_numpy() / 1e6
    return Prompts.of(
        chains,
        pieces=traffic.pieces if whole else None,
        prompt_tokens=traffic.prompt_tokens[judged],
        cached_tokens=None if part.scale else traffic.cached_tokens[judged],
        output_tokens=None if part.scale else own["output_tokens"].fill_null(0).to_numpy(),
        started=started,
        ready=started if traffic.ready is None else traffic.ready[judged],
        **{name: own[name].to_pylist() for name in ("session", "tenant", "scope", "replica")},
    )


def _finding_rows(asked: Asked, part: Part, prompts: Prompts) -> Iterator[Row]:
    scaled = _scaling(part)
    tokens = scaled(int(prompts.prompt_tokens.sum()))
    block = part.rule.block_tokens or prompts.grain_tokens
    for in_units in layout_findings(prompts, part.rule, part.is_hosted):
        found = in_units.scaled(scaled)
        yield _head(asked) | {
            "kind": found.kind,
            "frequency": found.frequency,
            "from_token": found.from_token,
            "until_token": found.until_token,
            "requests": found.requests,
            "template_requests": found.template_requests,
            "prompt_tokens": tokens,
            "lost_tokens": found.lost_tokens,
            "gain_tokens": found.gain_tokens,
            "since": _stored(found.since),
            "warm_again_by": _stored(found.warm_again_by),
            "advice": advice_on(found, tokens, block) + (_APPROXIMATE if part.scale else ""),
            "command": lint_command(asked.template, *_span(asked, prompts)),
        }


def _scaling(part: Part) -> Callable[[int], int]:
    """From what a part counts in to tokens, as they usually are in its requests."""
    if part.scale is None:
        return lambda tokens: tokens
    prompts, units = int(part.scale.prompt_tokens.sum()), int(part.scale.prompt_units.sum())
    return lambda counted: round(counted * prompts / max(units, 1))


def _span(asked: Asked, prompts: Prompts) -> tuple[datetime, datetime]:
    """When the requests came that were looked at."""
    first, last = _stored(float(prompts.started[0])), _stored(float(prompts.started[-1]))
    return first or asked.since, last or asked.until


def _range_rows(asked: Asked, part: Part, prompts: Prompts) -> Iterator[Row]:
    scaled = _scaling(part)
    for each in ranges_of(prompts):
        span = {"from_token": scaled(each.from_token), "until_token": scaled(each.until_token)}
        yield _head(asked) | {"template_requests": len(prompts)} | vars(each) | span


def _head(asked: Asked) -> Row:
    return {
        "window_since": asked.since,
        "window_until": asked.until,
        "model": asked.model,
        "template": asked.template,
    }


def _stored(seconds: float | None) -> datetime | None:
    """As the store keeps times; none where there is none."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
