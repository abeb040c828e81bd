"""What stands out among the replicas: who is different, who does not answer."""

from dashboard.figures.rows import Row, Rows, number

# In robust standard deviations from the fleet's median ratio; 3.5 is the usual border.
OUTLIER_SCORE = 3.5


def outliers(rows: Rows) -> list[str]:
    """Names of the replicas whose ratio is far from the others', worst first."""
    scored = [(number(row, "outlier_score"), row["replica"]) for row in rows]
    far = [(score, name) for score, name in scored if score is not None and score >= OUTLIER_SCORE]
    return [name for _, name in sorted(far, key=lambda pair: -pair[0])]


def down(rows: Rows) -> list[str]:
    """Names of the replicas whose metrics page does not answer."""
    return [row["replica"] for row in rows if row.get("up") is False]


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
    return "up" if row.get("up") else "not scraped"
