"""The image cannot be built here; these checks read what would be built and run."""

import re
import shlex
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PACKAGES = {"prefixscope", "exporter", "dashboard", "queries", "replay"}


def _instructions() -> list[tuple[str, str]]:
    """(instruction, rest) of the Dockerfile, continuation lines joined, comments dropped."""
    text = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    found = []
    for line in text.splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            assert word.isupper(), line
            found.append((word, " ".join(rest.split())))
    return found


def _all(word: str) -> list[str]:
    return [rest for instruction, rest in _instructions() if instruction == word]


def test_base_image_is_a_version_and_python_is_one_we_support() -> None:
    (base,) = _all("FROM")
    version = re.fullmatch(r"python:3\.(\d+)-slim", base)
    assert version
    assert int(version.group(1)) >= 11


def test_everything_copied_exists_and_is_let_through() -> None:
    let_through = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sources = [source for rest in _all("COPY") for source in shlex.split(rest)[:-1]]
    assert set(sources) >= PACKAGES
    for source in sources:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in let_through, source
    assert let_through[1] == "*"


def test_image_installs_from_hashed_locks_as_make_does() -> None:
    installs = [rest for rest in _all("RUN") if "pip install" in rest]
    assert installs == [
        "pip install --require-hashes -r requirements.txt -r requirements-build.txt",
        "pip install --no-deps --no-build-isolation --editable .",
    ]


def test_image_does_not_run_as_root() -> None:
    words = [word for word, _ in _instructions()]
    (user,) = _all("USER")
    assert user != "root"
    assert any("useradd --system --uid 10001 --no-create-home" in rest for rest in _all("RUN"))
    assert words.index("USER") > max(index for index, word in enumerate(words) if word == "RUN")


def test_home_is_writable_by_the_user_and_telemetry_is_off() -> None:
    (environment,) = _all("ENV")
    pairs = dict(pair.split("=", 1) for pair in environment.split())
    assert pairs["STREAMLIT_BROWSER_GATHER_USAGE_STATS"] == "false"
    made = f"install -d -o prefixscope -g prefixscope {pairs['HOME']} "
    assert any(made in rest for rest in _all("RUN"))


def test_the_allocator_is_there_before_programs_are_told_of_it() -> None:
    words = [word for word, _ in _instructions()]
    (environment,) = _all("ENV")
    assert "LD_PRELOAD=libjemalloc.so.2" in environment.split()
    assert "libjemalloc2" in _all("RUN")[0].split()
    assert words.index("RUN") < words.index("ENV")


def test_health_is_asked_where_it_needs_no_token() -> None:
    (check,) = _all("HEALTHCHECK")
    assert "http://127.0.0.1:9465/-/healthy" in check


def test_the_command_is_one() -> None:
    (command,) = _all("CMD")
    words = yaml.safe_load(command)
    assert words[:2] == ["prefixscope", "serve"]
    assert (ROOT / "deploy" / Path(words[-1]).name).exists()
