"""A format is registered, explains itself, has a page in the docs and a case as its example."""

import importlib
import re
from pathlib import Path

import pytest
import yaml

from exporter.sources import formats
from exporter.sources.formats.mapping import LogFormat

FOLDER = Path(formats.__file__).parent
DOCS = Path(__file__).parents[2] / "docs" / "formats"
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


@pytest.mark.parametrize("log_format", formats.FORMATS, ids=lambda log_format: log_format.name)
def test_every_format_has_a_page(log_format: LogFormat) -> None:
    """The index lists it and links to a page that names it."""
    rows = [line for line in (DOCS / "README.md").read_text(encoding="utf-8").splitlines()
            if line.startswith("|") and f"`{log_format.name}`" in line]  # fmt: skip
    assert len(rows) == 1, f"one row of docs/formats/README.md names {log_format.name}"
    target = re.findall(r"\]\(([^)#]*)#?[^)]*\)", rows[0])[-1] or "README.md"
    assert f"`{log_format.name}`" in (DOCS / target).read_text(encoding="utf-8")


def test_every_page_is_in_the_index_and_links_lead_somewhere() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    for page in DOCS.glob("*.md"):
        assert page.name == "README.md" or f"({page.name}" in index, page.name
        text = page.read_text(encoding="utf-8")
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
            assert (DOCS / link).exists(), f"{page.name} links to {link}"
        assert page.name == "README.md" or re.search(r"[Rr]ead from|[Aa]lso run", text), page.name


def test_names_are_unique() -> None:
    names = [log_format.name for log_format in formats.FORMATS]
    assert len(names) == len(set(names))


@pytest.fixture(scope="module")
def formats_of_cases() -> set[str]:
    return {yaml.safe_load(path.read_text(encoding="utf-8"))["format"]
            for path in CASES.glob("*.yaml")}  # fmt: skip


@pytest.mark.parametrize("log_format", formats.FORMATS, ids=lambda log_format: log_format.name)
def test_every_format_has_a_case(log_format: LogFormat, formats_of_cases: set[str]) -> None:
    assert log_format.name in formats_of_cases, f"no cases/*.yaml is of format {log_format.name}"
    assert log_format.title
    assert log_format.versions
