import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROMISED = {"run", "test", "lint", "types", "bench", "test-engine", "screenshots", "ci", "help"}


def _phony() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE).group(1).split())


def _make(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_help_is_the_default_and_explains_every_target() -> None:
    shown = dict(re.findall(r"^  make ([a-z-]+) +(\S.*)$", _make().stdout, re.MULTILINE))
    assert set(shown) == _phony()
    assert set(shown) >= PROMISED


def test_every_target_is_declared() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert set(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE)) == _phony()


def test_old_python_is_refused_by_name(tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && { echo Python 3.9.18; exit 0; }\nexit 1\n')
    old.chmod(0o755)
    result = _make("run", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}")
    assert result.returncode == 2
    assert "needs Python 3.11 or newer" in result.stderr
    assert "Python 3.9.18" in result.stderr
    assert not (tmp_path / "venv").exists()


def test_environment_is_filled_from_hashed_locks_only(tmp_path: Path) -> None:
    for target, locks in (
        ("run", ["requirements.txt", "requirements-build.txt"]),
        ("test", ["requirements-dev.txt"]),
    ):
        recipe = _make("--dry-run", target, f"VENV={tmp_path / 'venv'}").stdout
        installs = [line for line in recipe.splitlines() if " install " in line]
        assert len(installs) == 2
        assert "--require-hashes" in installs[0]
        assert re.findall(r"-r (\S+)", installs[0]) == locks
        assert "--no-deps --no-build-isolation" in installs[1]


def test_ci_script_runs_lint_types_and_tests_in_that_order() -> None:
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.findall(r"^make (\S+)", text, re.MULTILINE) == ["lint", "types", "test"]
    assert text.endswith("make test\n")
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
