"""Where compiled code is kept, so that no figure comes from code of other sources."""

from pathlib import Path

import numba
import pytest

import replay
from replay import compiled


def _sources(folder: Path) -> Path:
    folder.mkdir()
    (folder / "caller.py").write_text("from called import add\n")
    (folder / "called.py").write_text("def add(a, b):\n    return a + b\n")
    return folder


def test_a_change_of_any_source_is_other_code(tmp_path: Path) -> None:
    sources = _sources(tmp_path / "replay")
    before = compiled.kept_in(sources)
    assert before.parent == sources / "__pycache__"
    assert compiled.kept_in(_sources(tmp_path / "same")).name == before.name
    (sources / "called.py").write_text("def add(a, b):\n    return a - b\n")
    assert compiled.kept_in(sources).name != before.name
    assert compiled.kept_in(sources, str(tmp_path / "given")).parent == tmp_path / "given"


def test_sources_that_nobody_may_write_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = _sources(tmp_path / "replay")
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everywhere
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert compiled.kept_in(sources).parent == tmp_path / "cache" / "prefixscope"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert compiled.kept_in(sources).parent == tmp_path / ".cache" / "prefixscope"
    monkeypatch.delenv("HOME")
    assert compiled.kept_in(sources).parent == sources / "__pycache__", "for Numba to refuse"


def test_numba_keeps_it_there() -> None:
    sources = Path(replay.__file__).parent
    assert Path(numba.config.CACHE_DIR).name == compiled.kept_in(sources).name  # type: ignore[attr-defined]
