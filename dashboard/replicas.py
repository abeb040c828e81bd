"""The state of replicas in words: who does not answer, whose figures cannot be trusted."""

from dashboard.figures.rows import Row, Rows


def table_rows(rows: Rows) -> list[Row]:
    """The rows with their state in words."""
    return [{**row, "state": state(row)} for row in rows]


def state(row: Row) -> str:
    """Can this replica's figures be trusted? The worst thing first."""
    if row.get("up") is False:
        return f"down: {row.get('error') or 'no answer'}"
    if row.get("frozen"):
        return "frozen: its counters stand still"
    if row.get("caching_enabled") is False:
        return "prefix caching is off"
    if row.get("missing_metrics"):
        return f"missing: {', '.join(row['missing_metrics'])}"
    if not row.get("up"):
        return "not scraped"
    observer = row.get("observer") or "engine"
    return "up" if observer == "engine" else f"up, a {_PROGRAMS[observer]} and no replica"


_PROGRAMS = {"kv_store": "KV store", "router": "router", "gateway": "gateway"}
