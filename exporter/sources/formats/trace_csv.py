"""Traces as CSV: Azure's LLM inference traces and BurstGPT. Lengths and times, no blocks.

Azure (2023, 2024): `TIMESTAMP` has seven decimals, of which six are kept, and in 2023 no zone:
taken as UTC, as its publishers describe it. BurstGPT: seconds from the start; 0 response tokens
mean that the request failed; `Elapsed time` is end to end; versions before 1.2 lack it and the
session. Neither tells cached tokens. A column is found by its name; the order is free.
"""

import csv
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO

from exporter.errors import PrefixscopeError
from exporter.sources.formats.documents import text_lines
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

_BEYOND_MICROSECONDS = re.compile(r"(\.\d{6})\d+")
_ZONE = re.compile(r"(Z|[+-]\d\d:?\d\d)$")
_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_BURSTGPT = ("Timestamp", "Model", "Request tokens", "Response tokens")


def _table(stream: BinaryIO) -> Iterator[dict[str, object]]:
    """The rows of a CSV by column; an empty cell is not given. Broken quoting is an error."""
    reader = csv.reader(line.removeprefix("\ufeff") for line in text_lines(stream))
    try:
        names = next(reader, [])
        for cells in reader:
            if cells:
                yield {name: cell for name, cell in zip(names, cells, strict=False) if cell}
    except csv.Error as error:
        raise PrefixscopeError(f"line {reader.line_num} of the CSV: {error}") from None


def _azure(stream: BinaryIO) -> Iterator[Row]:
    for row in _table(stream):
        stamp = _BEYOND_MICROSECONDS.sub(r"\1", str(row.get("TIMESTAMP", "")))
        yield row | {"TIMESTAMP": stamp if _ZONE.search(stamp) else f"{stamp}Z"}


def _headed(columns: tuple[str, ...]) -> Callable[[str], str | None]:
    """Recognises a CSV by the columns its first line must name."""

    def sniff(head: str) -> str | None:
        named = head.removeprefix("\ufeff").split("\n", 1)[0].rstrip("\r").split(",")
        return f"the columns are {', '.join(columns)}" if set(columns) <= set(named) else None

    return sniff


AZURE = LogFormat(
    name="azure_llm",
    title="Azure LLM inference trace (CSV)",
    versions="2023 and 2024",
    basis="inclusive",
    signature=(("ContextTokens",), ("GeneratedTokens",)),
    fields=(
        time("ts", "TIMESTAMP"),
        tokens("prompt_tokens", "ContextTokens"),
        tokens("output_tokens", "GeneratedTokens"),
    ),
    documents=_azure,
    sniff=_headed(_AZURE),
)

BURSTGPT = LogFormat(
    name="burstgpt",
    title="BurstGPT trace (CSV)",
    versions="1.0 to 2.0",
    basis="inclusive",
    signature=(("Request tokens",), ("Response tokens",)),
    fields=(
        time("ts", "Timestamp"),
        text("session", '"Session ID"'),
        text("model", "Model"),
        text("route", '"Log Type"'),
        tokens("prompt_tokens", '"Request tokens"'),
        tokens("output_tokens", '"Response tokens"'),
        seconds("e2e_seconds", '"Elapsed time"'),
        status(cases=(case("error", '"Response tokens"', "0"),)),
    ),
    relative_time="seconds",
    documents=_table,
    sniff=_headed(_BURSTGPT),
)
