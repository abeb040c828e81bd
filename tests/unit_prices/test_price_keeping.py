"""The table `model_prices`: who gets a row, when it is renewed, and who never gets one."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from exporter.causes.sealing import Sealer
from exporter.prices import ModelPrices, PriceSettings
from exporter.records import EngineSample
from exporter.store.samples import append_samples
from exporter.store.store import Store
from prefixscope import housekeeping
from prefixscope.housekeeping import Housekeeping
from tests.log_path import NOON, ask, load
from tests.unit_prices.conftest import PRICES, Priced

Row = dict[str, object]


def row(model: str | None, **more: object) -> Row:
    return {"ts": NOON, "model": model, "prompt_tokens": 10, "cached_tokens": 0, **more}


def kept(store: Store) -> set[tuple[str | None, str, str]]:
    """(provider, model, matched name) of every price."""
    statement = "SELECT provider, model, matched_name FROM model_prices"
    return set(store.cursor().execute(statement).fetchall())


def test_a_row_for_each_provider_and_model_that_a_table_knows(store: Store, priced: Priced) -> None:
    load(store, [
        row("three"), row("three", provider="anthropic"), row("three", provider="groq"),
        row("gpt-4o"), row("gpt-4o", provider="azure"), row("nobody-knows"), row(None),
    ])  # fmt: skip
    priced()
    assert kept(store) == {
        (None, "three", "three"),
        ("anthropic", "three", "three"),
        (None, "gpt-4o", "openai/gpt-4o"),
        ("azure", "gpt-4o", "azure/gpt-4o"),
    }
    listed = {(r["provider"], r["model"]): r for r in ask(store, "prices")}
    assert len(listed) == 7
    assert listed["groq", "three"]["source"] is None
    assert listed["", "nobody-knows"]["input_usd_per_million"] is None
    assert listed["", "three"]["write_1h_usd_per_million"] == 6
    assert listed["", "three"]["source"] == "prices.json"


def test_new_models_are_looked_up_once_and_the_others_stay(
    store: Store, priced: Priced, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(store, [row("three")])
    prices = priced()
    asked: list[str] = []
    find = ModelPrices._price

    def listening(self: ModelPrices, provider: str | None, model: str, *rest: object) -> object:
        asked.append(model)
        return find(self, provider, model, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ModelPrices, "_price", listening)
    prices.update()
    assert asked == []
    load(store, [row("three"), row("five"), row("nobody-knows")], source="other")
    prices.update()
    load(store, [row("five"), row("nobody-knows")], source="third")
    prices.update()
    assert sorted(asked) == ["five", "nobody-knows"]
    assert {model for _, model, _ in kept(store)} == {"three", "five"}


def test_another_file_counts_after_a_renewal(
    store: Store, priced: Priced, price_file: Callable[[object], Path]
) -> None:
    load(store, [row("three")])
    priced(gpu_hour_price=2.5)
    path = price_file({"three": {"input_cost_per_token": 7e-06}})
    ModelPrices(store, PriceSettings(file=path)).update()
    (price,) = ask(store, "prices")
    assert price["input_usd_per_million"] == 7
    meta = "SELECT value FROM meta WHERE key = 'gpu_hour_price'"
    assert store.cursor().execute(meta).fetchall() == []


def seen_by_engine(store: Store, model: str, observer: str) -> None:
    sample = {"target": "t", "replica": "r", "engine": "vllm", "observer": observer}
    seen = EngineSample.model_validate({**sample, "model": model, "ts": NOON})
    with store.write() as cursor:
        append_samples(cursor, [seen])


@pytest.mark.parametrize("provider", [None, "openai"])
@pytest.mark.parametrize("known_by", ["metrics", "times"])
def test_a_model_of_own_engines_is_not_priced_by_its_name(
    store: Store, priced: Priced, known_by: str, provider: str | None
) -> None:
    """gpt-oss-120b is sold too; one that runs here costs GPU hours, not tokens."""
    times: Row = {"prefill_seconds": 0.5} if known_by == "times" else {}
    load(store, [
        row("openai/gpt-oss-120b", provider=provider, **times),
        row("three", **times),
        row("openai/gpt-oss-120b", provider="groq"),  # somebody else's of the same name
    ])  # fmt: skip
    if known_by == "metrics":
        seen_by_engine(store, "openai/gpt-oss-120b", "engine")
        seen_by_engine(store, "three", "engine")
    priced()
    # The user's own file may price it all the same.
    assert kept(store) == {
        (None, "three", "three"),
        ("groq", "openai/gpt-oss-120b", "groq/openai/gpt-oss-120b"),
    }
    assert ask(store, "costs", model="three")[0]["input_usd"] is not None


def test_without_own_engines_the_name_is_enough(store: Store, priced: Priced) -> None:
    """A gateway's page names models of others: it is no engine."""
    load(store, [row("openai/gpt-oss-120b")])
    seen_by_engine(store, "openai/gpt-oss-120b", "gateway")
    priced()
    assert kept(store) == {(None, "openai/gpt-oss-120b", "openai/gpt-oss-120b")}


def test_housekeeping_prices_what_came_in(
    store: Store, price_file: Callable[[object], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "PRICES_SECONDS", 0.0)
    path = price_file(PRICES)
    keeper = Housekeeping(store, ModelPrices(store, PriceSettings(file=path)))
    keeper.do_once()
    assert kept(store) == set()
    now = datetime.now(UTC).isoformat()
    load(store, [row("three", ts=now), row("five")])
    keeper.do_once()
    assert kept(store) == {(None, "three", "three"), (None, "five", "five")}
    Sealer(store).seal(datetime.now(UTC), wait_for_older=False)  # no row is forgotten before
    keeper._due = 0.0
    keeper.do_once()
    # Renewed after maintenance, which forgot the row of months ago.
    assert kept(store) == {(None, "three", "three")}
