"""What was found stays in the store, so that rows get it on arrival and names outlive a sample."""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from exporter.errors import PrefixscopeError
from exporter.store.store import Store
from exporter.templates_found.assign import found_blocks, rename
from exporter.templates_found.found import PREFIX, FoundTemplate
from exporter.templates_found.names import move_sums, remember

# At most so many are kept; those go that were not seen for longest and have no given name.
MOST_KEPT = 500
# And so many chains by which they are known: one for each scope (a tenant's salt) of each.
MOST_PREFIXES = 20_000
NAME_LIMIT = 256  # of a text in a row


@dataclass(frozen=True)
class Added:
    """How many templates were new, and how many chains of new or known ones."""

    templates: int = 0
    prefixes: int = 0


def keep(store: Store, found: Sequence[FoundTemplate]) -> Added:
    """Adds what was found; a known one keeps its names and whose heir it is."""
    if not found:
        return Added()
    with store.write() as cursor:
        before = _counts(cursor)
        _insert(cursor, "newly_found", _templates(found))
        cursor.execute(
            """INSERT INTO found_templates BY NAME SELECT * EXCLUDE (heir_of) FROM newly_found
            ON CONFLICT DO UPDATE SET first_seen = least(first_seen, excluded.first_seen),
                last_seen = greatest(last_seen, excluded.last_seen)"""
        )
        # A version that comes back is the heir of none.
        cursor.execute(
            """UPDATE found_templates SET heir_of = newly.heir_of
            FROM newly_found newly JOIN found_templates older ON older.name = newly.heir_of
            WHERE found_templates.name = newly.name AND found_templates.heir_of IS NULL
                AND older.first_seen < found_templates.first_seen"""
        )
        _insert(cursor, "newly_known", _prefixes(found))
        cursor.execute(
            """INSERT INTO found_prefixes BY NAME SELECT * FROM newly_known
            ON CONFLICT DO UPDATE SET last_seen = greatest(last_seen, excluded.last_seen)"""
        )
        after = _counts(cursor)
        _bound(cursor)
        store.found_blocks = found_blocks(cursor)
    return Added(*(now - then for now, then in zip(after, before, strict=True)))


def _counts(cursor: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    [(templates, prefixes)] = cursor.execute(
        "SELECT (SELECT count(*) FROM found_templates), (SELECT count(*) FROM found_prefixes)"
    ).fetchall()
    return templates, prefixes


def _templates(found: Sequence[FoundTemplate]) -> pa.Table:
    names = ("name", "prefix", "hash_key_id", "prefix_tokens", "first_seen", "last_seen",
             "requests", "heir_of")  # fmt: skip
    columns = {name: [getattr(one, name) for one in found] for name in names}
    columns["prefix"] = pa.array(columns["prefix"], pa.uint64())
    columns["heir_of"] = pa.array(columns["heir_of"], pa.string())
    return pa.table(columns)


def _prefixes(found: Sequence[FoundTemplate]) -> pa.Table:
    """One template for each chain: two samples may have named it differently; the first stays."""
    pairs = [(known, one) for one in found for known in one.known_by]
    return pa.table(
        {
            "prefix": pa.array([known.prefix for known, _ in pairs], pa.uint64()),
            "hash_key_id": [known.hash_key_id for known, _ in pairs],
            "place": [known.place for known, _ in pairs],
            "blocks": pa.array([known.blocks for known, _ in pairs], pa.int32()),
            "name": [one.name for _, one in pairs],
            "last_seen": [one.last_seen for _, one in pairs],
        }
    )


def _insert(cursor: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> None:
    cursor.register("found_rows", rows)
    cursor.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS FROM found_rows")
    cursor.unregister("found_rows")


def _bound(cursor: duckdb.DuckDBPyConnection) -> None:
    """Forgets what goes beyond the bounds; rows keep the names they got."""
    cursor.execute(
        f"""DELETE FROM found_templates WHERE name IN (SELECT name FROM found_templates
            ORDER BY given_name IS NOT NULL DESC, last_seen DESC, name OFFSET {MOST_KEPT})"""
    )
    cursor.execute(
        f"""DELETE FROM found_prefixes WHERE name NOT IN (SELECT name FROM found_templates)
            OR (prefix, hash_key_id, place) IN (SELECT (prefix, hash_key_id, place)
                FROM found_prefixes ORDER BY last_seen DESC, prefix OFFSET {MOST_PREFIXES})"""
    )
    cursor.execute("DELETE FROM found_names WHERE name NOT IN (SELECT name FROM found_templates)")


def count_seen(cursor: duckdb.DuckDBPyConnection) -> None:
    """How often found templates were asked for, and when first and last, by the rows still hot."""
    cursor.execute(
        """UPDATE found_templates SET requests = seen.requests,
            first_seen = least(found_templates.first_seen, seen.first_seen),
            last_seen = greatest(found_templates.last_seen, seen.last_seen)
        FROM (SELECT found_template AS name, count(*) AS requests, min(ts) AS first_seen,
                max(ts) AS last_seen
            FROM requests WHERE found_template IS NOT NULL GROUP BY ALL) seen
        WHERE seen.name = found_templates.name"""
    )


def give_name(store: Store, name: str, given_name: str) -> int:
    """Calls a found template by a name of the user's from now on, in rows and roll-ups too; returns
    how many rows it renamed. Giving its own `auto:` name takes a given name back.

    Raises PrefixscopeError where there is no such template or the name cannot be one.
    """
    wanted = given_name.strip()
    if not wanted or not wanted.isprintable() or len(wanted) > NAME_LIMIT:
        raise PrefixscopeError(
            f"a template's name is 1 to {NAME_LIMIT} printable letters: choose another"
        )
    if wanted.startswith(PREFIX) and wanted != name:
        raise PrefixscopeError(f"names that begin with {PREFIX} are those found: choose another")
    with store.write() as cursor:
        known = cursor.execute(
            "SELECT coalesce(given_name, name) FROM found_templates WHERE name = $name",
            {"name": name},
        ).fetchall()
        if not known:
            raise PrefixscopeError(
                f"no template found is called {name}: prefixscope templates lists them"
            )
        given = None if wanted == name else wanted
        if given and known != [(given,)]:
            remember(cursor, name, given)
        cursor.execute(
            "UPDATE found_templates SET given_name = $given WHERE name = $name",
            {"name": name, "given": given},
        )
        renamed = rename(cursor, name, wanted)
        move_sums(cursor)
        return renamed
