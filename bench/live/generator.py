"""vLLM's own load generator: how it is run, and what it says of every request."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.live.processes import started
from bench.live.servers import MODEL, Engines
from bench.live.trace import BLOCK_TOKENS
from exporter.errors import PrefixscopeError
from prefixscope.demo_engine import run_vllm

ID_PREFIX = "live-"


@dataclass(frozen=True)
class Sent:
    """A request as the client saw it. `sent_seconds`: since the first one. `step_seconds`: between
    its generated tokens."""

    sent_seconds: float
    ttft_seconds: float
    step_seconds: list[float]

    @property
    def ended_seconds(self) -> float:
        """When it had its last token."""
        return self.sent_seconds + self.ttft_seconds + sum(self.step_seconds)


def generate(
    engines: Engines, url: str, model: Path, trace: Path, requests: int, clients: int | None,
    seconds: float, folder: Path,
) -> list[Sent]:  # fmt: skip
    """Send the trace to a router, by its times or by so many clients; what became of each request,
    in the order of the trace. PrefixscopeError where one failed or it takes longer."""
    result = folder / "generator.json"
    pace = ["--self-timed"]
    if clients is not None:
        pace = ["--no-self-timed", "--max-concurrency", str(clients)]
    command = [
        str(engines.python), run_vllm.__file__, "bench", "serve", "--backend", "openai",
        "--base-url", url, "--endpoint", "/v1/completions",
        "--model", str(model), "--served-model-name", MODEL,
        "--dataset-name", "timed_trace", "--dataset-path", str(trace),
        "--timed-trace-chunk-hash-size", str(BLOCK_TOKENS), "--timed-trace-sec-multiplier", "0.001",
        "--num-prompts", str(requests), "--ignore-eos", "--temperature", "0", *pace,
        "--request-id-prefix", ID_PREFIX, "--disable-tqdm",
        "--save-result", "--save-detailed", "--result-dir", str(folder),
        "--result-filename", result.name,
    ]  # fmt: skip
    # With another seed of hashes each process would draw other token ids for the same trace.
    environment = {"HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0"}
    with started("load generator", command, folder, environment) as generator:
        generator.finish(seconds)
    return sent_of(json.loads(result.read_text(encoding="utf-8")), requests)


def sent_of(result: dict[str, Any], requests: int) -> list[Sent]:
    """Its result file. PrefixscopeError where a request failed or is not in it."""
    errors = [error for error in result["errors"] if error]
    if errors or len(result["ttfts"]) != requests:
        raise PrefixscopeError(
            f"{len(errors)} of {requests} requests failed; the first one: {errors[:1]}"
        )
    began = min(result["start_times"], default=0.0)
    return [
        Sent(start - began, ttft, steps)
        for start, ttft, steps in zip(
            result["start_times"], result["ttfts"], result["itls"], strict=True
        )
    ]
