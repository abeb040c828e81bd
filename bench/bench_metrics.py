"""`/metrics` with 5,000 series against prometheus-client rendering as many ordinary Counters.

Ours takes a snapshot of live counters and renders the page; the baseline renders counters that
stand ready, without `_created` series. Both in turns, in this process, as text and OpenMetrics.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import prometheus_client
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_text

from exporter.collector import Collector, Inputs
from exporter.store.counters import COUNTER_COLUMNS, CounterDelta, LabelBounds, LiveCounters

BAR_RATIO = 1.0
SERIES_PER_LABEL_SET = 11  # 4 outcomes, prompt, reported, 5 tiers
FAMILIES = 10
LABELS = ("model", "route", "template", "tenant", "tier")


def ours(series: int) -> Collector:
    """A collector over live counters with about so many series."""
    limits = dict.fromkeys(("model", "route", "template", "tenant"), 100_000)
    counters = LiveCounters(LabelBounds(limits, []), max_series=100_000)
    delta = CounterDelta()
    for number in range(series // SERIES_PER_LABEL_SET + 1):
        names = tuple(f"{label}-{number}" for label in limits)
        for label, name in zip(limits, names, strict=True):
            counters.bounds.admit(label, [name])
        model, route, template, tenant = names
        values = [123_456 + number + place for place in range(len(COUNTER_COLUMNS))]
        delta.add_requests(counters.series(model, route, template, tenant), values)
    counters.apply(delta)
    inputs = Inputs(
        counters=counters.snapshot,
        engines=dict,
        targets=list,
        store_file=Path("none"),
        version="bench",
    )
    return Collector(inputs)


def baseline(series: int) -> CollectorRegistry:
    """A registry of ten counters with as many series."""
    prometheus_client.disable_created_metrics()
    registry = CollectorRegistry()
    for family in range(FAMILIES):
        counter = Counter(f"bench_{family}", "A counter.", LABELS, registry=registry)
        for number in range(series // FAMILIES):
            names = (f"{label}-{number}" for label in LABELS)
            counter.labels(*names).inc(123_456 + number)
    return registry


def cpu_seconds(run: Callable[[], bytes]) -> float:
    before = time.process_time()
    run()
    return time.process_time() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    collector, registry = ours(arguments.series), baseline(arguments.series)
    count = sum(len(family.lines) for family in collector.families())
    print(f"{count} series, Python {platform.python_version()}, "
          f"prometheus-client against {arguments.series} counters")  # fmt: skip
    for name, openmetrics, render in (
        ("text", False, prometheus_client.generate_latest),
        ("OpenMetrics", True, openmetrics_text),
    ):
        own: list[float] = []
        base: list[float] = []
        for _ in range(arguments.rounds):
            base.append(cpu_seconds(partial(render, registry)))
            own.append(cpu_seconds(partial(collector.render, openmetrics=openmetrics)))
        ratio = statistics.median(own) / statistics.median(base)
        verdict = "ok" if ratio <= BAR_RATIO else "MISSED"
        print(f"{name}: baseline {statistics.median(base) * 1000:.1f} ms, "
              f"ours {statistics.median(own) * 1000:.1f} ms CPU, ratio {ratio:.2f} "
              f"(bar {BAR_RATIO:.1f}) {verdict}")  # fmt: skip


if __name__ == "__main__":
    main()
