"""Asking the exporter: what comes back, and what people read when it does not."""

import socket

import pyarrow as pa
import pytest

from dashboard import columns, single_requests
from dashboard.client import (
    DEFAULT_URL,
    ExporterUnreachable,
    QuestionRefused,
    TokenRefused,
    ask,
    exporter_url,
)
from dashboard.words import definition, hover, point_name
from tests.unit_dashboard.loopback import HOSTILE, Exporter


def test_answers_are_arrow_and_keep_types_and_unknowns(exporter: Exporter) -> None:
    exporter.request(5, 1000, 712, tenant=HOSTILE)
    exporter.request(5, 1000, None)
    table = ask(exporter.url, "hit_ratio", {"by": "tenant", "since": "2000-01-01T00:00:00Z"})
    assert table.schema.field("prompt_tokens").type == pa.int64()
    rows = {row["tenant"]: row["token_hit_ratio"] for row in table.to_pylist()}
    assert rows == {HOSTILE: 0.712, "": None}


def test_not_given_is_asked_for_as_an_empty_text(exporter: Exporter) -> None:
    exporter.request(5, 1000, 0)
    exporter.request(5, 1000, 1000, tenant="a")
    table = ask(exporter.url, "hit_ratio", {"tenant": ""})
    assert table.to_pylist()[0]["token_hit_ratio"] == 0.0


def test_a_refusal_carries_the_exporters_reason_apart(exporter: Exporter) -> None:
    with pytest.raises(QuestionRefused, match="hit_ratio") as caught:
        ask(exporter.url, "hit_ratio", {"colour": "<b>"})
    assert "unknown parameter" in caught.value.detail
    assert "<b>" not in str(caught.value)


def test_a_closed_port_names_the_address_and_the_command() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(ExporterUnreachable, match=url) as caught:
        ask(url, "store_state", {})
    assert "prefixscope serve" in caught.value.remedy


def test_a_password_in_the_address_is_not_shown(exporter: Exporter) -> None:
    exporter.broken = True
    secret = exporter.url.replace("http://", "http://reader:s3cret@")
    with pytest.raises(ExporterUnreachable, match=exporter.url) as caught:
        ask(secret, "store_state", {})
    assert "s3cret" not in str(caught.value)


def test_something_else_at_the_address_is_not_taken_for_an_exporter(exporter: Exporter) -> None:
    exporter.broken = True
    with pytest.raises(ExporterUnreachable, match="not an exporter"):
        ask(exporter.url, "store_state", {})


def test_token_is_sent_and_a_wrong_one_is_explained(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter.token = "right"
    with pytest.raises(TokenRefused) as caught:
        ask(exporter.url, "store_state", {})
    assert "PREFIXSCOPE_TOKEN" in caught.value.remedy
    monkeypatch.setenv("PREFIXSCOPE_TOKEN", "right")
    assert ask(exporter.url, "store_state", {}).num_rows == 1


def test_address_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFIXSCOPE_URL", "http://exporter:9465/")
    assert exporter_url() == "http://exporter:9465"
    monkeypatch.delenv("PREFIXSCOPE_URL")
    assert exporter_url() == DEFAULT_URL


def test_every_column_of_every_table_is_defined() -> None:
    by_all = [make(by) for make, by in (
        (columns.who, "route"), (columns.who, "tenant"), (columns.parts, "template"),
        (columns.engine, "model"), (columns.engine, "replica"),
    )]  # fmt: skip
    fixed = [columns.REPLICAS, columns.MEMORY, columns.OUTCOMES, columns.SPEED,
             columns.ENGINE_TTFT, single_requests.COLUMNS]  # fmt: skip
    for column in (column for table in [*by_all, *fixed] for column in table):
        assert column.meaning or definition(column.question, column.source)


def test_definitions_come_from_the_headers_with_their_unit() -> None:
    text = definition("hit_ratio", "token_hit_ratio")
    assert "cached_tokens / reported_prompt_tokens" in text
    assert text.endswith("Unit: ratio.")
    assert hover("hit_ratio", "token_hit_ratio", "", "1 of 2").startswith("1 of 2\n\n")
    with pytest.raises(KeyError):
        definition("hit_ratio", "no_such_column")


def test_an_unknown_point_is_not_guessed() -> None:
    assert point_name("gateway") == "gateway"
    assert point_name("moon") == "an unknown point"
