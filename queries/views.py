"""The views and macros that questions share, as text: a store runs them on every open."""

from importlib import resources


def is_views(file_name: str) -> bool:
    """Is it a file of views and macros (views.sql, views_*.sql), and not a question?"""
    return file_name.startswith("views") and file_name.endswith(".sql")


def views_sql() -> str:
    """All of them in order of name, views.sql first; a store runs this after its schema."""
    files = sorted(resources.files("queries").iterdir(), key=lambda file: file.name)
    return "\n".join(file.read_text(encoding="utf-8") for file in files if is_views(file.name))
