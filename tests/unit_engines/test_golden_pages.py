"""Every name era of every program: two pages a minute apart must give exactly these samples.

`pages/PROGRAM/ERA.txt` and `ERA.2.txt` -> `golden/PROGRAM/ERA.json`. After a change that is
meant, `pytest tests/unit_engines --update-golden` writes the expected files anew; the
difference is what to review. A written page says so in its first line; the others were
served by the program or printed by its own metric classes. Pages of real engines that are
not part of the project are read where they are.
"""

import json
from pathlib import Path

import pytest

from exporter.records import EngineSample
from exporter.sources.engines import ENGINES
from exporter.sources.engines.own_series import PageLabels
from exporter.sources.engines.reading import read_page
from exporter.sources.increase import advance
from exporter.sources.target_state import TargetIdentity, TargetState

HERE = Path(__file__).parent
PAGES = HERE / "pages"
FIRST = sorted(
    path for path in PAGES.glob("*/*") if not path.stem.endswith(".2") and path.is_file()
)
# Custom labels a target's settings name, by the start of the era.
LABELS = {"custom-labels": PageLabels(tenant="team", route="app", hash_key="golden")}
TOLD_ELSEWHERE = {"target", "since", "ts", "origin"}
# Golden file -> pages a real engine served: the first and the last are read.
CAPTURES = HERE.parents[1].parent / "shared" / "captures"
RECORDED = {
    "vllm/recorded-0.32.0-main": "vllm-0.32.0/main/metrics",
    "vllm/recorded-0.32.0-dp2": "vllm-0.32.0/dp2/metrics",
    "vllm/recorded-0.32.0-external": "vllm-0.32.0/external/metrics",
    "vllm/recorded-0.32.0-caching-off": "vllm-0.32.0/caching-off/metrics",
    "llamacpp/recorded-b11434": "llama.cpp-b11434/mixed",
}


def second_page(first: Path) -> Path:
    return first.with_name(f"{first.stem}.2{first.suffix}")


def read(first: Path, second: Path) -> dict[str, object]:
    """What both pages of an era give, as the golden file keeps it: what is unknown is left out."""
    labels = next((v for k, v in LABELS.items() if first.stem.startswith(k)), None)
    state, who = TargetState(), TargetIdentity("target", "replica")
    found: dict[str, object] = {}
    for minute, (name, file) in enumerate((("first", first), ("second", second))):
        kind = "application/json" if file.suffix == ".json" else "text/plain; version=0.0.4"
        page = read_page(file.read_bytes(), kind, labels or PageLabels(hash_key="golden"))
        samples = advance(state, page, 1_000_000_000 + 60 * minute, who)
        found[name] = [plain(sample) for sample in samples]
        found["missing"] = list(page.missing)
    return found


def plain(sample: EngineSample) -> dict[str, object]:
    values = sample.model_dump(mode="json", exclude_none=True, exclude=TOLD_ELSEWHERE)
    return {k: v for k, v in values.items() if v is not False or k in ("caching_enabled", "awake")}


def check(golden: Path, pages: tuple[Path, Path], request: pytest.FixtureRequest) -> None:
    found = json.loads(json.dumps(read(*pages)))
    if request.config.getoption("--update-golden"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    assert golden.is_file(), f"no expected samples: run pytest {HERE.name} --update-golden"
    assert found == json.loads(golden.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FIRST, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_page_gives_exactly_its_golden_samples(path: Path, request: pytest.FixtureRequest) -> None:
    golden = HERE / "golden" / path.parent.name / f"{path.stem}.json"
    check(golden, (path, second_page(path)), request)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_page_gives_exactly_its_golden_samples(
    name: str, request: pytest.FixtureRequest
) -> None:
    folder = CAPTURES / RECORDED[name]
    if not folder.exists():
        pytest.skip(f"captures of real engines are not here: {folder} is missing")
    first, *_, last = sorted(folder.glob("*.prom")) or sorted(folder.rglob("*.prom"))
    check(HERE / "golden" / f"{name}.json", (first, last), request)


@pytest.mark.parametrize("name", ENGINES)
def test_every_program_has_pages_and_no_page_is_of_an_unknown_program(name: str) -> None:
    assert list((PAGES / name).glob("*")), f"no example page of {name} in {PAGES}"
    assert {path.parent.name for path in FIRST} <= set(ENGINES)


def test_every_golden_file_has_its_page() -> None:
    eras = {f"{path.parent.name}/{path.stem}" for path in FIRST}
    golden = HERE / "golden"
    goldens = {str(path.relative_to(golden).with_suffix("")) for path in golden.glob("*/*.json")}
    assert goldens == eras | set(RECORDED)
