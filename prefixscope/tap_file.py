"""Writes the tap as one file, to be mounted beside an engine: its modules, joined.

The modules of `prefixscope.tap` are put one after another in the order they need each other,
the hash functions in front, without their imports of each other. So there is one source of
everything, and the file imports the standard library alone.
"""

import ast
from pathlib import Path

import prefixscope.tap
import replay.hashes
from prefixscope import __version__

# Each module needs only those before it.
MODULES = (
    "settings", "usage", "watching", "asking", "asked", "tokenizing", "sinks", "key", "rows",
    "recorder", "middleware",
)  # fmt: skip
_OUR_PACKAGES = ("prefixscope", "replay")

_HEAD = '''"""The tap of prefixscope {version} in one file, for `--middleware prefixscope_tap.Tap`.

Written by `prefixscope tap --print`: do not edit, print it again. Settings are environment
variables, PREFIXSCOPE_TAP_...; PREFIXSCOPE_TAP_FILE or PREFIXSCOPE_TAP_POST is needed.
It imports the standard library only and needs Python 3.10 or newer, on a POSIX system.
License: Apache-2.0.
"""
'''


Imports = dict[str, set[str]]


def one_file() -> str:
    """The text of the file."""
    package = Path(str(prefixscope.tap.__file__)).parent
    paths = [Path(str(replay.hashes.__file__)), *(package / f"{name}.py" for name in MODULES)]
    imports: Imports = {}
    parts = []
    for path in paths:
        rest = _without_imports(path.read_text(encoding="utf-8"), imports)
        parts.append(f"\n\n# {'-' * 60} {path.parent.name}/{path.name}\n\n{rest.strip()}\n")
    return _HEAD.format(version=__version__) + _import_lines(imports) + "".join(parts)


def _without_imports(source: str, imports: Imports) -> str:
    """The module without its docstring and imports; those of other packages go to `imports`,
    module -> names taken from it (none: the module itself)."""
    tree = ast.parse(source)
    lines = source.splitlines()
    docstring, *others = tree.body
    for node in [docstring, *(n for n in others if isinstance(n, ast.Import | ast.ImportFrom))]:
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] not in _OUR_PACKAGES:
            names = imports.setdefault(str(node.module), set())
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            imports |= {alias.name: imports.get(alias.name, set()) for alias in node.names}
        for number in range(node.lineno - 1, node.end_lineno or node.lineno):
            lines[number] = ""
    return "\n".join(lines)


def _import_lines(imports: Imports) -> str:
    plain = sorted(name for name, names in imports.items() if not names)
    picked = sorted((name, sorted(names)) for name, names in imports.items() if names)
    lines = [f"import {name}" for name in plain]
    lines += [f"from {name} import {', '.join(names)}" for name, names in picked]
    return "\n" + "\n".join(lines) + "\n"
