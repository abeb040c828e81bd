"""The command line in this process: exit status, standard output, standard error."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from prefixscope import client
from prefixscope.cli import main


class Run(NamedTuple):
    status: int
    out: str
    err: str


RunCli = Callable[..., Run]


@pytest.fixture
def cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> RunCli:
    """Run `prefixscope` in an empty folder, where nothing is at the usual address."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(client, "DEFAULT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("PREFIXSCOPE_URL", "PREFIXSCOPE_TOKEN", "PREFIXSCOPE_CONFIG"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: object) -> Run:
        monkeypatch.setattr(sys, "argv", ["prefixscope", *map(str, arguments)])
        capfd.readouterr()
        status = 0
        try:
            main()
        except SystemExit as stopped:
            status = stopped.code if isinstance(stopped.code, int) else int(bool(stopped.code))
        return Run(status, *capfd.readouterr())

    return run
