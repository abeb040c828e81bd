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
    "tensorrt_llm": "exporter.sources.engines.tensorrt_llm:TENSORRT_LLM",
    "tgi": "exporter.sources.engines.tgi:TGI",
    "lmcache": "exporter.sources.engines.lmcache:LMCACHE",
    "lmcache_mp": "exporter.sources.engines.lmcache:LMCACHE_MP",
    "mooncake": "exporter.sources.engines.mooncake:MOONCAKE",
    "dynamo_kvbm": "exporter.sources.engines.dynamo:KVBM",
    "dynamo": "exporter.sources.engines.dynamo:DYNAMO",
    "gie": "exporter.sources.engines.gie:GIE",
    "llm_d": "exporter.sources.engines.llm_d:LLM_D",
    "production_stack": "exporter.sources.engines.production_stack:PRODUCTION_STACK",
    "sglang_router": "exporter.sources.engines.sglang_router:SGLANG_ROUTER",
    "vllm_router": "exporter.sources.engines.vllm_router:VLLM_ROUTER",
    "litellm": "exporter.sources.engines.litellm:LITELLM",
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
