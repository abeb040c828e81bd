"""The one file that `prefixscope tap --print` writes is the tap, and needs nothing else."""

import ast
import importlib.util
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import replay.hashes
from prefixscope.tap_file import MODULES, one_file
from tests.running import ENVIRONMENT, PROGRAM, ROOT
from tests.unit_tap.scripted import Script, ask, rows_in, serving

TEXT = one_file()
TREE = ast.parse(TEXT)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The file as the command writes it, imported by its own name."""
    path = tmp_path_factory.mktemp("mounted") / "prefixscope_tap.py"
    done = subprocess.run([PROGRAM, "tap", "--print"], env=ENVIRONMENT, capture_output=True,
                          check=True, timeout=180)  # fmt: skip
    path.write_bytes(done.stdout)
    assert done.stdout.decode() == TEXT
    spec = importlib.util.spec_from_file_location("prefixscope_tap", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["prefixscope_tap"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_imports_the_standard_library_only() -> None:
    imported = set()
    for node in ast.walk(TREE):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).split(".")[0])
    assert imported
    assert imported <= set(sys.stdlib_module_names)


def test_it_runs_where_nothing_is_installed(tmp_path: Path) -> None:
    (tmp_path / "prefixscope_tap.py").write_text(TEXT, encoding="utf-8")
    subprocess.run(
        [sys.executable, "-S", "-E", "-W", "error", "-c", "import prefixscope_tap"],
        cwd=tmp_path, check=True, timeout=180,
    )  # fmt: skip


def test_it_is_python_3_10() -> None:
    """Engines run on it still. What is newer in the language does not parse; what is newer in
    the library must be named here."""
    ast.parse(TEXT, feature_version=(3, 10))
    names = {node.attr for node in ast.walk(TREE) if isinstance(node, ast.Attribute)}
    assert not names & {"UTC", "TaskGroup", "timeout_at", "Runner", "file_digest"}
    assert not {node for node in ast.walk(TREE) if isinstance(node, ast.TryStar)}


def test_no_two_of_its_modules_define_the_same_name() -> None:
    defined: Counter[str] = Counter()
    for node in TREE.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined[node.name] += 1
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                defined.update(part.id for part in ast.walk(target) if isinstance(part, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            defined[node.target.id] += 1
    assert [name for name, times in defined.items() if times > 1] == []


def test_every_module_of_the_tap_is_in_it() -> None:
    modules = {path.stem for path in (ROOT / "prefixscope" / "tap").glob("*.py")} - {"__init__"}
    assert set(MODULES) == modules


@given(
    tokens=st.lists(st.integers(0, 2**32), max_size=60),
    grain=st.integers(1, 9),
    scope=st.text(max_size=5),
    key=st.text(max_size=5),
)
def test_its_hashes_are_ours(
    printed: ModuleType, tokens: list[int], grain: int, scope: str, key: str
) -> None:
    ours: Any = replay.hashes
    calls: list[Callable[[Any], object]] = [
        lambda module: module.content_hashes(tokens, grain, key),
        lambda module: module.chain_hashes(tokens, grain, scope, key),
        lambda module: module.scope_id(key, scope, None, scope),
        lambda module: module.hash_key_id(key),
        lambda module: module.HASH_GRAIN_TOKENS,
    ]
    assert [call(printed) for call in calls] == [call(ours) for call in calls]


def test_it_taps(printed: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Started as engines do it: with the application alone, settings in the environment."""
    monkeypatch.setenv("PREFIXSCOPE_TAP_FILE", str(tmp_path / "tap.ndjson"))
    monkeypatch.setenv("PREFIXSCOPE_TAP_INCLUDE_USAGE", "on")
    request = {"model": "tiny", "messages": [], "stream": True}
    with serving(Script()) as port:
        expected = ask(port, request)
    with serving(printed.Tap(Script())) as port:
        assert ask(port, request).body == expected.body
    (row,) = rows_in(tmp_path)
    assert (row["prompt_tokens"], row["cached_tokens"]) == (784, 768)


def test_importing_the_tap_is_light() -> None:
    heavy = ["duckdb", "typer", "pydantic", "starlette", "uvicorn", "httpx", "requests", "numpy"]
    code = f"import sys, prefixscope.tap; print([n for n in {heavy} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True,
                          text=True, check=True, timeout=180)  # fmt: skip
    assert done.stdout == "[]\n"
