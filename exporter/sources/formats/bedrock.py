"""Bedrock usage: Converse responses, InvokeModel metrics and model invocation logs.

Who emits it: Amazon Bedrock, as saved responses of Converse, the `metadata` event of a Converse
stream, the metrics at the end of an InvokeModel stream, and the invocation logs it writes to S3
or CloudWatch. Input tokens leave cached and written tokens out in all of them; where no cache
counter is there, nothing is known. Milliseconds.
Versions read: botocore 1.44.8 (source), invocation log documentation.
"""

from collections.abc import Iterable

from exporter.sources.formats.mapping import LogFormat, Row, milliseconds, text, time, tokens
from exporter.sources.formats.reshape import one_object
from exporter.sources.formats.row_values import WORKED_OUT, count, part

_LIFETIMES = {"5m": "cache_write_5m", "1h": "cache_write_1h"}


def _by_lifetime(line: str) -> Iterable[Row]:
    """The row, with its list of writes by lifetime as one count each."""
    row = one_object(line)
    details = part(row.get("usage") or part(row.get("metadata"), "usage"), "cacheDetails")
    written: dict[str, int] = {}
    for entry in details if isinstance(details, list) else ():
        amount, lifetime = count(part(entry, "inputTokens")), part(entry, "ttl")
        if amount is not None and isinstance(lifetime, str):
            name = _LIFETIMES.get(lifetime, "cache_write_other")
            written[name] = written.get(name, 0) + amount
    row[WORKED_OUT] = written
    yield row


_METRICS = "amazon-bedrock-invocationMetrics"


def _counts(converse: str, invoke: str, logged: str) -> tuple[str, ...]:
    """Paths of a count: Converse's name, InvokeModel's, and where the invocation log has it."""
    return (
        f"usage.{converse}",
        f"metadata.usage.{converse}",
        f"usage.{invoke}",
        f"{_METRICS}.{invoke}",
        f"{logged}.{invoke}",
    )


FORMAT = LogFormat(
    name="bedrock",
    title="Bedrock usage (Converse, InvokeModel, invocation logs)",
    versions="botocore 1.44",
    basis="exclusive",
    signature=(_counts("inputTokens", "inputTokenCount", "input"),),
    fields=(
        time("ts", "timestamp"),
        text("request_id", "requestId", "ResponseMetadata.RequestId"),
        text("model", "modelId"),
        tokens("prompt_tokens", *_counts("inputTokens", "inputTokenCount", "input")),
        tokens(
            "cached_tokens",
            *_counts("cacheReadInputTokens", "cacheReadInputTokenCount", "input"),
        ),
        tokens(
            "cache_write_tokens",
            *_counts("cacheWriteInputTokens", "cacheWriteInputTokenCount", "input"),
        ),
        tokens("cache_write_5m", f"{WORKED_OUT}.cache_write_5m"),
        tokens("cache_write_1h", f"{WORKED_OUT}.cache_write_1h"),
        tokens("cache_write_other", f"{WORKED_OUT}.cache_write_other"),
        tokens("output_tokens", *_counts("outputTokens", "outputTokenCount", "output")),
        milliseconds("ttft_seconds", f"{_METRICS}.firstByteLatency"),
        milliseconds(
            "e2e_seconds",
            "metrics.latencyMs",
            "metadata.metrics.latencyMs",
            f"{_METRICS}.invocationLatency",
            "output.outputBodyJson.metrics.latencyMs",
        ),
    ),
    constants=(("ttft_point", "engine_arrival"),),
    reshape=_by_lifetime,
)
