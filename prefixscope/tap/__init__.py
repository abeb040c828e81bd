"""Per-request records for engines that keep none: one ASGI middleware, `Tap`.

Give it to vLLM as `--middleware prefixscope_tap.Tap` (one file, written by
`prefixscope tap --print`), or run it as a small reverse proxy (`prefixscope tap --upstream URL`).
Its modules import the standard library and `replay.hashes` only, and run on Python 3.10: they
are joined into that one file, so no two of them define the same name.
"""

from prefixscope.tap.middleware import Tap

__all__ = ["Tap"]
