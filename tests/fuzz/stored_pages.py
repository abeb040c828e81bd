"""Damaged metric pages into a store, as recorded pages come in, and what must hold then."""

import math
import os
from pathlib import Path
from random import Random

from exporter.sources.engines import ENGINES
from exporter.sources.engines.own_series import PageLabels
from exporter.sources.pages import ingest_pages
from exporter.store.store import Store
from tests.fuzz import seeds
from tests.fuzz.damage import damaged

_START_UNIX = 1_700_000_000


def series_of_pages(name: str, count: int, chance: Random) -> list[bytes]:
    """Pages of one program as scraped one after another; most are good, as they would be."""
    found = seeds.of_engine(name)
    return [
        damaged(page, "text", chance) if chance.random() < 0.4 else page
        for page in (chance.choice(found) for _ in range(count))
    ]


def check(store: Store, folder: Path, pages: list[bytes]) -> None:
    """Every page is in one count, and what is kept of them is within what can be true."""
    folder.mkdir(parents=True)
    for number, page in enumerate(pages):
        file = folder / f"{number:03}.prom"
        file.write_bytes(page)
        moment = _START_UNIX + 60 * number
        os.utime(file, (moment, moment))
    summary = ingest_pages(store, [folder], labels=PageLabels(tenant="team", hash_key="k"))
    told = summary.pages + summary.skipped + summary.down + summary.unreadable + summary.foreign
    assert told == len(pages), summary
    cursor = store.cursor()
    cursor.execute("SELECT * FROM engine_samples WHERE target = ?", [folder.name])
    names = [column[0] for column in cursor.description or ()]
    for values in cursor.fetchall():
        for name, value in zip(names, values, strict=True):
            _check_value(name, value)


def _check_value(name: str, value: object) -> None:
    if isinstance(value, dict):
        for part in value.values():
            _check_value(name, part)
    elif isinstance(value, int | float):
        assert math.isfinite(value), (name, value)
        assert value >= 0, (name, value)


def batch(chance: Random, count: int) -> list[bytes]:
    """Pages of any one program."""
    return series_of_pages(chance.choice(list(ENGINES)), count, chance)
