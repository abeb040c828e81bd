"""A real LiteLLM proxy in front of an engine, logging and counting as its manual says.

Installed on the first use into a virtual environment of its own (757M) at
PREFIXSCOPE_LITELLM_DIR, by default beside the engine. It has no database: who is calling is
told by a function that maps the key to a team, which needs no licence.
"""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.engine.live import ENGINE_DIR, MODEL
from tests.running import free_port, get, running, wait_for

PACKAGES = ("litellm[proxy]==1.108.7", "prometheus-client==0.26.0")
LITELLM_DIR = Path(os.environ.get("PREFIXSCOPE_LITELLM_DIR") or ENGINE_DIR / "litellm")
INSTALL_SECONDS, START_SECONDS = 900, 180

# Team of each key; the last key belongs to none.
KEYS: dict[str, str | None] = {
    f"sk-{secrets.token_hex(16)}": team for team in ("acme", "birch", None)
}
ALONE = "alone"  # the alias of the key without a team

_AUTH = f'''"""Tells the proxy whose key it is."""
from litellm.proxy._types import UserAPIKeyAuth

KEYS = {KEYS!r}

async def whose(request, api_key):
    team = KEYS[api_key]
    alias = team or {ALONE!r}
    return UserAPIKeyAuth(api_key=api_key, key_alias=alias, team_id=team, team_alias=team)
'''


@dataclass(frozen=True)
class Proxy:
    """Where the proxy answers, and its own metrics."""

    url: str

    @property
    def metrics(self) -> str:
        return f"{self.url}/metrics/"


def proxy_python() -> Path:
    """Its interpreter; installs the proxy first where it is not yet."""
    python = LITELLM_DIR / "bin" / "python"
    installed = LITELLM_DIR / "installed.txt"
    wanted = "\n".join(PACKAGES)
    if not installed.is_file() or installed.read_text(encoding="utf-8") != wanted:
        install = [str(python), "-m", "pip", "install", "--quiet", *PACKAGES]
        subprocess.run([sys.executable, "-m", "venv", str(LITELLM_DIR)], check=True, timeout=120)
        subprocess.run(install, check=True, timeout=INSTALL_SECONDS)
        installed.write_text(wanted, encoding="utf-8")
    return python


def config(engine: str) -> dict[str, object]:
    """The proxy's configuration: what docs/engines/litellm-proxy.md shows, and who is calling."""
    served = {"model": f"hosted_vllm/{MODEL}", "api_base": f"{engine}/v1"}
    return {
        "model_list": [{"model_name": "assistant", "litellm_params": served}],
        "litellm_settings": {
            "callbacks": ["generic_api", "prometheus"],
            "require_auth_for_metrics_endpoint": False,
        },
        "general_settings": {
            "master_key": f"sk-{secrets.token_hex(16)}",
            "custom_auth": "keys.whose",
        },
    }


@contextmanager
def running_proxy(folder: Path, engine: str, intake: str) -> Iterator[Proxy]:
    """A proxy that sends calls to `engine` and its log to the address `intake`."""
    log, port = folder / "litellm.log", free_port()
    (folder / "keys.py").write_text(_AUTH, encoding="utf-8")
    file = folder / "litellm.yaml"
    file.write_text(yaml.safe_dump(config(engine)), encoding="utf-8")
    command = [
        "env", f"GENERIC_LOGGER_ENDPOINT={intake}", "LITELLM_LOCAL_MODEL_COST_MAP=True",
        str(proxy_python().with_name("litellm")), "--config", str(file), "--host", "127.0.0.1",
        "--port", str(port), "--telemetry", "False",
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    with running(command, log) as process:
        alive = f"{url}/health/liveliness"
        wait_for("LiteLLM", lambda: bool(get(alive)), START_SECONDS, process, log)
        yield Proxy(url)
