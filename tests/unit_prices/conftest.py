"""A store and a price file: the illustrative prices of the traps, as LiteLLM writes such files."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.prices import ModelPrices, PriceSettings
from exporter.store.store import Store
from tests.log_path import store

__all__ = ["store"]

Listed = dict[str, dict[str, object]]
Priced = Callable[..., ModelPrices]

# USD per token. Writes of 5 minutes 1.25 x, of an hour 2 x, reads 0.1 x the input.
PRICES: Listed = {
    "sample_spec": {"input_cost_per_token": "what a token costs"},
    "three": {
        "litellm_provider": "anthropic",
        "input_cost_per_token": 3e-06,
        "cache_creation_input_token_cost": 3.75e-06,
        "cache_creation_input_token_cost_above_1hr": 6e-06,
        "cache_read_input_token_cost": 3e-07,
        "output_cost_per_token": 1.5e-05,
    },
    "five": {
        "input_cost_per_token": 5e-06,
        "cache_creation_input_token_cost": 6.25e-06,
        "cache_creation_input_token_cost_above_1hr": 1e-05,
        "cache_read_input_token_cost": 5e-07,
        "output_cost_per_token": 2.5e-05,
    },
    "no-writes": {
        "input_cost_per_token": 2e-06,
        "cache_read_input_token_cost": 1e-06,
        "output_cost_per_token": 8e-06,
    },
    "no-reads": {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06},
    "tiered": {
        "input_cost_per_token": 1e-06,
        "cache_read_input_token_cost": 1e-07,
        "input_cost_per_token_above_200k_tokens": 2e-06,
        "output_cost_per_token": 4e-06,
    },
    "an-image": {"input_cost_per_image": 0.01},
}


@pytest.fixture
def price_file(tmp_path: Path) -> Callable[[object], Path]:
    def write(content: object) -> Path:
        path = tmp_path / "prices.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


@pytest.fixture
def priced(store: Store, price_file: Callable[[object], Path]) -> Priced:
    """Look up the prices of everything in the store, from the file above."""

    def look_up(**settings: object) -> ModelPrices:
        given = PriceSettings.model_validate({"file": price_file(PRICES), **settings})
        prices = ModelPrices(store, given)
        prices.update()
        return prices

    return look_up
