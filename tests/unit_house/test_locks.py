import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = ["requirements.txt", "requirements-dev.txt", "requirements-build.txt"]
PIN = re.compile(r"^([a-z0-9][a-z0-9-]*)==(\S+)(?: ; (.+?))? \\$")


def _blocks(lock: str) -> dict[str, tuple[str, list[str]]]:
    """name -> (version, hashes). Fails on any line that is not a pin, a hash or a comment."""
    found: dict[str, tuple[str, list[str]]] = {}
    for line in (ROOT / lock).read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith("#") or not line:
            continue
        if pin := PIN.match(line):
            hashes: list[str] = []
            found[pin.group(1)] = (pin.group(2), hashes)
            continue
        digest = re.match(r"^ {4}--hash=sha256:([0-9a-f]{64})( \\)?$", line)
        assert digest, line
        hashes.append(digest.group(1))
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_every_line_is_a_pin_with_hashes(lock: str) -> None:
    blocks = _blocks(lock)
    assert blocks
    # A source archive and a wheel at least: nothing is pinned to one machine's file.
    assert {name: len(hashes) for name, (_, hashes) in blocks.items() if len(hashes) < 2} == {}


@pytest.mark.parametrize("lock", LOCKS)
def test_no_address_and_no_local_path(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    for forbidden in ("://", "file:", "index", "find-links", "trusted", "@ ", "../", " /", "-e "):
        assert forbidden not in text, forbidden


def _declared(*extras: str) -> list[Requirement]:
    texts = list(PROJECT["project"]["dependencies"])
    for extra in extras:
        texts += PROJECT["project"]["optional-dependencies"][extra]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize(
    ("lock", "extras"), [("requirements.txt", ()), ("requirements-dev.txt", ("dev",))]
)
def test_lock_satisfies_what_the_project_declares(lock: str, extras: tuple[str, ...]) -> None:
    blocks = _blocks(lock)
    for requirement in _declared(*extras):
        version, _ = blocks[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement


def test_locks_agree_with_each_other() -> None:
    everything = _blocks("requirements-dev.txt")
    for lock in ("requirements.txt", "requirements-build.txt"):
        for name, block in _blocks(lock).items():
            assert everything[name] == block, f"{name} in {lock}: run `make lock`"


def test_tests_and_tools_stay_out_of_the_runtime_lock() -> None:
    runtime = _blocks("requirements.txt")
    assert not {"pytest", "moto", "ruff", "mypy", "hypothesis", "playwright"} & set(runtime)
