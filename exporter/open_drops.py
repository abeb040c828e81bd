"""Since when drops last: when each began, kept in the store so that a restart does not forget it.

A drop is known by its labels. Its class, severity and figures may change while it lasts.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import duckdb

from exporter.store.store import Store
from queries import registry
from queries.on_call.expected import bands
from queries.on_call.onset import onset
from queries.times import utc_without_zone

Labels = tuple[str, str, str, str, str]  # basis, model, route, template, tenant

# A drop that was not seen for so long has ended: the next one is another.
FORGOTTEN_AFTER = timedelta(hours=1)
# As far back as the on-call page looks, so that both say the same.
WINDOWS = 6
STEP_SECONDS = 60


def kept(cursor: duckdb.DuckDBPyConnection, until: datetime) -> dict[Labels, datetime]:
    """Since when the drops last that were seen lately before `until`."""
    rows = cursor.execute(
        "SELECT basis, model, route, template, tenant, since FROM open_drops"
        " WHERE judged > $after AND judged <= $until",
        {"after": utc_without_zone(until - FORGOTTEN_AFTER), "until": utc_without_zone(until)},
    ).fetchall()
    return {(b, m, r, te, ta): since.replace(tzinfo=UTC) for b, m, r, te, ta, since in rows}


def keep(store: Store, drops: Mapping[Labels, datetime], until: datetime) -> None:
    """These last at `until` and no others. Without any, then and now, nothing is written."""
    if not drops and not store.cursor().execute("SELECT 1 FROM open_drops LIMIT 1").fetchall():
        return
    judged = utc_without_zone(until)
    rows = [(*labels, utc_without_zone(since), judged) for labels, since in drops.items()]
    with store.write() as cursor:
        cursor.execute("DELETE FROM open_drops")
        for row in rows:
            cursor.execute("INSERT INTO open_drops VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def began(
    cursor: duckdb.DuckDBPyConnection,
    settings: Mapping[str, object],
    until: datetime,
    labels: Labels,
    level: float,
) -> datetime | None:
    """The minute from which the ratio lies nearer to its present `level` than to what is expected.

    None where that cannot be told: there is no ratio, or it has come back. `settings` are the
    parameters of `peak_drop` that hold for every judgement.
    """
    basis, model, *values = labels
    seconds = settings["window_seconds"]
    assert isinstance(seconds, int)
    window = timedelta(seconds=seconds)
    named = dict(zip(("route", "template", "tenant"), values, strict=True))
    asked: dict[str, object] = {"since": until - WINDOWS * window, "until": until, "model": model}
    asked |= {name: value for name, value in named.items() if value}
    judged = registry.rows(registry.run(cursor, "peak_drop", {**settings, **asked}))
    over_time = "engine_hit_ratio_over_time" if basis == "engine" else "hit_ratio_over_time"
    steps = registry.rows(registry.run(cursor, over_time, {**asked, "step_seconds": STEP_SECONDS}))
    found = onset(steps, bands([row for row in judged if row["basis"] == basis], window), level)
    return None if found is None else found.at
