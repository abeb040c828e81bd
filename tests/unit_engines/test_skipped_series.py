"""No series of an example is passed over in silence: it is read, or left out with a reason."""

import re
from pathlib import Path

import pytest

from exporter.sources.engines import ENGINES, load_engine
from exporter.sources.engines.reading import read_page
from exporter.sources.exposition import parse_page

PAGES = Path(__file__).parent / "pages"
EXAMPLES = sorted(PAGES.glob("*/*.txt"))
CAPTURES = Path(__file__).parents[2].parent / "shared" / "captures"
# Every process of a language's client library has these, whatever it is.
OF_THE_PROCESS = re.compile(r"^(process|python|http|go)_")
PART = re.compile(r"_(bucket|sum|count|total)$")


def passed_over(body: bytes) -> set[str]:
    """Families on the page that its programs neither read nor name."""
    engines = [load_engine(name) for name in read_page(body, "text/plain").tables]
    read = {
        PART.sub("", name)
        for engine in engines
        for name in engine.series_names.union(engine.version_marks, engine.watched)
    }
    skipped = tuple(prefix for engine in engines for prefix in engine.skipped)
    names = {sample.name for sample in parse_page(body, "text/plain").samples}
    return {
        name
        for name in names
        if not OF_THE_PROCESS.match(name)
        and PART.sub("", name) not in read
        and not name.startswith(skipped)
    }


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_series_of_an_example_is_read_or_left_out_with_a_reason(path: Path) -> None:
    assert passed_over(path.read_bytes()) == set()


@pytest.mark.parametrize(
    "name",
    [
        "vllm-0.32.0/main/metrics",
        "vllm-0.32.0/dp2/metrics",
        "vllm-0.32.0/external/metrics",
        "llama.cpp-b11434/mixed/metrics",
        "vllm-0.32.0-x2-sglang-router-0.3.2/cache-aware/router-metrics",
        "vllm-0.32.0-x2-vllm-router-0.1.17/cache-aware/router-metrics",
    ],
)
def test_every_series_a_real_program_served_is_read_or_left_out(name: str) -> None:
    folder = CAPTURES / name
    if not folder.exists():
        pytest.skip(f"captures of real programs are not here: {folder} is missing")
    (last,) = sorted(folder.glob("*.prom"))[-1:]
    assert passed_over(last.read_bytes()) == set()


@pytest.mark.parametrize("name", ENGINES)
def test_reasons_are_words_and_no_name_is_both_read_and_skipped(name: str) -> None:
    engine = load_engine(name)
    for prefix, reason in engine.skipped.items():
        assert len(reason.split()) >= 2, (prefix, reason)
        assert prefix not in engine.series_names
