"""Log formats: an explicit list, most telling signature first.

A format lower in the list may recognise rows of one above it, never the other way round, so
the order decides. To add one: write a module with a `FORMAT` table and put it here.
"""

from exporter.errors import PrefixscopeError
from exporter.sources.formats import anthropic, capture, ndjson, openai
from exporter.sources.formats.mapping import LogFormat

FORMATS: tuple[LogFormat, ...] = (
    capture.FORMAT,
    anthropic.FORMAT,
    openai.FORMAT,
    ndjson.FORMAT,
)


def format_named(name: str) -> LogFormat:
    """The format called `name`; an unknown name is an error that lists the known ones."""
    for log_format in FORMATS:
        if log_format.name == name:
            return log_format
    known = ", ".join(log_format.name for log_format in FORMATS)
    raise PrefixscopeError(f"no log format is called {name!r}; known formats: auto, {known}")
