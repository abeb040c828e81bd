"""The files of deploy/shippers against the documented keys of their programs, and the exporter
against what each program would send it.

The programs themselves are not available to these tests. The keys below are those of their
documentation and source, as far as the files use them.
"""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.running import PROGRAM, ROOT, free_port, get, running, wait_for

FOLDER = ROOT / "deploy" / "shippers"
TOKEN = "of-this-test"

# Key -> keys below it; None = a value of any kind.
Keys = dict[str, Any]
_VECTOR_SINK: Keys = {
    "type": None, "inputs": None, "uri": None, "method": None, "encoding": {"codec": None},
    "framing": {"method": None}, "compression": None, "auth": {"strategy": None, "token": None},
    "batch": {"max_events": None, "max_bytes": None, "timeout_secs": None},
    "request": {
        "concurrency": None, "retry_initial_backoff_secs": None, "retry_max_duration_secs": None,
    },
    "buffer": {"type": None, "max_size": None, "when_full": None},
    "acknowledgements": {"enabled": None},
}  # fmt: skip
KEYS: dict[str, Keys] = {
    "vector.yaml": {
        "sources": {"rows": {"type": None, "include": None, "max_line_bytes": None}},
        "sinks": {"prefixscope": _VECTOR_SINK},
    },
    "vector-kafka.yaml": {
        "sources": {
            "rows": {
                "type": None, "bootstrap_servers": None, "group_id": None, "topics": None,
                "auto_offset_reset": None,
            }
        },
        "sinks": {"prefixscope": _VECTOR_SINK},
    },
    "fluent-bit.yaml": {
        "service": {"flush": None, "storage.path": None},
        "parsers": [{"name": None, "format": None}],
        "pipeline": {
            "inputs": [
                {
                    "name": None, "tag": None, "path": None, "parser": None,
                    "read_from_head": None, "db": None, "buffer_max_size": None,
                    "skip_long_lines": None, "storage.type": None,
                }
            ],
            "outputs": [
                {
                    "name": None, "match": None, "host": None, "port": None, "uri": None,
                    "format": None, "json_date_key": None, "compress": None, "header": None,
                    "retry_limit": None,
                }
            ],
        },
    },
    "otel-collector.yaml": {
        "receivers": {
            "otlp": {"protocols": {"grpc": {"endpoint": None}, "http": {"endpoint": None}}}
        },
        "processors": {
            "attributes/no-prompts": {"actions": [{"action": None, "pattern": None}]},
            "batch": {"send_batch_size": None, "send_batch_max_size": None, "timeout": None},
        },
        "exporters": {
            "otlphttp/prefixscope": {
                "traces_endpoint": None, "headers": {"Authorization": None}, "compression": None,
                "retry_on_failure": {
                    "enabled": None, "initial_interval": None, "max_interval": None,
                    "max_elapsed_time": None,
                },
                "sending_queue": {
                    "enabled": None, "num_consumers": None, "queue_size": None, "storage": None,
                },
            }
        },
        "extensions": {"file_storage": {"directory": None}},
        "service": {
            "extensions": None,
            "pipelines": {"traces": {"receivers": None, "processors": None, "exporters": None}},
        },
    },
}  # fmt: skip


def _document(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return document


def _unknown(value: object, known: object, path: str = "") -> list[str]:
    """Paths of keys that the documentation does not list."""
    if isinstance(value, dict) and isinstance(known, dict):
        return [
            found
            for key, below in value.items()
            for found in (
                _unknown(below, known[key], f"{path}/{key}") if key in known else [f"{path}/{key}"]
            )
        ]
    if isinstance(value, list) and isinstance(known, list):
        return [found for entry in value for found in _unknown(entry, known[0], path)]
    return [] if known is None else [path]


def test_every_file_is_checked() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(KEYS)


@pytest.mark.parametrize("name", KEYS)
def test_every_key_is_documented(name: str) -> None:
    assert _unknown(_document(name), KEYS[name]) == []


def test_an_unknown_key_is_found() -> None:
    document = _document("vector.yaml")
    document["sinks"]["prefixscope"]["batch"]["max_size"] = 1
    assert _unknown(document, KEYS["vector.yaml"]) == ["/sinks/prefixscope/batch/max_size"]


@pytest.mark.parametrize("name", ["vector.yaml", "vector-kafka.yaml"])
def test_vector_reads_from_a_source_that_exists(name: str) -> None:
    document = _document(name)
    assert document["sinks"]["prefixscope"]["inputs"] == list(document["sources"])


def test_fluent_bit_reads_with_a_parser_and_a_tag_that_exist() -> None:
    document = _document("fluent-bit.yaml")
    (source,), (output,) = document["pipeline"]["inputs"], document["pipeline"]["outputs"]
    assert source["parser"] in [parser["name"] for parser in document["parsers"]]
    assert output["match"] == source["tag"]


def test_the_pipeline_of_the_collector_names_its_parts() -> None:
    document = _document("otel-collector.yaml")
    (pipeline,) = document["service"]["pipelines"].values()
    for kind in ("receivers", "processors", "exporters"):
        assert set(pipeline[kind]) == set(document[kind])
    assert document["service"]["extensions"] == list(document["extensions"])
    exporter = document["exporters"]["otlphttp/prefixscope"]
    assert exporter["sending_queue"]["storage"] in document["extensions"]


def test_the_collector_drops_prompts_and_keeps_what_is_counted() -> None:
    processor = _document("otel-collector.yaml")["processors"]["attributes/no-prompts"]
    (action,) = processor["actions"]
    dropped = re.compile(action["pattern"])
    for name in (
        "gen_ai.prompt", "gen_ai.prompt.0.content", "gen_ai.input.messages", "input.value",
        "llm.output_messages.0.message.content", "gen_ai.system_instructions",
    ):  # fmt: skip
        assert dropped.search(name), name
    for name in (
        "gen_ai.usage.input_tokens", "llm.token_count.prompt", "user.id", "gen_ai.prompt.name",
        "gen_ai.prompt.version", "gen_ai.usage.completion_tokens",
    ):  # fmt: skip
        assert not dropped.search(name), name


@pytest.fixture(scope="module")
def exporter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("exporter")
    port = free_port()
    config = folder / "prefixscope.yml"
    config.write_text(
        yaml.safe_dump({
            "server": {"listen": f"127.0.0.1:{port}", "token": TOKEN},
            "store": {"directory": str(folder / "store")},
        }),
        encoding="utf-8",
    )  # fmt: skip
    url, log = f"http://127.0.0.1:{port}", folder / "serve.log"
    with running([PROGRAM, "serve", "--config", str(config)], log) as process:
        wait_for("exporter", lambda: bool(get(f"{url}/-/healthy")), 180, process, log)
        yield url


def _row(request_id: str) -> bytes:
    return json.dumps({
        "ts": "2026-03-02T12:00:00Z", "request_id": request_id, "model": "m", "tenant": "acme",
        "prompt_tokens": 1000, "cached_tokens": 896,
    }).encode()  # fmt: skip


def _post(exporter: str, uri: str, body: bytes, kind: str, header: str) -> requests.Response:
    name, _, value = header.replace("${PREFIXSCOPE_TOKEN}", TOKEN).partition(" ")
    return requests.post(
        exporter + uri, data=gzip.compress(body), timeout=30,
        headers={"Content-Type": kind, "Content-Encoding": "gzip", name: value},
    )  # fmt: skip


@pytest.mark.parametrize("name", ["vector.yaml", "vector-kafka.yaml"])
def test_what_vector_sends_is_taken(exporter: str, name: str) -> None:
    """The text codec with newlines: lines as they were, a line that is broken among them."""
    sink = _document(name)["sinks"]["prefixscope"]
    assert (sink["encoding"]["codec"], sink["compression"]) == ("text", "gzip")
    uri = sink["uri"].removeprefix("http://prefixscope:9465")
    header = f"Authorization Bearer {sink['auth']['token']}"
    body = b"\n".join([_row("v-1"), b'{"cut off": ', _row("v-2")]) + b"\n"
    reply = _post(exporter, uri, body, "text/plain", header)
    assert reply.status_code == 200
    assert (reply.json()["accepted"], reply.json()["rejected"]) == (2, 1)
    # Sent again, as after an answer that was lost: nothing counts twice.
    again = _post(exporter, uri, body, "text/plain", header).json()
    assert (again["accepted"], again["duplicate"]) == (0, 2)


def test_what_fluent_bit_sends_is_taken(exporter: str) -> None:
    (output,) = _document("fluent-bit.yaml")["pipeline"]["outputs"]
    assert (output["format"], output["compress"], output["json_date_key"]) == (
        "json_lines", "gzip", False,
    )  # fmt: skip
    body = _row("f-1") + b"\n" + _row("f-2")
    reply = _post(exporter, output["uri"], body, "application/x-ndjson", output["header"])
    assert reply.status_code == 200
    assert reply.json()["rejected"] == 0
    assert output["port"] == 9465


def _spans() -> bytes:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add()
    span.trace_id, span.span_id, span.name = b"t" * 16, b"s" * 8, "chat m"
    span.start_time_unix_nano = 1_772_452_800_000_000_000
    span.end_time_unix_nano = 1_772_452_801_000_000_000
    for name, value in {"gen_ai.usage.input_tokens": 1000, "gen_ai.usage.output_tokens": 5,
                        "gen_ai.usage.cache_read.input_tokens": 896}.items():  # fmt: skip
        span.attributes.add(key=name).value.int_value = value
    span.attributes.add(key="gen_ai.operation.name").value.string_value = "chat"
    return request.SerializeToString()


def test_what_the_collector_sends_is_taken(exporter: str) -> None:
    sender = _document("otel-collector.yaml")["exporters"]["otlphttp/prefixscope"]
    uri = sender["traces_endpoint"].removeprefix("http://prefixscope:9465")
    token = sender["headers"]["Authorization"].replace("env:", "")
    header = f"Authorization {token}"
    reply = _post(exporter, f"{uri}?source=spans", _spans(), "application/x-protobuf", header)
    assert reply.status_code == 200
    headers = {"Authorization": f"Bearer {TOKEN}"}
    rows = requests.get(
        f"{exporter}/api/v1/query/ingest_health", headers=headers, timeout=30
    ).json()
    assert [row["accepted"] for row in rows if row["source"] == "spans"] == [1]


def test_a_wrong_token_is_refused_before_anything_is_read(exporter: str) -> None:
    reply = _post(exporter, "/v1/requests", _row("x"), "text/plain", "Authorization Bearer wrong")
    assert reply.status_code == 401


def test_files_of_this_folder_are_the_ones_the_page_links_to() -> None:
    page = (ROOT / "docs" / "start" / "shippers.md").read_text(encoding="utf-8")
    assert set(re.findall(r"deploy/shippers/([a-z-]+\.yaml)", page)) == {
        path.name for path in Path(FOLDER).glob("*.yaml")
    }
