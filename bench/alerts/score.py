"""How well drops are found and named, on four months of traffic with known faults for every seed.

Every hour of the last twelve weeks is judged by the question `peak_drop` as it would have been at
its end. A fault is *found* if one of its first two hours is a drop, and *named* if the first such
hour has its class. A page outside of every fault (and the hour after it) is *false*. Targets: no
false page, 95 % found, 90 % named. Thresholds were set on seeds 1 to 20 only.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.alerts.faults import FIRST_DAY, KINDS, Fault, Kind, schedule
from bench.alerts.fleet import Fleet
from bench.alerts.record import record
from bench.alerts.world import DAYS, START, ZONE, World
from exporter.store.store import Store
from queries import registry

HOUR = 3_600.0
CLASSES: dict[Kind, str] = {
    "memory_pressure": "memory pressure beyond expected",
    "layout": "template version or layout",
    "routing": "routing spread",
    "reset": "reset",
    "deploy": "deploy",
    "mix": "traffic mix",
    "isolation": "isolation",
    "reuse_stopped": "reuse stopped",
    "telemetry": "telemetry",
}
Row = dict[str, object]


@dataclass
class Score:
    """What became of the faults of one seed, and what was said beside them."""

    injected: Counter[Kind] = field(default_factory=Counter)
    found: Counter[Kind] = field(default_factory=Counter)
    named: Counter[Kind] = field(default_factory=Counter)
    false_pages: int = 0
    false_tickets: int = 0
    hours: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, other: "Score") -> None:
        self.injected += other.injected
        self.found += other.found
        self.named += other.named
        self.false_pages += other.false_pages
        self.false_tickets += other.false_tickets
        self.hours += other.hours
        self.notes += other.notes


def judged(seed: int, faults: list[Fault]) -> list[Row]:
    """Every hour as the question judges it."""
    with tempfile.TemporaryDirectory() as directory:
        store = Store.open(Path(directory))
        record(store, Fleet(World(seed), faults).run(), faults)
        end = START + timedelta(days=DAYS)
        params = {"since": START + timedelta(days=FIRST_DAY), "until": end, "zone": ZONE.key}
        rows = registry.rows(registry.run(store.cursor(), "peak_drop", params))
        store.close()
    return rows


def score(seed: int) -> Score:
    """Run one seed."""
    faults = schedule(seed)
    hours = {
        datetime.fromisoformat(str(row["ts"])).replace(tzinfo=UTC).timestamp(): row
        for row in judged(seed, faults)
    }
    result = Score(hours=len(hours))
    for fault in faults:
        _judge(result, seed, fault, hours)
    for row in _outside(hours, faults):
        page = row["severity"] == "page"
        result.false_pages += page
        result.false_tickets += not page
        if page:
            result.notes.append(
                f"seed {seed}: false page {row['ts']}: {row['class']}, {row['evidence']}"
            )
    return result


def _judge(result: Score, seed: int, fault: Fault, hours: dict[float, Row]) -> None:
    first = [hours.get(fault.since + HOUR * number) for number in range(2)]
    drops = [row for row in first if row and row["is_drop"]]
    result.injected[fault.kind] += 1
    result.found[fault.kind] += bool(drops)
    named = bool(drops) and drops[0]["class"] == CLASSES[fault.kind]
    result.named[fault.kind] += named
    when = datetime.fromtimestamp(fault.since, UTC)
    if not drops:
        result.notes.append(f"seed {seed}: {fault.kind} of {when:%m-%d %H:%M} was not found")
    elif not named:
        result.notes.append(
            f"seed {seed}: {fault.kind} of {when:%m-%d %H:%M} was called {drops[0]['class']}"
        )


def _outside(hours: dict[float, Row], faults: list[Fault]) -> Iterator[Row]:
    for moment, row in hours.items():
        inside = any(fault.since <= moment < fault.until + HOUR for fault in faults)
        if row["is_drop"] and not inside:
            yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="21-40", help="FIRST-LAST")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split("-"))
    total = Score()
    with ProcessPoolExecutor(arguments.processes) as pool:
        for done in pool.map(score, range(first, last + 1)):
            total.add(done)
    print(f"seeds {arguments.seeds}, {total.hours:,} hours judged")
    print(f"{'fault':16} injected  found  named")
    for kind in KINDS:
        print(f"{kind:16} {total.injected[kind]:8} {total.found[kind]:6} {total.named[kind]:6}")
    injected, found, named = (
        sum(count.values()) for count in (total.injected, total.found, total.named)
    )
    print(
        f"found {found} of {injected} ({found / injected:.1%}), named {named} "
        f"({named / injected:.1%}); false pages {total.false_pages}, "
        f"false tickets {total.false_tickets} in {total.hours / 168:.0f} weeks"
    )
    print("\n".join(total.notes))


if __name__ == "__main__":
    main()
