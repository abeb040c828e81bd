"""Continuous integration installs the servers tests run against, where it can, and else goes on."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVICES = ROOT / ".ci" / "services"
# What the script itself needs; a machine's own servers must not be found.
NEEDED = ("bash", "timeout", "mktemp", "tail", "rm", "chmod")

SERVERS = ("prometheus", "promtool", "prometheus-alertmanager", "nginx")
PACKAGES = "prometheus prometheus-alertmanager nginx postgresql"


class Machine:
    """A machine with these programs alone. `apt-get` notes what it was told, and may fail."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.told = folder / "told"
        self.policy = folder / "policy-rc.d"
        self.postgres = folder / "postgresql"
        for name in NEEDED:
            (self.bin / name).symlink_to(Path("/usr/bin") / name)
        self.program("id", "echo 0")

    def program(self, name: str, script: str) -> None:
        file = self.bin / name
        file.write_text(f"#!/usr/bin/bash\n{script}\n")
        file.chmod(0o755)

    def apt_get(self, script: str = "") -> None:
        """Notes its arguments, and whether services may start while it runs."""
        policy = f'[ -x "{self.policy}" ] && "{self.policy}"'
        self.program("apt-get", f'{policy}\necho "$? $*" >> "{self.told}"\n{script}')

    def with_servers(self) -> None:
        for name in SERVERS:
            self.program(name, "")
        (self.postgres / "15" / "bin").mkdir(parents=True)
        (self.postgres / "15" / "bin" / "initdb").touch()

    def run(self) -> str:
        result = subprocess.run(
            ["/usr/bin/bash", str(SERVICES)],
            env={"PATH": str(self.bin), "POLICY_FILE": str(self.policy),
                 "POSTGRES_ROOT": str(self.postgres)},
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert (result.returncode, result.stderr) == (0, "")
        assert not self.policy.exists()
        return result.stdout

    def calls(self) -> list[str]:
        return self.told.read_text().splitlines() if self.told.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


INSTALL = f"install --yes --quiet --no-install-recommends {PACKAGES}"


def test_what_is_there_is_left_alone(machine: Machine) -> None:
    machine.apt_get()
    machine.with_servers()
    assert machine.run() == ""
    assert machine.calls() == []


def test_what_is_missing_is_installed_and_not_started(machine: Machine) -> None:
    machine.apt_get()
    assert machine.run() == f"ci: installing {PACKAGES}\n"
    assert machine.calls() == [f"101 {INSTALL}"]


def test_lists_are_fetched_where_they_are_missing(machine: Machine) -> None:
    fetched = machine.told.with_name("fetched")
    machine.apt_get(f'[ "$1" = update ] && : > "{fetched}"; [ -e "{fetched}" ]')
    machine.run()
    assert machine.calls() == [f"101 {INSTALL}", "101 update --quiet", f"101 {INSTALL}"]


def test_without_root_or_apt_or_packages_it_says_so_and_goes_on(machine: Machine) -> None:
    reason = f"ci: without {PACKAGES}: {{}}; tests that need them skip\n"
    assert machine.run() == reason.format("no apt-get here")
    machine.apt_get('echo "E: Unable to locate package prometheus" >&2; exit 100')
    assert machine.run().endswith(
        reason.format("apt-get failed (E: Unable to locate package prometheus)")
    )
    machine.program("id", "echo 1000")
    assert machine.run() == reason.format("not root")


def test_the_run_installs_first_and_tests_last() -> None:
    steps = (ROOT / ".ci" / "run").read_text().splitlines()
    commands = [line for line in steps if line and not line.startswith(("#", "set", "cd", "exec"))]
    assert commands == ["bash .ci/services", "make lint", "make types", "make test"]
