"""A format is registered, explains itself, has a page in the docs and a case as its example."""

import importlib
from pathlib import Path

import pytest
import yaml

from exporter.sources import formats
from exporter.sources.formats.mapping import LogFormat

FOLDER = Path(formats.__file__).parent
CASES = Path(__file__).parent / "cases"
# What formats are made of, and no format themselves.
MACHINERY = {
    "__init__",
    "aside",
    "basis",
    "documents",
    "mapping",
    "compile",
    "quick",
    "detect",
    "reshape",
}


MODULES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in MACHINERY)


@pytest.mark.parametrize("name", MODULES)
def test_every_module_is_registered_and_explains_itself(name: str) -> None:
    module = importlib.import_module(f"{formats.__name__}.{name}")
    assert module.__doc__, "says who emits it"
    for value in vars(module).values():
        if isinstance(value, LogFormat):
            assert value in formats.FORMATS, f"{value.name} is not in FORMATS"


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
