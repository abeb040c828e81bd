"""The programs whose metric pages are understood, one module each, loaded with the first page."""

import importlib
import zlib
from functools import cache

from exporter.sources.engines.mapping import Engine

# Name of the program, as samples keep it -> where its table is.
ENGINES = {
    "vllm": "exporter.sources.engines.vllm:VLLM",
    "sglang": "exporter.sources.engines.sglang:SGLANG",
    "llamacpp": "exporter.sources.engines.llamacpp:LLAMACPP",
}


@cache
def load_engine(name: str) -> Engine:
    """The mapping table of a program. Raises KeyError for a name not in ENGINES."""
    module_name, _, attribute = ENGINES[name].partition(":")
    engine = getattr(importlib.import_module(module_name), attribute)
    if not isinstance(engine, Engine):
        raise TypeError(f"{ENGINES[name]} is no engine table")
    return engine


@cache
def tables_fingerprint() -> str:
    """Changes when the tables read other series than before.

    A series never seen before then need not be new: the table that reads it may be.
    """
    names = {name for engine in ENGINES for name in load_engine(engine).series_names}
    return f"{zlib.crc32(chr(10).join(sorted(names)).encode()):08x}"
