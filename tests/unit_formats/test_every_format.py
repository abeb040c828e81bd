"""A format is registered, explains itself, has a page in the docs and a case as its example."""

import ast
from pathlib import Path

import pytest
import yaml

from exporter.sources import formats
from exporter.sources.formats.mapping import LogFormat

FOLDER = Path(formats.__file__).parent
CASES = Path(__file__).parent / "cases"
# What formats are made of, and no format themselves.
MACHINERY = {"__init__", "mapping", "compile", "quick", "detect", "reshape"}


def _modules() -> dict[str, str]:
    """Module -> source of every module beside the machinery."""
    return {
        path.stem: path.read_text(encoding="utf-8")
        for path in sorted(FOLDER.glob("*.py"))
        if path.stem not in MACHINERY
    }


def test_every_module_is_registered_and_explains_itself() -> None:
    registered = ast.parse((FOLDER / "__init__.py").read_text(encoding="utf-8"))
    used = {node.value.id for node in ast.walk(registered)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)}  # fmt: skip
    for name, source in _modules().items():
        tree = ast.parse(source)
        assert ast.get_docstring(tree), f"{name} does not say who emits it"
        assigned = {target.id for node in tree.body if isinstance(node, ast.Assign)
                    for target in node.targets if isinstance(target, ast.Name)}  # fmt: skip
        if "FORMAT" in assigned:
            assert name in used, f"{name} is not in FORMATS"


def test_names_are_unique() -> None:
    names = [log_format.name for log_format in formats.FORMATS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("log_format", formats.FORMATS, ids=lambda log_format: log_format.name)
def test_every_format_has_a_case(log_format: LogFormat) -> None:
    named = [yaml.safe_load(path.read_text(encoding="utf-8"))["format"]
             for path in CASES.glob("*.yaml")]  # fmt: skip
    assert log_format.name in named, f"no cases/*.yaml is of format {log_format.name}"
    assert log_format.title
    assert log_format.versions
