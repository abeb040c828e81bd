"""The result of `vllm bench serve --save-result --save-detailed`: parallel arrays in one document.

Who emits it: vLLM's benchmark client (several results may follow each other in a file). Prompt
lengths are what the client asked for; cached tokens are not told, so the prompt counts as
unreported. Start times are of a monotonic clock without an epoch: they count from the first
request. A failed request has a first-token time of 0.0, which is none.
Versions read: vLLM 0.33 (source).
"""

import re
from collections.abc import Iterator
from typing import BinaryIO

from exporter.errors import PrefixscopeError
from exporter.sources.formats.documents import items, json_documents, number
from exporter.sources.formats.mapping import (
    LogFormat,
    Row,
    case,
    seconds,
    status,
    text,
    time,
    tokens,
)

_REMEDY = "save fewer requests a file (vllm bench serve --num-prompts)"
# Array of the document -> field of a row.
_ARRAYS = {
    "input_lens": "input", "output_lens": "output", "ttfts": "ttft", "latencies": "latency",
    "start_times": "start",
}  # fmt: skip
_DETAILED = re.compile(r'\s*\{[^{}]*"(input_lens|ttfts)"\s*:\s*\[')
_SUMMARY = re.compile(r'\s*\{[^{}]*"(mean|median)_ttft_ms"\s*:')


def _requests(stream: BinaryIO) -> Iterator[Row]:
    for result in json_documents(stream, "benchmark result", _REMEDY):
        arrays = {field: items(result, name) for name, field in _ARRAYS.items()}
        if not arrays["input"]:
            raise PrefixscopeError(
                "the benchmark result has no `input_lens`, so no single requests: "
                "run vllm bench serve with --save-result --save-detailed"
            )
        errors = items(result, "errors")
        starts = [start for value in arrays["start"] if (start := number(value)) is not None]
        first = min(starts, default=0.0)
        for index in range(len(arrays["input"])):
            row = {field: values[index] for field, values in arrays.items() if index < len(values)}
            row["failed"] = index < len(errors) and bool(errors[index])
            if (start := number(row.get("start"))) is not None:
                row["start"] = start - first
            yield row | {"model": result.get("model_id"), "date": result.get("date")}


def _sniff(head: str) -> str | None:
    if _DETAILED.match(head):
        return "the document has arrays of prompt lengths and first-token times"
    if _SUMMARY.match(head):
        return "the document sums up first-token times of a benchmark"
    return None


FORMAT = LogFormat(
    name="vllm_bench",
    title="vllm bench serve result (--save-detailed)",
    versions="vLLM 0.33",
    basis="inclusive",
    signature=(("input_lens",), ("ttfts",)),
    fields=(
        time("ts", "start"),
        text("model", "model"),
        tokens("prompt_tokens", "input"),
        tokens("output_tokens", "output"),
        seconds("ttft_seconds", "ttft"),
        seconds("e2e_seconds", "latency"),
        status(cases=(case("error", "failed", "true"),)),
    ),
    constants=(("ttft_point", "client"),),
    relative_time="seconds",
    documents=_requests,
    sniff=_sniff,
)
