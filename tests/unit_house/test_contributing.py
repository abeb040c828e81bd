"""The examples of CONTRIBUTING.md work as they stand: module, case and page taken from its text."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from exporter.sources import formats
from exporter.sources.engines import ENGINES, load_engine, reading
from exporter.sources.formats import detect
from exporter.store.store import Store
from tests.log_path import store
from tests.unit_engines import test_golden_pages as golden
from tests.unit_formats import test_format_examples as cases

__all__ = ["store"]

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
# Fenced blocks that begin with the path of the file they are.
FILES = dict(re.findall(r"```\w+\n# (\S+/\S+)\n(.*?)```", TEXT, re.DOTALL))
FORMAT = "exporter/sources/formats/example_gateway.py"
CASE = "tests/unit_formats/cases/example_gateway.yaml"
ENGINE = "exporter/sources/engines/example.py"
PAGES = [f"tests/unit_engines/pages/example/2.1{part}.txt" for part in ("", ".2")]


def written(folder: Path, name: str) -> Path:
    file = folder / Path(name).name
    file.write_text(FILES[name], encoding="utf-8")
    return file


def imported(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"contributed_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_examples_are_all_there_and_in_no_release() -> None:
    assert sorted(FILES) == sorted([FORMAT, CASE, ENGINE, *PAGES])
    root = Path(__file__).parents[2]
    assert not [name for name in FILES if (root / name).exists()]


def test_one_module_and_one_case_are_a_log_format(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = imported(written(tmp_path, FORMAT))
    assert module.__doc__
    for holder in (formats, detect):
        monkeypatch.setattr(holder, "FORMATS", (module.FORMAT, *formats.FORMATS))
    case = written(tmp_path, CASE)
    cases.test_rows_become_exactly_these_requests(store, case)
    # The case is one that can fail.
    case.write_text(FILES[CASE].replace("cached_tokens: 900,\n", "cached_tokens: 901,\n"))
    again = Store.open(tmp_path / "again")
    with pytest.raises(AssertionError, match="901"):
        cases.test_rows_become_exactly_these_requests(again, case)
    again.close()


@pytest.fixture
def _engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example is registered, and forgotten afterwards."""
    module = imported(written(tmp_path, ENGINE))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(ENGINES, "example", f"{module.__name__}:EXAMPLE")
    reading._marks.cache_clear()
    yield
    reading._marks.cache_clear()
    load_engine.cache_clear()


@pytest.mark.usefixtures("_engine")
def test_one_module_and_two_pages_are_an_engine(tmp_path: Path) -> None:
    found = golden.read(*(written(tmp_path, name) for name in PAGES))
    first, second = found["first"], found["second"]
    assert isinstance(first, list)
    assert isinstance(second, list)
    (baseline,), (minute,) = first, second
    assert "prompt_tokens" not in baseline
    assert (minute["engine"], minute["prompt_tokens"], minute["cached_tokens"]) == (
        "example", 1000, 640,
    )  # fmt: skip
    assert minute["provenance"] == "finish/once/tokens"
    assert found["missing"] == []


@pytest.mark.usefixtures("_engine")
def test_the_example_engine_says_what_is_missing_and_what_to_do() -> None:
    seen = reading.read_page(b'exengine_prompt_tokens_total{model_name="m"} 5\n', "text/plain")
    assert seen.advice == ("exengine_reused_tokens_total: start it with --report-reuse",)
