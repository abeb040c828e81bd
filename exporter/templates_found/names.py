"""Names that users gave to found templates, and what is summed under those they no longer have.

Sums keep no row, so a name can be taken from them only where nothing else was ever called so. A
minute that was being sealed when a template was renamed still gets the older name, which is why
names are remembered for good.
"""

import duckdb

# Sums kept long, by template.
_SUMS = ("hour_rollup", "cause_hours")
_OTHERS_CALLED_SO = " OR ".join(
    [
        "EXISTS (FROM found_templates WHERE given_name = $given)",
        *(f"EXISTS (FROM {table} WHERE template = $given)" for table in ("requests", *_SUMS)),
    ]
)
# Labels that rows came with belong to these rows.
_LEAVE_LABELS = """UPDATE found_names SET is_own = false
    WHERE is_own AND given_name IN (
        SELECT template FROM requests WHERE found_template IS NULL AND template IS NOT NULL)"""
# Names that mean a template and no longer are what it is called.
_OLDER = """
    SELECT name AS older, given_name AS template
    FROM found_templates WHERE given_name IS NOT NULL
    UNION ALL
    SELECT n.given_name AS older, coalesce(t.given_name, name) AS template
    FROM found_names n JOIN found_templates t USING (name)
    WHERE n.is_own AND n.given_name IS DISTINCT FROM t.given_name"""


def remember(cursor: duckdb.DuckDBPyConnection, name: str, given: str) -> None:
    """Note a name that the found template `name` is about to get and does not have yet."""
    names = {"name": name, "given": given}
    cursor.execute(
        "UPDATE found_names SET is_own = false WHERE given_name = $given AND name <> $name", names
    )
    cursor.execute(
        f"""INSERT INTO found_names BY NAME
        SELECT $name AS name, $given AS given_name, NOT ({_OTHERS_CALLED_SO}) AS is_own
        ON CONFLICT DO UPDATE SET is_own = excluded.is_own""",
        names,
    )


def move_sums(cursor: duckdb.DuckDBPyConnection) -> None:
    """Puts what is summed under older names of found templates under what they are called now.
    What a name shared with others stays with them."""
    cursor.execute(_LEAVE_LABELS)
    for table in _SUMS:
        cursor.execute(
            f"""UPDATE {table} SET template = known.template
            FROM ({_OLDER}) known WHERE {table}.template = known.older"""
        )
