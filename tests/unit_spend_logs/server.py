"""A real PostgreSQL on loopback for the tests, started in a folder of its own.

Its programs refuse to run as root, as continuous integration does, so there they run as the
user that Debian's package makes. Passwords are asked for, as anywhere else.
"""

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.running import free_port

OWNER_PASSWORD = "owner-secret-3f1c"
READER_PASSWORD = "reader-secret-77ab"


def programs() -> Path | None:
    """The folder with initdb, of the newest version there is; None where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def runs_as() -> str | None:
    """The user it can run as: this one, or instead of root `postgres`; None where neither can."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names and shutil.which("runuser") else None


@dataclass(frozen=True)
class Server:
    """A running server. `owner` owns the tables, as LiteLLM's user does; `reader` only reads."""

    port: int
    log: Path

    def address(self, database: str, user: str = "reader") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"


def _as(user: str, *command: str) -> list[str]:
    if os.geteuid() == 0:
        return ["runuser", "-u", user, "--", *command]
    return list(command)


def _run(folder: Path, command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, timeout=180)


@contextmanager
def running_server(folder: Path) -> Iterator[Server]:
    """Started with everything a crash would need switched off: its data is of the moment."""
    bin_folder, user = programs(), runs_as()
    assert bin_folder is not None
    assert user is not None
    data, log, port = folder / "data", folder / "server.log", free_port()
    password = folder / "password"
    password.write_text(OWNER_PASSWORD)
    if os.geteuid() == 0:
        shutil.chown(folder, user)
        shutil.chown(password, user)
    initdb = [
        str(bin_folder / "initdb"), "-D", str(data), "-U", "owner", "-A", "scram-sha-256",
        "--pwfile", str(password), "-E", "UTF8", "--locale", "C.UTF-8", "--no-sync",
    ]  # fmt: skip
    _run(folder, _as(user, *initdb))
    options = (
        f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder} "
        "-c fsync=off -c synchronous_commit=off -c full_page_writes=off -c shared_buffers=64MB "
        "-c log_statement=all -c log_min_messages=info"
    )
    control = [str(bin_folder / "pg_ctl"), "-D", str(data), "-w", "-t", "120"]
    start = [*control, "-l", str(log), "-o", options, "start"]
    _run(folder, _as(user, *start))
    try:
        yield Server(port, log)
    finally:
        _run(folder, _as(user, *control, "-m", "immediate", "stop"))
