"""The dashboard as a process of its own: Streamlit on dashboard/app.py, asking our exporter."""

import importlib.util
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from exporter.access import LOOPBACK_HOSTS
from exporter.errors import PrefixscopeError
from exporter.server_settings import is_loopback, split_address
from prefixscope.serve import listen

_log = logging.getLogger(__name__)

START_SECONDS = 60
STOP_SECONDS = 10
# Streamlit's own: whoever sets it knows under which names the dashboard is asked for.
_HOSTS_VARIABLE = "STREAMLIT_SERVER_ALLOWED_HOSTS"


def check_address(address: str) -> None:
    """Raises PrefixscopeError where something listens there."""
    setting = "dashboard.listen (PREFIXSCOPE_DASHBOARD__LISTEN; of the demo --dashboard-listen)"
    listen(address, setting).close()


@contextmanager
def dashboard(
    address: str, exporter_url: str, token: str | None, base_path: str = ""
) -> Iterator[str]:
    """The dashboard for as long as the block lasts; gives its address once it answers."""
    check_address(address)  # in use? said at once and plainly
    host, port = split_address(address)
    process = subprocess.Popen(
        _command(host, port, base_path),
        env=_environment(exporter_url, token),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{port}" + (f"/{base_path}" if base_path else "")
    try:
        _wait_until_up(process, url)
        yield url
    finally:
        _stop(process)


def _command(host: str, port: int, base_path: str) -> list[str]:
    """Streamlit without a browser, without asking for an address and without telemetry."""
    return [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        str(app_file()),
        f"--server.address={host}",
        f"--server.port={port}",
        f"--server.baseUrlPath={base_path}",
        "--server.headless=true",
        "--browser.gatherUsageStats=false",
        *_names(host, base_path),
    ]


def _names(host: str, base_path: str) -> list[str]:
    """On loopback only this machine's own names: a web page that is open here could get itself a
    name that leads to us (DNS rebinding) and read every page. Below a path a proxy stands before
    us, and has its own names."""
    proxied = base_path or _HOSTS_VARIABLE in os.environ
    if proxied or not is_loopback(f"[{host}]:0" if ":" in host else f"{host}:0"):
        return []
    return [f"--server.allowedHosts={name}" for name in sorted({*LOOPBACK_HOSTS, host})]


def app_file() -> Path:
    """The entry file of the dashboard, wherever the package is installed."""
    spec = importlib.util.find_spec("dashboard.app")
    if spec is None or spec.origin is None:
        raise PrefixscopeError("the dashboard is not installed: install prefixscope as a whole")
    return Path(spec.origin)


def _environment(exporter_url: str, token: str | None) -> dict[str, str]:
    """Ours, with where to ask; the token goes by the environment, which others cannot list."""
    environment = {**os.environ, "PREFIXSCOPE_URL": exporter_url}
    environment.pop("PREFIXSCOPE_TOKEN", None)
    return environment | ({"PREFIXSCOPE_TOKEN": token} if token else {})


def _wait_until_up(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise PrefixscopeError(
                f"the dashboard stopped at its start with status {process.returncode}; "
                "what it said stands above"
            )
        try:
            if requests.get(f"{url}/_stcore/health", timeout=2).ok:
                return
        except requests.RequestException:
            _log.debug("the dashboard does not answer yet")
        time.sleep(0.2)
    raise PrefixscopeError(f"the dashboard did not answer at {url} within {START_SECONDS} s")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask, wait, and only then insist."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
