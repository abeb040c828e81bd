"""Where prices of models come from: a user's file first, then the library `genai-prices`.

Both are read as they lie on this machine: nothing here goes to the network. A model that is in
neither has no price, which is not a price of 0.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.errors import PrefixscopeError

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo

_MILLION = 1_000_000
# USD per token. What is above was meant for a million tokens.
_DEAREST = Decimal("0.01")
_TIERED = re.compile(r"(?:input_cost|output_cost|cache_\w+_cost)\w*_above_(\d{1,9})k_tokens")
_BY_TIME = "changes during the day; this is the price at 12:00 UTC"
_PLAIN_WRITES = "writes cost what plain input does"


@dataclass(frozen=True)
class Price:
    """USD per million tokens; None = not known. `matched_name` is the entry it was found under.

    `write_other` is the price of writes of any other lifetime than 5 minutes or an hour.
    Prompts of more than `tier_tokens` have other prices, which are not kept.
    """

    input: float
    output: float | None
    cached_read: float | None
    write_5m: float | None
    write_1h: float | None
    write_other: float | None
    tier_tokens: int | None
    source: str
    as_of: datetime
    matched_name: str
    note: str | None


def names(provider: str | None, model: str) -> Iterator[tuple[str | None, str]]:
    """How a table may know a model: as it is, and without the provider its name begins with."""
    yield provider, model
    prefix, slash, rest = model.partition("/")
    if slash and rest and provider in {None, prefix}:
        yield prefix, rest


class PriceFile:
    """A JSON file as LiteLLM writes it: model name -> costs in USD per token."""

    def __init__(self, path: Path) -> None:
        """Read it whole; PrefixscopeError names the file and the entry that is wrong."""
        try:
            text = path.read_text(encoding="utf-8")
            changed = path.stat().st_mtime
        except (OSError, UnicodeDecodeError) as error:
            raise PrefixscopeError(f"prices.file: {path} cannot be read: {error}") from error
        self._path = path
        self._as_of = datetime.fromtimestamp(changed, UTC).replace(tzinfo=None, microsecond=0)
        # Provider of the entry and its price, by name in small letters.
        self._entries: dict[str, tuple[object, Price]] = {}
        for name, entry in self._read(text).items():
            price = None if name == "sample_spec" else self._price(name, entry)
            if price is not None:
                self._entries[name.lower()] = entry.get("litellm_provider"), price
        if not self._entries:
            raise PrefixscopeError(f"prices.file: {path} has no model with input_cost_per_token")

    def find(self, provider: str | None, model: str) -> Price | None:
        """The price of a model, None where the file does not have it."""
        for given, name in names(provider and provider.lower(), model.lower()):
            if given and (found := self._entries.get(f"{given}/{name}")):
                return found[1]
            found = self._entries.get(name)
            if found and _agree(given, found[0]):
                return found[1]
        return None

    def _read(self, text: str) -> dict[str, dict[str, object]]:
        try:
            entries = json.loads(text, parse_float=Decimal, parse_constant=Decimal)
        except (ValueError, RecursionError, InvalidOperation) as error:
            raise PrefixscopeError(f"prices.file: {self._path} is not JSON: {error}") from error
        if not isinstance(entries, dict):
            raise PrefixscopeError(f"prices.file: {self._path}: expected model names and costs")
        for name, entry in entries.items():
            if not isinstance(entry, dict):
                raise PrefixscopeError(f"prices.file: {self._path}: {name}: expected costs")
        return entries

    def _price(self, name: str, entry: Mapping[str, object]) -> Price | None:
        """One entry, None where it is not priced by the token, as images are."""

        def per_million(*fields: str) -> float | None:
            found = (self._cost(name, entry, field) for field in fields)
            cost = next((cost for cost in found if cost is not None), None)
            return None if cost is None else float(cost * _MILLION)

        plain = per_million("input_cost_per_token")
        if plain is None:
            return None
        write = per_million("cache_creation_input_token_cost")
        tiers = [int(tier[1]) * 1000 for key in entry if (tier := _TIERED.match(key))]
        return _price(
            plain,
            output=per_million("output_cost_per_token"),
            cached_read=per_million(
                "cache_read_input_token_cost", "input_cost_per_token_cache_hit"
            ),
            write_5m=write,
            write_1h=per_million("cache_creation_input_token_cost_above_1hr"),
            write_other=write,
            tier_tokens=min(tiers, default=None),
            source=self._path.name,
            as_of=self._as_of,
            matched_name=name,
        )

    def _cost(self, name: str, entry: Mapping[str, object], field: str) -> Decimal | None:
        value = entry.get(field)
        if value is None:
            return None
        try:
            cost = Decimal(str(value))
        except InvalidOperation:
            cost = Decimal("nan")
        if isinstance(value, bool) or not 0 <= (cost if cost.is_finite() else -1) <= _DEAREST:
            raise PrefixscopeError(
                f"prices.file: {self._path}: {name}: {field} is not a cost in USD per token "
                "(not per million), like 3e-06"
            )
        return cost


def _agree(provider: str | None, listed: object) -> bool:
    """Is the row's provider the one of the entry, as far as both are known? LiteLLM's names may
    go on: `vertex_ai-anthropic_models`, `bedrock_converse`."""
    if provider is None or listed is None:
        return True
    theirs = str(listed).lower()
    return theirs.startswith(provider) or provider.startswith(theirs)


class PriceLibrary:
    """The tables inside `genai-prices`, as installed. Its update over the network is never used."""

    def __init__(self) -> None:
        # It is large, and many who read settings or ask a question never need it.
        import genai_prices  # noqa: PLC0415
        from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415

        self._source = f"genai-prices {genai_prices.__version__}"
        self._snapshot = get_snapshot()

    def find(self, provider: str | None, model: str, now: datetime) -> Price | None:
        """The price of a model at `now` (UTC), None where the library does not have it."""
        for given, name in names(provider and provider.lower(), model.lower()):
            try:
                seller, info = self._snapshot.find_provider_model(name, None, given, None)
            except LookupError:
                continue
            return self._price(info, f"{seller.id}/{info.id}", now)
        return None

    def _price(self, info: "ModelInfo", matched_name: str, now: datetime) -> Price | None:
        # Some prices change by the hour: noon makes the answer the same all day.
        noon = now.replace(hour=12, minute=0, second=0, microsecond=0)
        listed = info.get_prices(noon.replace(tzinfo=UTC)).__dict__
        tiers = [tier.start for price in listed.values() for tier in getattr(price, "tiers", ())]

        def base(*fields: str) -> float | None:
            """What a million tokens cost in the lowest tier, by the first field that is listed."""
            found = next((listed[name] for name in fields if listed.get(name) is not None), None)
            return None if found is None else float(getattr(found, "base", found))

        plain = base("input_mtok")
        if plain is None:
            return None
        return _price(
            plain,
            output=base("output_mtok"),
            cached_read=base("cache_read_mtok"),
            write_5m=base("cache_write_5m_mtok", "cache_write_mtok"),
            write_1h=base("cache_write_1h_mtok"),
            write_other=base("cache_write_mtok"),
            tier_tokens=min(tiers, default=None),
            source=self._source,
            as_of=noon.replace(tzinfo=None),
            matched_name=matched_name,
            by_time=_changes_by_time(info),
        )


def _changes_by_time(info: "ModelInfo") -> bool:
    """Is one of its prices for a part of the day?"""
    conditions = info.prices if isinstance(info.prices, list) else []
    return any(hasattr(condition.constraint, "start_time") for condition in conditions)


def _price(
    plain: float,
    *,
    output: float | None,
    cached_read: float | None,
    write_5m: float | None,
    write_1h: float | None,
    write_other: float | None,
    tier_tokens: int | None,
    source: str,
    as_of: datetime,
    matched_name: str,
    by_time: bool = False,
) -> Price:
    """Who lists no price for writes at all does not bill them: they cost plain input."""
    notes = []
    if write_5m is write_1h is write_other is None:
        write_5m = write_1h = write_other = plain
        notes.append(_PLAIN_WRITES)
    if tier_tokens is not None:
        notes.append(f"base price: prompts above {tier_tokens:,} tokens have another")
    if by_time:
        notes.append(_BY_TIME)
    return Price(
        plain,
        output,
        cached_read,
        write_5m,
        write_1h,
        write_other,
        tier_tokens,
        source,
        as_of,
        matched_name,
        "; ".join(notes) or None,
    )
