"""The views and macros that questions share, as text: a store runs them on every open."""

from importlib import resources

# What the views of all other files are built on.
_FIRST = "common.sql"


def views_sql() -> str:
    """All of them, `common.sql` first and the others by name; a store runs this after its schema.

    A file may use what stands in those before it.
    """
    found = [file for file in resources.files(__name__).iterdir() if file.name.endswith(".sql")]
    found.sort(key=lambda file: (file.name != _FIRST, file.name))
    return "\n".join(file.read_text(encoding="utf-8") for file in found)
