"""SGLang's request log (JSON) and its exported request metrics.

Who emits it: `--log-requests --log-requests-format json` (a line as a request arrives and one
as it ends; the log's own prefix may stand before the JSON), and `--export-metrics-to-file`
(`sglang-request-metrics-*.log`). Cached tokens are always stated, no further flag needed.
The arrival and queue times need `--enable-metrics`; without them a line has only the local
time of its end, which is not UTC, so the row counts as without a time.

At log levels 2 and 3, and in `request_parameters`, stand prompts: only the few values named
here are taken on. Versions read: SGLang 0.5.23 (source).
"""

import json
import re
from collections.abc import Iterable

from exporter.sources.formats.documents import inner, kept, number, objects
from exporter.sources.formats.mapping import (
    LogFormat,
    Row,
    case,
    flag,
    seconds,
    status,
    text,
    time,
    tokens,
)
from exporter.sources.formats.reshape import LEFT_OUT, one_object

_EVENT = re.compile(r'(?<!\\)"event"\s*:\s*"request\.(finished|received)"')
_ENDS_WITH_ZONE = re.compile(r"(Z|[+-]\d\d:?\d\d)$")
_RESULT = (
    "id", "prompt_tokens", "cached_tokens", "completion_tokens", "queue_time", "weight_version",
    "first_token_latency", "e2e_latency", "request_received_ts", "forward_entry_time",
    "prefill_finished_time",
)  # fmt: skip
# Storage whose class name says that it keeps files; every other one is reached over a network.
_ON_DISK = re.compile("file", re.IGNORECASE)


def _rows(line: str) -> Iterable[Row]:
    """The requests a line tells of; other lines of a server's output tell of none."""
    start = line.find("{")
    if start != 0 and not (_EVENT.search(line) or '"request_parameters"' in line):
        return []
    row = one_object(line[start:])
    if "request_parameters" in row:
        return [_exported(row)]
    if row.get("event") == "request.received":
        return [{LEFT_OUT: "request_received", "rows": 1}]
    if row.get("event") != "request.finished":
        return []
    asked = inner(row, "obj") | {"headers": inner(row, "headers")}
    answers = objects(row, "out") or [inner(row, "out")]
    return [
        {"rid": row.get("rid")} | _request(inner(answer, "meta_info"), asked, row.get("timestamp"))
        for answer in answers
    ]


def _exported(row: dict[str, object]) -> dict[str, object]:
    """A row of the metrics file, whose request is JSON inside a text."""
    try:
        asked = one_object(str(row["request_parameters"]))
    except ValueError:
        asked = {}
    return _request(row, asked, row.get("timestamp"))


def _request(
    result: dict[str, object], asked: dict[str, object], logged: object
) -> dict[str, object]:
    request = kept(result, _RESULT) | kept(asked, ("stream", "lora_path"))
    request["n"] = inner(asked, "sampling_params").get("n")
    request["finish"] = inner(result, "finish_reason").get("type")
    salts = [asked[name] for name in ("cache_salt", "extra_key") if asked.get(name)]
    request["salt"] = salts[0] if len(salts) == 1 else json.dumps(salts)[1:-1] or None
    request["tenant"] = asked.get("routing_key") or inner(asked, "headers").get("x-smg-routing-key")
    request["headers"] = inner(asked, "headers")  # for naming rules too
    if str(request.get("id")).startswith("HEALTH_CHECK"):
        request["skip"] = "health_check"
    if (number(result.get("num_retractions")) or 0) > 0:
        request["note"] = "retracted"
    if isinstance(logged, str) and _ENDS_WITH_ZONE.search(logged):
        request["logged"] = logged
    return request | _tiers(inner(result, "cached_tokens_details"))


def _tiers(details: dict[str, object]) -> dict[str, object]:
    tiers: dict[str, object] = {
        tier: details[tier] for tier in ("device", "host") if tier in details
    }
    backend = details.get("storage_backend")
    if isinstance(backend, str):
        tiers["disk" if _ON_DISK.search(backend) else "remote"] = details.get("storage")
    return tiers


def _sniff(head: str) -> str | None:
    return "lines hold SGLang request events" if _EVENT.search(head) else None


FORMAT = LogFormat(
    name="sglang",
    title="SGLang request log and exported request metrics",
    versions="SGLang 0.5.23",
    basis="inclusive",
    signature=(
        ("request_parameters", "event"),
        ("rid", "id"),
        ("obj", "out.meta_info", "e2e_latency"),
    ),
    fields=(
        text("skip", "skip"),
        text("note", "note"),
        time("ts", "request_received_ts"),
        time("ended", "logged"),
        text("request_id", "id", "rid"),
        text("model_fingerprint", "weight_version"),
        text("tenant", "tenant"),
        text("cache_salt", "salt"),
        text("adapter", "lora_path"),
        tokens("prompt_tokens", "prompt_tokens"),
        tokens("cached_tokens", "cached_tokens"),
        tokens("cached_device", "device"),
        tokens("cached_host", "host"),
        tokens("cached_disk", "disk"),
        tokens("cached_remote", "remote"),
        tokens("output_tokens", "completion_tokens"),
        tokens("choices", "n"),
        seconds("ttft_seconds", "first_token_latency"),
        seconds("queue_seconds", "queue_time"),
        seconds("prefill_seconds", "prefill_finished_time - forward_entry_time"),
        seconds("e2e_seconds", "e2e_latency"),
        flag("stream", "stream"),
        status(cases=(case("cancelled", "finish", "abort"),)),
    ),
    constants=(("ttft_point", "engine_arrival"),),
    reshape=_rows,
    sniff=_sniff,
)
