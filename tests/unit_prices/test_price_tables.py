"""Prices as the user's file and the library have them; what neither has stays unknown."""

import json
import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import pytest
from genai_prices import Usage, calc_price, data_snapshot

from exporter.errors import PrefixscopeError
from exporter.price_tables import Price, PriceFile, PriceLibrary
from tests.unit_prices.conftest import PRICES

NOW = datetime(2026, 11, 30, 1, 30, tzinfo=UTC)
Write = Callable[[object], Path]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> PriceLibrary:
    """The library on a machine that cannot open a connection."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("prices must not go to the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    return PriceLibrary()


def test_a_file_is_read_as_litellm_writes_it(price_file: Write) -> None:
    path = price_file(PRICES)
    os.utime(path, (1_772_452_800, 1_772_452_800))
    assert PriceFile(path).find(None, "three") == Price(
        input=3, output=15, cached_read=0.3, write_5m=3.75, write_1h=6, write_other=3.75,
        tier_tokens=None, source="prices.json", as_of=datetime(2026, 3, 2, 12),  # noqa: DTZ001
        matched_name="three", note=None,
    )  # fmt: skip


def test_who_lists_no_price_for_writes_does_not_bill_them(price_file: Write) -> None:
    price = PriceFile(price_file(PRICES)).find(None, "no-writes")
    assert price is not None
    assert (price.write_5m, price.write_1h, price.write_other) == (2, 2, 2)
    assert price.note == "writes cost what plain input does"
    no_reads = PriceFile(price_file(PRICES)).find(None, "no-reads")
    assert no_reads is not None
    assert no_reads.cached_read is None  # not known, and not plain input


def test_a_tier_is_noted(price_file: Write) -> None:
    price = PriceFile(price_file(PRICES)).find(None, "tiered")
    assert price is not None
    assert (price.input, price.tier_tokens) == (1, 200_000)
    assert price.note is not None
    assert "base price: prompts above 200,000 tokens have another" in price.note


@pytest.mark.parametrize(
    ("provider", "model", "found"),
    [
        (None, "m", "m"),
        (None, "M", "m"),
        ("openai", "m", "m"),
        ("OpenAI", "openai/m", "m"),
        (None, "openai/m", "m"),
        ("azure", "m", "azure/m"),
        ("azure", "azure/m", "azure/m"),
        ("groq", "m", None),  # the entry says whose price it is
        ("groq", "openai/m", None),
        ("bedrock", "claude", "claude"),  # listed as bedrock_converse
        ("vertex_ai", "gemini", "gemini"),
        ("anybody", "free", "free"),
        (None, "an-image", None),
        (None, "unknown", None),
        (None, "", None),
        ("openai", "openai/", None),
    ],
)
def test_names_in_a_file(
    price_file: Write, provider: str | None, model: str, found: str | None
) -> None:
    listed = {
        "m": {"input_cost_per_token": 1e-06, "litellm_provider": "openai"},
        "azure/m": {"input_cost_per_token": 2e-06, "litellm_provider": "azure"},
        "claude": {"input_cost_per_token": 3e-06, "litellm_provider": "bedrock_converse"},
        "gemini": {"input_cost_per_token": 3e-06, "litellm_provider": "vertex_ai-language-models"},
        "free": {"input_cost_per_token": 0},
        "an-image": {"input_cost_per_image": 0.01, "input_cost_per_token": None},
    }
    price = PriceFile(price_file(listed)).find(provider, model)
    assert (price and price.matched_name) == found


def test_a_price_of_0_that_is_listed_is_a_price(price_file: Write) -> None:
    price = PriceFile(price_file({"free": {"input_cost_per_token": 0}})).find(None, "free")
    assert price is not None
    assert (price.input, price.output) == (0, None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1]", "expected model names and costs"),
        ({"m": 3}, "m: expected costs"),
        ({"m": {"input_cost_per_token": "cheap"}}, "m: input_cost_per_token is not a cost in USD"),
        ({"m": {"input_cost_per_token": -1e-06}}, "m: input_cost_per_token is not a cost"),
        ({"m": {"input_cost_per_token": 3.0}}, "not a cost in USD per token .not per million"),
        ({"m": {"input_cost_per_token": True}}, "m: input_cost_per_token is not a cost"),
        ('{"m": {"input_cost_per_token": NaN}}', "m: input_cost_per_token is not a cost"),
        ('{"m": {"input_cost_per_token": 1e999999}}', "m: input_cost_per_token is not a cost"),
        ({"m": {"input_cost_per_image": 1}}, "has no model with input_cost_per_token"),
        ({}, "has no model with input_cost_per_token"),
    ],
)
def test_a_file_that_cannot_be_used_names_itself_and_the_entry(
    price_file: Write, content: object, message: str
) -> None:
    path = price_file(content)
    with pytest.raises(PrefixscopeError, match=message) as raised:
        PriceFile(path)
    assert str(raised.value).startswith(f"prices.file: {path}")


def test_a_wrong_cost_beside_the_input_is_found_when_the_file_is_read(price_file: Write) -> None:
    entry = {"input_cost_per_token": 1e-06, "output_cost_per_token": "much"}
    with pytest.raises(PrefixscopeError, match="m: output_cost_per_token is not a cost"):
        PriceFile(price_file({"m": entry}))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PrefixscopeError, match=r"none\.json cannot be read"):
        PriceFile(tmp_path / "none.json")
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(PrefixscopeError, match="bytes cannot be read"):
        PriceFile(tmp_path / "bytes")


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("anthropic", "claude-sonnet-4-5"),
        (None, "claude-sonnet-4-5-20250929"),
        ("openai", "gpt-5-2025-08-07"),
        ("openai", "openai/gpt-4o"),
        (None, "openai/gpt-4o"),
        ("azure", "gpt-4o"),
        ("vertex_ai", "gemini-2.5-pro"),
        ("Anthropic", "anthropic/claude-sonnet-4-5"),
    ],
)
def test_the_library_prices_as_it_does_itself(
    library: PriceLibrary, provider: str | None, model: str
) -> None:
    price = library.find(provider, model, NOW)
    assert price is not None
    assert price.source.startswith("genai-prices ")
    seller, _, name = price.matched_name.partition("/")
    usage = {"input_tokens": 10_000, "cache_read_tokens": 6_000, "output_tokens": 500}
    whole = calc_price(
        Usage(**usage), name, provider_id=seller, genai_request_timestamp=NOW
    ).total_price
    assert price.cached_read is not None
    assert price.output is not None
    ours = (4_000 * price.input + 6_000 * price.cached_read + 500 * price.output) / 1e6
    assert ours == pytest.approx(float(whole), rel=1e-9)


def test_the_library_prices_writes_by_lifetime(library: PriceLibrary) -> None:
    price = library.find("anthropic", "claude-sonnet-4-5", NOW)
    assert price is not None
    # Anthropic's rule: 1.25 and 2 times the input. Above 200k tokens everything costs more.
    assert price.write_5m == price.write_other == pytest.approx(1.25 * price.input)
    assert price.write_1h == pytest.approx(2 * price.input)
    assert price.tier_tokens == 200_000


def test_a_price_that_changes_by_the_hour_is_the_same_all_day(library: PriceLibrary) -> None:
    prices = {library.find("deepseek", "deepseek-chat", NOW.replace(hour=hour)) for hour in (1, 18)}
    (price,) = prices
    assert price is not None
    assert price.note is not None
    assert "changes during the day; this is the price at 12:00 UTC" in price.note


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        (None, "Qwen/Qwen3-30B-A3B"),
        ("hosted_vllm", "gpt-4o"),
        ("openai", "no-such-model"),
        (None, ""),
        ("openai", "anthropic/claude-sonnet-4-5"),
        ("", "x/"),
    ],
)
def test_what_the_library_does_not_know_has_no_price(
    library: PriceLibrary, provider: str | None, model: str
) -> None:
    assert library.find(provider, model, NOW) is None


def test_the_library_uses_the_tables_it_came_with(library: PriceLibrary) -> None:
    assert library.find("openai", "gpt-4o", NOW) is not None
    assert data_snapshot.get_snapshot().from_auto_update is False


def test_prices_written_as_text_are_read(price_file: Write) -> None:
    text = json.dumps({"m": {"input_cost_per_token": "3e-06"}})
    price = PriceFile(price_file(text)).find(None, "m")
    assert price is not None
    assert price.input == 3
