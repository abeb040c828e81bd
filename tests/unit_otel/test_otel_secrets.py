"""Prompts, answers and secrets in spans never reach the disk, a log, an answer or a figure."""

import base64
import json
import logging
from pathlib import Path

import pytest

from exporter.sources.formats.otel import rows_in
from exporter.sources.formats.otel_protobuf import spans_in
from exporter.sources.formats.otel_spans import rows_of
from exporter.store.store import Store
from tests.log_path import SMALL, load, ndjson
from tests.unit_otel.spans import (
    PROTOBUF,
    House,
    Object,
    Value,
    as_json,
    as_protobuf,
    call,
    request,
    span,
)

SECRET = "Zebra-Quartz vault"
LONG = "Obsidian-Falcon tells a story without end. " * 20
KEY = "sk-9f3kQ7-turbine"
SECRETS = [SECRET, "Zebra", "vault", "Obsidian", "Falcon", KEY, "turbine"]
LABEL = "tenant-that-must-be-found"
USAGE: dict[str, Value] = {"gen_ai.usage.input_tokens": 100, "user.id": LABEL}
# Where instrumentations put what people wrote, what models answered and what opens doors.
PLACES = (
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
    "gen_ai.tool.call.arguments",
    "gen_ai.prompt",
    "gen_ai.prompt.0.content",
    "gen_ai.completion.0.content",
    "llm.input_messages.0.message.content",
    "llm.output_messages.0.message.content",
    "llm.prompts",
    "llm.prompt_template.template",
    "llm.prompt_template.variables",
    "llm.invocation_parameters",
    "input.value",
    "output.value",
    "traceloop.entity.input",
    "traceloop.entity.output",
    "retrieval.documents.0.document.content",
    "exception.message",
    "http.request.header.authorization",
    "http.request.header.x-api-key",
    "http.request.body",
    "my.password",
    "session.token",
    "process.command_line",
)


def spans() -> list[Object]:
    """Every place a secret was ever seen in a span, in spans we take and in spans we do not."""
    made: list[Object] = []
    for number, secret in enumerate((SECRET, LONG, KEY)):
        attributes: dict[str, Value] = {**USAGE, **dict.fromkeys(PLACES, secret)}
        # Long texts and lists under a name nobody knows, and lists under a known one.
        attributes |= {"app.note": secret + LONG, "app.list": [secret], "gen_ai.system": [secret]}
        events = [{"name": secret, "attributes": [
            {"key": "gen_ai.event.content", "value": {"stringValue": secret}}]}]  # fmt: skip
        hidden = {
            "name": secret,
            "events": events,
            "links": events,
            "status": {"code": 2, "message": secret},
        }
        first = 10 * number + 1
        made += [
            call(first, attributes, **hidden),
            span(first + 1, attributes, **hidden),
            span(first + 2, {"openinference.span.kind": "AGENT", **attributes}, **hidden),
            call(first + 3, attributes, startTimeUnixNano="1000000", **hidden),
        ]
    return made


def found(data: bytes) -> list[str]:
    """Secrets in any spelling a file could keep them in."""
    return [
        secret
        for secret in SECRETS
        if any(way in data for way in (secret.encode(), base64.b64encode(secret.encode())))
    ]


def written(directory: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())


def test_nothing_secret_is_in_any_byte_of_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answers = b""
    with House(tmp_path / "store") as house:
        house.store.cursor().execute("PRAGMA force_compression='uncompressed'")
        for body, kind in ((as_json(request(*spans())), "application/json"),
                           (as_protobuf(request(*spans())), PROTOBUF)):  # fmt: skip
            answers += house.post(body, kind).content
            answers += house.post(body[: len(body) // 2], kind).content
            answers += house.post(body, "text/plain").content
        answers += json.dumps([house.ask("rejects"), house.ask("requests")]).encode()
        assert found(written(tmp_path)) == [], "before the checkpoint, in the write-ahead log"
        house.store.cursor().execute("CHECKPOINT")
    assert LABEL.encode() in written(tmp_path), "names are found, so secrets would be"
    assert b"implausible_time" in written(tmp_path)
    assert found(written(tmp_path)) == []
    assert found(answers) == []
    assert found(caplog.text.encode()) == []


@pytest.mark.parametrize("format", ["otlp", "otlp_document", "auto"])
def test_nothing_secret_of_a_file_is_stored(tmp_path: Path, format: str) -> None:
    store = Store.open(tmp_path / "store", SMALL)
    store.cursor().execute("PRAGMA force_compression='uncompressed'")
    whole = request(*spans())
    bad = [json.dumps(whole)[:-9], {"resourceSpans": SECRET}, SECRET, [SECRET], {"skip": SECRET},
           {"attributes": {"input.value": SECRET}, "text": SECRET}]  # fmt: skip
    data = ndjson([whole, *(json.dumps(line) for line in bad)])
    if format == "otlp_document":
        data = json.dumps(whole, indent=1).encode()
    load(store, data, format=format)
    store.cursor().execute("CHECKPOINT")
    store.close()
    assert LABEL.encode() in written(tmp_path)
    assert found(written(tmp_path)) == []


def test_what_may_be_a_prompt_is_gone_before_a_row_exists() -> None:
    whole = request(*spans())
    for rows in (rows_in(json.dumps(whole)), rows_of(spans_in(as_protobuf(whole)))):
        text = json.dumps(list(rows))
        assert LABEL in text
        assert found(text.encode()) == []
