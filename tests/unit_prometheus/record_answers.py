"""Records what a real Prometheus answers about two recorded engines, for tests without one.

python -m tests.unit_prometheus.record_answers tests/unit_prometheus/answers.json
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

from exporter.sources.prometheus.api import selector
from exporter.sources.prometheus.pages import telling_names, wanted_names
from tests.running import get
from tests.unit_prometheus.real_prometheus import CAPTURES, Engine, prometheus, recorded

FOLDERS = {
    "vllm-0": "vllm-0.32.0/restart/metrics",
    "llama-0": "llama.cpp-b11434/mixed/metrics",
}
HOLD_SECONDS = 5


def main(out: Path) -> None:
    """Let a Prometheus scrape the engines page by page, then write down its answers."""
    engines = {pod: Engine(recorded(CAPTURES / path)) for pod, path in FOLDERS.items()}
    targets = {engine.address: {"pod": pod} for pod, engine in engines.items()}
    with tempfile.TemporaryDirectory() as folder, prometheus(Path(folder), targets, "2s") as server:
        began = time.time()
        while get(f"{server}/api/v1/query?query=count(up)").count(b'"2"') == 0:
            time.sleep(0.2)
        for _ in range(max(len(engine.pages) for engine in engines.values())):
            time.sleep(HOLD_SECONDS)
            for engine in engines.values():
                engine.position += 1
        out.write_text(json.dumps(answers(server, began, time.time()), indent=0) + "\n")
    for engine in engines.values():
        engine.close()


def answers(server: str, began: float, ended: float) -> dict[str, object]:
    """Everything `backfill` asks for, about the whole run."""

    def ask(path: str, **asked: str) -> object:
        return json.loads(get(f"{server}/api/v1/{path}?{urlencode(asked)}"))["data"]

    window = {"start": f"{began:.3f}", "end": f"{ended:.3f}"}
    names = json.loads(get(f"{server}/api/v1/label/__name__/values"))["data"]
    told = selector({}, telling_names(names) | {"up"})
    raw = selector({"job": "engines"}, wanted_names(names) | {"up"})
    return {
        "began": began,
        "ended": ended,
        "names": names,
        "series": ask("series", **{"match[]": told}, **window),
        "raw": ask("query", query=f"{raw}[{round(ended - began) + 60}s]", time=window["end"]),
        "targets": ask("targets", state="active"),
        # Where it ran is nobody's business.
        "runtimeinfo": {**ask("status/runtimeinfo"), "CWD": "/prometheus"},
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
