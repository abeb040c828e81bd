"""The table `LiteLLM_SpendLogs` as it is in one database, and the SQL that reads it.

Of every row the database itself makes one line of JSON, with what the table of the log format and
the naming rules read and nothing else. Most of a row is heavy or secret, and stays where it is.
Versions of LiteLLM differ in their columns: those that are missing, or that our role may not see,
are left out, and the fields made of them are unknown.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from exporter.sources.formats import litellm_spend_logs
from exporter.sources.formats.mapping import LogFormat, parts_of
from exporter.sources.formats.names import HEADER_PLACES
from exporter.sources.name_checks import steps_of
from exporter.sources.names import SourceNames
from exporter.sources.spend_logs.database import Database, DatabaseError

logger = logging.getLogger(__name__)

TABLE = "LiteLLM_SpendLogs"
# What people wrote and what models answered: never asked for, whatever a rule says.
NEVER_READ = ("messages", "response", "proxy_server_request")
# Beside what the table of the format names: the format works spans out of them.
_ALSO_READ = ("request_id", "startTime", "endTime", "completionStartTime", "request_duration_ms")
# A line with more holds something no field of ours is made of.
LINE_LIMIT_BYTES = 1 << 16
# Objects of counts: cheaper to send whole than to take apart.
_WHOLE = (("metadata", "usage_object"), ("metadata", "additional_usage_values"))
# A function takes at most 100 arguments in Postgres.
_MOST_PAIRS = 48

# Key -> what is read of it; empty = the whole value.
Tree = dict[str, "Tree"]


@dataclass(frozen=True)
class Table:
    """The columns that can be read, with their types. `qualified` is the name for SQL."""

    qualified: str
    columns: dict[str, str]

    @property
    def has_zone(self) -> bool:
        """Whether times carry a zone; LiteLLM's own do not, and are UTC."""
        return "with time zone" in self.columns["startTime"]


def find_table(database: Database, name: str = TABLE) -> Table | None:
    """A table of LiteLLM with the columns our role may read; None where there is none.

    Raises DatabaseError where it is there and not to be read.
    """
    qualified = f"{quoted(database.address.schema)}.{quoted(name)}"
    (found,) = database.rows("SELECT to_regclass($1)::oid AS oid", qualified)
    if found["oid"] is None:
        return None
    rows = database.rows(_COLUMNS, found["oid"])
    readable = {row["name"]: row["type"] for row in rows if row["readable"]}
    if not readable:
        raise DatabaseError(
            f"{database.address}: the role may not read {quoted(name)}; let its owner run: "
            f"GRANT SELECT ON {qualified} TO the role (docs/spend-logs.md has a narrower one)"
        )
    return Table(qualified, readable)


def spend_log_table(database: Database) -> Table:
    """The table of spend logs. Raises DatabaseError with the remedy where it cannot be read."""
    table = find_table(database)
    if table is None:
        raise DatabaseError(
            f"{database.address}: there is no table {quoted(TABLE)} in the schema "
            f"{database.address.schema}: is this LiteLLM's database? ?schema=NAME in the address "
            "names another schema"
        )
    missing = [name for name in ("request_id", "startTime") if name not in table.columns]
    if missing:
        raise DatabaseError(
            f"{database.address}: the role may not read {' and '.join(missing)} of "
            f"{quoted(TABLE)}, by which rows are known: see docs/spend-logs.md"
        )
    return table


_COLUMNS = """
SELECT attname AS name, format_type(atttypid, NULL) AS type,
    has_column_privilege(attrelid, attnum, 'SELECT') AS readable
FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped"""


def quoted(name: str) -> str:
    """A name as SQL writes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as SQL writes it; backslashes are themselves in Postgres."""
    return "'" + text.replace("'", "''") + "'"


# ---------------------------------------------------------------- what is read


def wanted(log_format: LogFormat, names: SourceNames | None) -> Tree:
    """Every path that the format or a rule reads."""
    tree: Tree = {}
    for whole in _WHOLE:
        _add(tree, list(whole))
    for path in _paths(log_format):
        _add(tree, parts_of(path))
    for keys in _of_rules(names):
        if keys[0] in NEVER_READ:
            logger.warning("names: %s is not read from a database, because the column may hold "
                           "prompts", ".".join(keys))  # fmt: skip
        else:
            _add(tree, keys)
    return tree


def _paths(log_format: LogFormat) -> Iterator[str]:
    yield from _ALSO_READ
    for field in log_format.fields:
        yield from field.terms()
        yield from (case.path for case in field.cases)
        if field.without:
            yield field.without


def _of_rules(names: SourceNames | None) -> Iterator[list[str]]:
    """Keys of paths of rules, up to the first list."""
    for rules in (names.rules() if names else {}).values():
        for rule in rules:
            if rule.field is None:
                continue
            keys = []
            for step in steps_of(rule.field):
                keys.append(step.key)
                if step.indexes:
                    break
            yield keys


def headers_asked(names: SourceNames | None) -> set[str]:
    """Headers that rules read, in small letters."""
    rules = (rule for listed in (names.rules() if names else {}).values() for rule in listed)
    return {rule.header.lower() for rule in rules if rule.header}


def _add(tree: Tree, keys: list[str]) -> None:
    """A path into the tree. Where the whole of something is read, its parts need no mention."""
    for number, key in enumerate(keys):
        known = key in tree
        if known and not tree[key]:
            return
        if number == len(keys) - 1:
            tree[key] = {}
            return
        tree = tree.setdefault(key, {})


# ---------------------------------------------------------------- the SQL of a row


def line_of(table: Table, tree: Tree, headers: set[str]) -> str:
    """SQL of one row as JSON text. Column `metadata` is `opened.metadata`, unpacked once."""
    pairs = [
        (name, _column(name, table.columns[name], parts, headers))
        for name, parts in tree.items()
        if name in table.columns
    ]
    return f"({_object(pairs)})::text"


def opened(table: Table) -> str:
    """Joins what unpacks a large value once a row rather than once for every part of it."""
    metadata = _as_jsonb("metadata", table.columns.get("metadata", ""))
    return f"CROSS JOIN LATERAL (SELECT {metadata} || '{{}}' AS metadata OFFSET 0) AS opened"


def _column(name: str, kind: str, parts: Tree, headers: set[str]) -> str:
    column = f"t.{quoted(name)}"
    if kind.startswith("timestamp"):
        at = f"{column} AT TIME ZONE 'UTC'" if "with time zone" in kind else column
        return f"""to_char({at}, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
    if not parts or kind not in ("json", "jsonb"):
        return column
    held = _as_jsonb(name, kind)
    value = "opened.metadata" if name == "metadata" else held
    # Text in it may be JSON once more, which the format opens; so it goes as it is.
    return f"""CASE WHEN jsonb_typeof({value}) = 'object'
        THEN {_parts(value, name, parts, headers)}
        WHEN jsonb_typeof({held}) = 'string' THEN {held}::json END"""


def _as_jsonb(name: str, kind: str) -> str:
    """A column as jsonb; NULL for one that is no JSON."""
    if kind not in ("json", "jsonb"):
        return "NULL::jsonb"
    return f"t.{quoted(name)}" + ("::jsonb" if kind == "json" else "")


def _parts(value: str, place: str, parts: Tree, headers: set[str]) -> str:
    pairs = []
    for key, inner in parts.items():
        part = f"{value} -> {literal(key)}"
        pairs.append(
            (key, _parts(f"({part})", f"{place}.{key}", inner, headers) if inner else part)
        )
    return _object([*pairs, *_headers(value, place, parts, headers)])


def _headers(value: str, place: str, parts: Tree, headers: set[str]) -> Iterator[tuple[str, str]]:
    """Objects with the headers of the request: of those only the ones that rules ask for."""
    if not headers:
        return
    listed = ", ".join(literal(name) for name in sorted(headers))
    for full in HEADER_PLACES:
        above, _, key = full.rpartition(".")
        if above == place and key not in parts:
            held = f"{value} -> {literal(key)}"
            yield (
                key,
                f"""(SELECT json_object_agg(key, value) FROM jsonb_each(
                CASE jsonb_typeof({held}) WHEN 'object' THEN {held} END)
                WHERE lower(key) IN ({listed}))""",
            )


def _object(pairs: list[tuple[str, str]]) -> str:
    """A JSON object of keys and SQL of their values."""
    made = [", ".join(f"{literal(key)}, {value}" for key, value in pairs[at : at + _MOST_PAIRS])
            for at in range(0, len(pairs), _MOST_PAIRS)]  # fmt: skip
    if len(made) < 2:  # straight to text, which is quicker
        return f"json_build_object({''.join(made)})"
    return f"({' || '.join(f'jsonb_build_object({chunk})' for chunk in made)})::json"


# ---------------------------------------------------------------- pages


@dataclass(frozen=True)
class Statements:
    """What is asked of the table, page by page in the order of time and id.

    `keys`: start and id of at most `$3` rows behind ($1, $2). `lines`: of the rows from ($1, $2)
    to ($3, $4), without the ids in `$5`, at most `$6`: start, id and line; a line too long to be
    of use is NULL.
    """

    keys: str
    lines: str
    newest: str


def statements(table: Table, names: SourceNames | None) -> Statements:
    time = table.columns["startTime"]
    key = 't."startTime", t.request_id'
    line = line_of(table, wanted(litellm_spend_logs.FORMAT, names), headers_asked(names))
    shown = f"CASE WHEN octet_length(line) <= {LINE_LIMIT_BYTES} THEN line END AS line"
    select = f'SELECT t."startTime" AS start, t.request_id AS id, {line} AS line'
    source = f"FROM {table.qualified} AS t"
    return Statements(
        keys=f"""SELECT t."startTime" AS start, t.request_id AS id {source}
            WHERE t."startTime" >= $1::{time} AND ({key}) > ($1::{time}, $2::text)
            ORDER BY {key} LIMIT $3::bigint""",
        lines=f"""SELECT start, id, {shown} FROM ({select} {source} {opened(table)}
            WHERE t."startTime" BETWEEN $1::{time} AND $3::{time}
                AND ({key}) >= ($1::{time}, $2::text) AND ({key}) <= ($3::{time}, $4::text)
                AND t.request_id <> ALL ($5::text[])
            ORDER BY {key} LIMIT $6::bigint) AS page""",
        newest=f"""SELECT start, id, {shown} FROM ({select} {source} {opened(table)}
            ORDER BY t."startTime" DESC LIMIT $1::bigint) AS page""",
    )
