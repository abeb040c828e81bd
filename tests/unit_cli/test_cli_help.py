"""What a person sees first: help with examples, what is understood, and honest failures."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import typer
from typer.core import TyperGroup, TyperOption

from exporter.errors import PrefixscopeError
from exporter.sources.engines import ENGINES
from exporter.sources.formats import FORMATS
from prefixscope import __version__
from prefixscope.cli import app
from prefixscope.commands import look

COMMANDS = (
    "init",
    "demo",
    "serve",
    "ingest",
    "backfill",
    "query",
    "now",
    "alerts",
    "report",
    "attribute",
    "lint",
    "curve",
    "replay",
    "geometry",
    "doctor",
    "names",
    "templates",
    "formats",
    "engines",
)

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out


def test_help_is_grouped_and_names_every_command(cli: Cli) -> None:
    done = cli("--help")
    assert done.status == 0
    positions = [done.out.index(f" {group} ") for group in ("Start", "Look", "What if", "Operate")]
    assert positions == sorted(positions)
    assert all(re.search(rf"^│ {name} ", done.out, re.MULTILINE) for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(cli: Cli, command: str) -> None:
    done = cli(command, "--help")
    assert done.status == 0
    assert f"prefixscope {command}" in done.out.split("Example:", 1)[1]


def test_nothing_said_of_an_option_is_lost_as_markup(cli: Cli) -> None:
    """Square brackets in help are markup: "[default: now]" would not be shown."""
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    told = [option.help or "" for each in command.commands.values() for option in each.params
            if isinstance(option, TyperOption)]  # fmt: skip
    assert len(told) > 100
    assert not [text for text in told if "[" in text]
    assert "[default: (the latest full week with data" in cli("report", "--help").out


def test_version(cli: Cli) -> None:
    assert cli("--version").out == f"prefixscope {__version__}\n"


def test_no_command_shows_help_and_is_wrong_usage(cli: Cli) -> None:
    assert cli().status == 2
    assert cli("nonsense").status == 2


def test_formats_and_engines_list_what_is_registered(cli: Cli) -> None:
    formats = cli("formats").out.splitlines()[1:]
    assert [line.split()[0] for line in formats] == [f.name for f in FORMATS]
    told = {row["name"]: row for row in json.loads(cli("formats", "--output", "json").out)}
    assert list(told) == [f.name for f in FORMATS]
    assert (told["anthropic"]["basis"], told["anthropic"]["input"]) == ("exclusive", "lines")
    assert (told["litellm"]["basis"], told["vllm_bench"]["input"]) == (
        "inclusive", "whole document",
    )  # fmt: skip
    assert all(row["versions"] and row["title"] for row in told.values())
    engines = cli("engines").out.splitlines()[1:]
    assert {line.split()[0] for line in engines} == set(ENGINES)
    assert "vllm:prompt_tokens_total" in cli("engines", "vllm").out


def test_our_errors_are_messages_and_others_keep_their_traceback(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(error: Exception) -> None:
        def connect(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(look, "connect", connect)

    fail(PrefixscopeError("do [this] instead"))
    done = cli("now")
    assert (done.status, done.out, done.err) == (1, "", "error: do [this] instead\n")
    fail(RuntimeError("a bug"))
    with pytest.raises(RuntimeError, match="a bug"):
        cli("now")


def test_reading_the_command_line_imports_no_heavy_library() -> None:
    """What a command needs is imported with that command: all others start in a tenth."""
    heavy = {"duckdb", "numpy", "pyarrow", "pydantic", "requests", "starlette", "streamlit"}
    script = "import json, sys, prefixscope.cli; print(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True
    )
    assert not heavy & set(json.loads(done.stdout))
