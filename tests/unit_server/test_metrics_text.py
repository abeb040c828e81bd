"""Our rendering of metrics against prometheus-client's own, and against its parsers."""

import re
from collections.abc import Iterable, Sequence

import pytest
from prometheus_client import Metric
from prometheus_client.exposition import generate_latest as classic_text
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_text
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_classic
from prometheus_client.registry import Collector

from exporter.metrics_text import (
    Family,
    label_text,
    number_text,
    render,
    wants_openmetrics,
)

HOSTILE = 'ACME "West" \\ prod\nx'
ROUTE = "C:\\prompts\\new"


class Given(Collector):
    """A registry holding exactly these families."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def both() -> tuple[list[Family], Given]:
    """The same four families, ours and the library's."""
    ours = [
        Family("x_tokens_total", "counter", 'Help with "quotes", a \\ and\na line.'),
        Family("x_ratio", "gauge", "A gauge."),
        Family("x_seconds", "histogram", "A histogram."),
        Family("x_build_info", "info", "Facts."),
        Family("x_empty_total", "counter", "Nothing yet."),
    ]
    counter = CounterMetricFamily("x_tokens", ours[0].help, labels=["route", "tenant"])
    gauge = GaugeMetricFamily("x_ratio", ours[1].help)
    histogram = HistogramMetricFamily("x_seconds", ours[2].help, labels=["model"])
    info = InfoMetricFamily("x_build", ours[3].help, labels=[])
    empty = CounterMetricFamily("x_empty", ours[4].help, labels=["route"])
    for values, number in [((ROUTE, HOSTILE), 12345678), (("é ", ""), 0)]:
        ours[0].add(label_text(("route", "tenant"), values), number)
        counter.add_metric(values, number)
    ours[1].add("", 0.25)
    gauge.add_metric([], 0.25)
    ours[2].add_histogram(label_text(("model",), ("m",)), (0.1, 2.5), (3, 0, 1), 7.5)
    histogram.add_metric(["m"], [("0.1", 3), ("2.5", 3), ("+Inf", 4)], sum_value=7.5)
    ours[3].add(label_text(("version",), ("1",)), 1)
    info.add_metric([], {"version": "1"})
    return ours, Given([counter, gauge, histogram, info, empty])


def same_numbers(page: str) -> list[str]:
    """Lines with numbers as floats: the library writes large ones in Go's way."""
    return [
        re.sub(r" (\S+)$", lambda m: f" {float(m[1])!r}", line)
        if not line.startswith("#")
        else line
        for line in page.splitlines()
    ]


@pytest.mark.parametrize("openmetrics", [False, True])
def test_lines_equal_the_librarys(openmetrics: bool) -> None:
    ours, library = both()
    expected = openmetrics_text(library) if openmetrics else classic_text(library)
    page = render(ours, openmetrics=openmetrics).decode()
    assert same_numbers(page) == same_numbers(expected.decode())
    assert page.endswith("# EOF\n") == openmetrics


@pytest.mark.parametrize("openmetrics", [False, True])
def test_t47_hostile_label_values_come_back_exactly(openmetrics: bool) -> None:
    ours, _ = both()
    page = render(ours, openmetrics=openmetrics).decode()
    families = parse_openmetrics(page) if openmetrics else parse_classic(page)
    samples = [s for family in families for s in family.samples if s.name == "x_tokens_total"]
    assert [s.labels for s in samples] == [
        {"route": ROUTE, "tenant": HOSTILE},
        {"route": "é ", "tenant": ""},
    ]
    assert [s.value for s in samples] == [12345678, 0]


def test_a_lone_surrogate_does_not_lose_the_page() -> None:
    family = Family("x_total", "counter", "x")
    family.add(label_text(("tenant",), ("a\ud800b",)), 1)
    page = render([family], openmetrics=False).decode()
    assert 'x_total{tenant="a?b"} 1.0' in page


def test_non_finite_numbers_have_their_own_spelling() -> None:
    assert [number_text(float(n)) for n in ("inf", "-inf", "nan")] == ["+Inf", "-Inf", "NaN"]


def test_every_label_needs_its_value() -> None:
    with pytest.raises(ValueError, match="zip"):
        label_text(("model", "route"), ("m",))


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", False),
        ("*/*", False),
        ("text/html,nonsense;q=x", False),
        ("text/plain;version=0.0.4", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", True),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.9", False),
        # What Prometheus 3 sends.
        (
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
                "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;"
                "escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
            ),
            True,
        ),
        ("application/vnd.google.protobuf;q=0.7,*/*;q=0.1", False),
    ],
)
def test_t52_format_follows_the_accept_header(accept: str, expected: bool) -> None:
    assert wants_openmetrics(accept) is expected
