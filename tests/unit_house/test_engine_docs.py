"""Every program whose pages are read has a docstring, a page of documentation and an example."""

import re
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from exporter.sources.engines import ENGINES, load_engine
from prefixscope.settings import load_settings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "engines"
INDEX = (DOCS / "README.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "tests" / "unit_engines" / "pages"
MODULES = ROOT / "exporter" / "sources" / "engines"
# Parts of the reader, not tables of a program.
MACHINERY = {"__init__", "mapping", "own_series", "page", "reading", "summary"}
# Every page answers these, in this order.
SECTIONS = ["Switch on", "Config", "Visible", "Not visible", "How it is counted", "Read from"]
ROW = re.compile(r"^\| `(\w+)` \| \[[^]]+\]\((\S+\.md)\)[^|]* \| (.*) \|$", re.MULTILINE)
YAML = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


def documented() -> dict[str, str]:
    """Program -> file of its page, by the index."""
    return {name: file for name, file, _ in ROW.findall(INDEX)}


def test_every_module_is_registered_and_every_table_loads() -> None:
    modules = {path.stem for path in MODULES.glob("*.py")} - MACHINERY
    registered = {where.partition(":")[0].rpartition(".")[2] for where in ENGINES.values()}
    assert registered <= modules
    # A long table keeps a part of its rows beside it: vllm_offload belongs to vllm.
    assert not [
        module for module in modules - registered
        if module.rpartition("_")[0] not in registered
    ]  # fmt: skip
    for name in ENGINES:
        assert load_engine(name).name == name


@pytest.mark.parametrize("name", ENGINES)
def test_every_program_says_who_emits_it_and_which_versions_were_read(name: str) -> None:
    docstring = import_module(ENGINES[name].partition(":")[0]).__doc__ or ""
    assert re.search(r"[Rr]ead (against|from)|[Rr]ecorded from", docstring), docstring
    engine = load_engine(name)
    assert engine.title
    assert engine.versions
    assert engine.rows


@pytest.mark.parametrize("name", ENGINES)
def test_every_program_has_an_example_page(name: str) -> None:
    assert list((EXAMPLES / name).glob("*.txt")) + list((EXAMPLES / name).glob("*.json"))


@pytest.mark.parametrize("name", ENGINES)
def test_every_program_has_a_page_that_names_its_versions_and_metrics(name: str) -> None:
    text = (DOCS / documented()[name]).read_text(encoding="utf-8")
    engine = load_engine(name)
    assert f"`{name}`" in text
    assert engine.versions in text
    headline = [
        row for row in engine.rows
        if row.field in ("cached_tokens", "lookup_hit_tokens", "hit_count")
    ]  # fmt: skip
    for row in headline:
        for series in row.exposed:
            assert series in text, f"{series} is not on {documented()[name]}"
        assert row.provenance is not None
        assert row.provenance in text
    said = "also run" if engine.recorded else "read from source only"
    assert said in text.lower()


def test_index_lists_every_program_and_every_page_once() -> None:
    assert set(documented()) == set(ENGINES)
    pages = {path.name for path in DOCS.glob("*.md")} - {"README.md"}
    assert set(documented().values()) == pages


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda path: path.stem)
def test_pages_answer_the_same_questions(page: Path) -> None:
    if page.name == "README.md":
        return
    headings = re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == SECTIONS


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda path: path.stem)
def test_configs_to_paste_are_valid_settings(page: Path, tmp_path: Path) -> None:
    snippets = YAML.findall(page.read_text(encoding="utf-8"))
    assert snippets or page.name == "README.md"
    for snippet in snippets:
        if "scrape:" not in snippet:
            assert yaml.safe_load(snippet), "a snippet for another program must be YAML at least"
            continue
        file = tmp_path / "prefixscope.yml"
        file.write_text(snippet, encoding="utf-8")
        settings = load_settings(file, {})
        assert settings.scrape.targets.static
