import ast
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = ["prefixscope", "exporter", "dashboard", "queries", "replay"]
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
LONGEST_MODULE_LINES = 500
LONGEST_FUNCTION_LINES = 60


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_wheel_target_lists_every_package_on_disk() -> None:
    on_disk = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert on_disk - {"bench"} == set(PACKAGES)  # benchmarks are not shipped
    assert PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == PACKAGES


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=ROOT, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    (wheel,) = out.glob("*.whl")
    return zipfile.ZipFile(wheel).namelist()


def test_wheel_top_level_names_are_pinned(wheel_names: list[str]) -> None:
    top = {name.split("/")[0] for name in wheel_names}
    assert {name for name in top if not name.endswith(".dist-info")} == set(PACKAGES)


def test_wheel_carries_every_file_of_the_packages(wheel_names: list[str]) -> None:
    expected = {
        _name(path)
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert expected <= set(wheel_names)
    assert any(name.endswith(".sql") for name in expected)


def test_console_script_is_the_command_line() -> None:
    assert PROJECT["project"]["scripts"] == {"prefixscope": "prefixscope.cli:main"}


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_module_says_why_it_exists(path: Path) -> None:
    assert ast.get_docstring(_tree(path))


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_module_and_functions_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_MODULE_LINES
    too_long = {
        node.name: length
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > LONGEST_FUNCTION_LINES
    }
    assert too_long == {}


def test_dashboard_modules_shadow_no_top_level_package() -> None:
    # Streamlit puts the folder of app.py first on the import path.
    taken = set(PACKAGES) | set(sys.stdlib_module_names) | set(packages_distributions())
    beside_app = {path.stem for path in (ROOT / "dashboard").iterdir() if path.stem != "__init__"}
    assert not (beside_app - {"__pycache__"}) & taken


def test_test_folders_shadow_no_package() -> None:
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    assert not folders & (set(PACKAGES) | set(sys.stdlib_module_names))
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_test_file_names_are_unique() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def _imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


# Released together with the first, in versions that the first pins itself.
PARTS = {"pydantic_core": "pydantic"}


def test_every_foreign_import_is_a_declared_dependency() -> None:
    declared = {
        canonicalize_name(Requirement(text).name) for text in PROJECT["project"]["dependencies"]
    }
    distributions = packages_distributions()
    foreign = set().union(*map(_imported, MODULES)) - set(sys.stdlib_module_names) - set(PACKAGES)
    undeclared = {
        name
        for name in foreign
        if not declared
        & {canonicalize_name(known) for known in distributions.get(PARTS.get(name, name), [name])}
    }
    assert undeclared == set()


def test_every_declared_dependency_is_used() -> None:
    used = set().union(*map(_imported, MODULES))
    distributions = packages_distributions()
    by_distribution = {
        canonicalize_name(known) for name in used for known in distributions.get(name, [])
    }
    declared = {
        canonicalize_name(Requirement(text).name) for text in PROJECT["project"]["dependencies"]
    }
    assert declared - by_distribution == set()
