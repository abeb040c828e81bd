"""The engines whose metric pages are understood, one module each, loaded when first met."""

import importlib
from functools import cache

from exporter.sources.engines.mapping import Engine

# Engine name -> where its table is. The name is also the prefix of its metrics.
ENGINES = {
    "vllm": "exporter.sources.engines.vllm:VLLM",
    "sglang": "exporter.sources.engines.sglang:SGLANG",
    "llamacpp": "exporter.sources.engines.llamacpp:LLAMACPP",
}


@cache
def load_engine(name: str) -> Engine:
    """The mapping table of an engine. Raises KeyError for a name not in ENGINES."""
    module_name, _, attribute = ENGINES[name].partition(":")
    engine = getattr(importlib.import_module(module_name), attribute)
    if not isinstance(engine, Engine):
        raise TypeError(f"{ENGINES[name]} is no engine table")
    return engine
