import re
from pathlib import Path

import pytest
from typer.main import get_command

from exporter.sources.engines import ENGINES
from exporter.sources.formats import FORMATS
from prefixscope.cli import app
from queries.registry import questions

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md"]
# In code only: a sentence may go on after the program's name.
COMMANDS = sorted(
    set(re.findall(r"(?:^ {4}(?:.*[$|] )?|`)prefixscope ([a-z]+[^`|\n]*)", TEXT, re.MULTILINE))
)


def test_is_at_most_150_lines() -> None:
    assert len(TEXT.splitlines()) <= 150


def test_commands_were_found() -> None:
    assert {command.split()[0] for command in COMMANDS} >= {"serve", "ingest", "query"}


def test_first_screen_has_question_picture_and_table() -> None:
    first_screen = "\n".join(TEXT.splitlines()[:24])
    assert "?**" in first_screen
    assert re.search(r"!\[[^\]]+\]\(docs/images/now\.png\)", first_screen)
    assert "| you have | run | you see |" in first_screen
    assert "make run" in first_screen


@pytest.mark.parametrize("page", PAGES)
def test_links_and_pictures_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    missing = [link for link in links if not ((ROOT / page).parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "bench/README.md"])
def test_make_targets_exist(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^ {4}|`)make ([a-z-]+)", text, re.MULTILINE))
    assert named
    assert named <= targets


def _command_line() -> dict[str, set[str]]:
    """command -> its options, from the program itself."""
    commands = get_command(app).commands  # type: ignore[attr-defined]
    return {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in commands.items()
    }


def _wrong(line: str, known: dict[str, set[str]]) -> str:
    """What the program would not understand of a command as it is written; '' if nothing."""
    name, *words = line.split()
    if name not in known:
        return f"no command {name}"
    options = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
    if unknown := options - known[name]:
        return f"{name} has no {', '.join(sorted(unknown))}"
    asked = re.match(r"query ([a-z]\w*)", line)
    if asked is None:
        return ""
    if asked[1] not in questions():
        return f"no question {asked[1]}"
    by = re.search(r"--by ([a-z_]+)", line)
    values = questions()[asked[1]].params["by"].one_of if by else None
    return f"{asked[1]} not by {by[1]}" if by and by[1] not in (values or ()) else ""


def test_commands_and_options_exist() -> None:
    known = _command_line()
    assert {line: wrong for line in COMMANDS if (wrong := _wrong(line, known))} == {}


def _code(text: str) -> str:
    """What a page shows to be typed: fenced as sh, indented, or between backticks."""
    typed = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    plain = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", plain)]
    return "\n".join([*typed, *re.findall(r"^ {4}.*$", plain, re.MULTILINE), *spans])


def test_commands_of_the_docs_exist() -> None:
    known = _command_line()
    found = {
        f"{page.name}: {line}": _wrong(line.replace("…", ""), known)
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for line in re.findall(
            r"(?<![-\w/.])prefixscope (?!ok$)([a-z]+(?:$| [^|&\n#;]*))",  # /-/healthy says ok
            _code(page.read_text(encoding="utf-8")),
            re.MULTILINE,
        )
    }
    assert len(found) > 100
    assert {line: wrong for line, wrong in found.items() if wrong} == {}


def test_programs_and_formats_are_counted() -> None:
    assert f"[{len(ENGINES)} programs](docs/engines/README.md)" in TEXT
    assert f"[{len(FORMATS)} formats](docs/formats/README.md)" in TEXT


def test_questions_asked_over_http_exist() -> None:
    asked = set(re.findall(r"/api/v1/query/([a-z_]+)", TEXT))
    assert asked
    assert asked <= set(questions())


def test_every_benchmark_is_described_and_exists() -> None:
    text = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
    described = set(re.findall(r"^\| `(bench_\w+\.py)`", text, re.MULTILINE))
    assert described == {path.name for path in (ROOT / "bench").glob("bench_*.py")}
