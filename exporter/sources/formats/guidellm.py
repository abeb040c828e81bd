"""GuideLLM's benchmark report, and its requests as JSON lines.

Who emits it: `guidellm benchmark run`, output `benchmarks.json`: one document whose benchmarks
list their requests by how they ended (successful, incomplete, errored). The requests alone,
one a line, are read too. Requests hold the prompt and the answer; only counts and times are
taken on. Versions read: GuideLLM 0.8.1.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO

from exporter.sources.formats.documents import inner, json_documents, kept, objects
from exporter.sources.formats.mapping import (
    LogFormat,
    Row,
    milliseconds,
    seconds,
    status,
    text,
    time,
    tokens,
)

_STATUS = {"successful": "ok", "incomplete": "incomplete", "errored": "error"}
_KEPT = (
    "request_id", "response_id", "request_start_time", "request_latency", "prompt_tokens",
    "cached_tokens", "output_tokens", "total_tokens", "time_to_first_token_ms",
)  # fmt: skip
_REMEDY = (
    "load the requests as lines: "
    "jq -c '.benchmarks[].requests | .successful[], .errored[]' benchmarks.json"
)
_REPORT = re.compile(r'\s*\{.*"benchmarks"\s*:\s*\[', re.DOTALL)


def _requests(stream: BinaryIO) -> Iterator[Row]:
    for report in json_documents(stream, "GuideLLM report", _REMEDY):
        for number, benchmark in enumerate(objects(report, "benchmarks")):
            requests = inner(benchmark, "requests")
            for ending, state in _STATUS.items():
                for request in objects(requests, ending):
                    yield kept(request, _KEPT) | {"status": state, "benchmark": number}


def _sniff(head: str) -> str | None:
    is_report = _REPORT.match(head) and '"guidellm' in head.lower()
    return "the document lists benchmarks of GuideLLM" if is_report else None


_FIELDS = (
    time("ts", "request_start_time"),
    text("request_id", "request_id"),
    tokens("prompt_tokens", "prompt_tokens"),
    tokens("cached_tokens", "cached_tokens", "input_metrics.cached_tokens"),
    tokens("output_tokens", "output_tokens"),
    milliseconds("ttft_seconds", "time_to_first_token_ms"),
    seconds("e2e_seconds", "request_latency"),
    status("status"),
)

FORMAT = LogFormat(
    name="guidellm",
    title="GuideLLM report (benchmarks.json)",
    versions="GuideLLM 0.8.1",
    basis="inclusive",
    signature=(("benchmarks",), ("args", "metadata", "config")),
    fields=_FIELDS,
    constants=(("ttft_point", "client"),),
    documents=_requests,
    sniff=_sniff,
)

REQUEST_FORMAT = LogFormat(
    name="guidellm_request",
    title="GuideLLM requests, one a line",
    versions="GuideLLM 0.8.1",
    basis="inclusive",
    signature=(("type_", "response_id"), ("request_start_time",), ("input_metrics",)),
    fields=_FIELDS,
    constants=(("ttft_point", "client"),),
)
