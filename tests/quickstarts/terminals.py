"""Types a quick start into terminals: one shell in front, programs that last in others.

The addresses of the page are moved to free ports; everything else is run as it stands.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.quickstarts.pages import Block
from tests.running import ENVIRONMENT, free_port, running, wait_for

_PORTS = ("4000", "8000", "8080", "8501", "9465", "9466")
_MOVED_PROGRAM = Path(__file__).parent / "moved_program.py"
START_SECONDS, COMMAND_SECONDS, SHOWN_SECONDS = 300, 120, 90


class Terminals:
    """A folder to work in, programs on the path, and what was started. Ends it all at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "bin"
        self.programs.mkdir()
        self.output = ""
        self._ports = {port: str(free_port()) for port in _PORTS}
        self._moved = re.compile(r"\b(" + "|".join(_PORTS) + r")\b")
        self._stack = ExitStack()
        self.program("prefixscope", f'exec {sys.executable} {_MOVED_PROGRAM} "$@"')
        self.environment = {
            "PREFIXSCOPE_SERVER__LISTEN": f"127.0.0.1:{self._ports['9465']}",
            "PREFIXSCOPE_DASHBOARD__LISTEN": f"127.0.0.1:{self._ports['8501']}",
            "PATH": f"{self.programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def program(self, name: str, script: str) -> None:
        """A command of this name, as if it were installed."""
        file = self.programs / name
        file.write_text(f"#!/usr/bin/env bash\n{script}\n", encoding="utf-8")
        file.chmod(0o755)

    def moved(self, text: str) -> str:
        """The text with every address of the page at the port it has here."""
        return self._moved.sub(lambda found: self._ports[found[0]], text)

    def open(self, block: Block) -> None:
        """Run a block in a terminal of its own; returns once its ports answer."""
        log = self.folder / f"{block.terminal}.log"
        settings = [f"{name}={text}" for name, text in self.environment.items()]
        shell = shutil.which("bash") or "bash"
        command = ["env", "-C", str(self.folder), *settings, shell, "-c", self.moved(block.text)]
        process = self._stack.enter_context(running(command, log))
        for port in block.ports:
            address = ("127.0.0.1", int(self._ports[port]))
            wait_for(str(block.terminal), lambda at=address: _answers(at), START_SECONDS,
                     process, log)  # type: ignore[misc]  # fmt: skip

    def type(self, block: Block) -> None:
        """Run a block in the first terminal; it must succeed. What is exported stays."""
        script = (
            "if [ -f .exports ]; then . ./.exports; fi\n"
            f"{self.moved(block.text)}\nexport -p > .exports\n"
        )
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder, env={**ENVIRONMENT, **self.environment}, timeout=COMMAND_SECONDS,
            capture_output=True, encoding="utf-8", check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
        print(done.stdout)  # shown by pytest when something is amiss, or with -s
        self.output = " ".join(done.stdout.split())

    def see(self, typed: Block, expected: list[str]) -> None:
        """Every expected line is in the output, perhaps after looking again for a while."""
        end = time.monotonic() + SHOWN_SECONDS
        missing = expected
        while missing and time.monotonic() < end:
            missing = [line for line in expected if " ".join(line.split()) not in self.output]
            if missing:
                time.sleep(0.5)
                self.type(Block("sh", _last_command(typed.text)))
        assert missing == [], f"not in: {self.output}"


def _last_command(text: str) -> str:
    """A question can be asked again; what came before it in the block was done already."""
    last = text.strip().splitlines()[-1]
    assert "prefixscope query" in last
    return last


def _answers(address: tuple[str, int]) -> bool:
    with socket.create_connection(address, timeout=2):
        return True
