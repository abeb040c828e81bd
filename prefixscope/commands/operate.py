"""`formats` and `engines`: what is understood, and from which versions on."""

from exporter.sources.engines import ENGINES, load_engine
from exporter.sources.formats import FORMATS
from prefixscope.output import rows_table, terminal


def formats() -> None:
    """List the log formats that are understood.

    Example: prefixscope formats
    """
    rows = [{"name": f.name, "title": f.title, "versions": f.versions} for f in FORMATS]
    columns = [("format", "name", str), ("what it is", "title", str), ("versions", "versions", str)]
    terminal().print(rows_table(columns, rows))


def engines() -> None:
    """List the engines whose metric pages are understood, and what is read from each.

    Example: prefixscope engines
    """
    rows = []
    for name in ENGINES:
        for row in load_engine(name).rows:
            versions = f"{row.since or ''} – {row.until or ''}".strip()
            rows.append(
                {
                    "engine": name,
                    "measure": row.measure,
                    "exposed": " + ".join(row.exposed),
                    "versions": versions if row.since or row.until else "all seen",
                }
            )
    headings = ("engine", "measure", "exposed", "versions")
    terminal().print(rows_table([(name, name, str) for name in headings], rows))
