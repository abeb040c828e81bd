"""Every page says which sources its figures come from, and warns of what counts twice."""

import pytest

from dashboard import sources
from dashboard.figures.rows import Row
from dashboard.figures.safe import code_span
from queries import source_words
from tests.unit_dashboard.loopback import HOSTILE, Exporter, Open, ago, words

PAGES = ("now", "who", "why", "latency", "memory")


def source(**given: object) -> Row:
    """A row of figure_sources."""
    empty = dict.fromkeys(
        ("observer", "joined_rows", "targets", "replicas", "prompt_tokens",
         "reported_prompt_tokens", "cached_tokens", "reported_ratio", "first_ts", "last_ts")
    )  # fmt: skip
    return {**empty, "kind": "engine", "source": "", "rows": 7, "observer": "engine", **given}


LOG = source(kind="log", source="gateway", basis="litellm", rows=1_204_331, observer=None)
SCRAPED = source(basis="scrape", targets=4)


BOTH = (
    "From request log `gateway` (litellm, 1,204,331 rows) and counters of engines polled from 4 "
    "targets."
)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([LOG, SCRAPED],
         BOTH),
        ([source(basis="backfill", source="http://p:9090")],
         "From history of the Prometheus `http://p:9090`."),
        ([source(basis="prometheus", source="http://p:9090"), source(basis="file", targets=1)],
         ("From counters of engines read from the Prometheus `http://p:9090` and recorded metric "
         "pages of 1 target.")),
        ([source(kind="log", basis="roll-up", rows=11, observer=None)],
         "From roll-ups of request logs (11 rows)."),
        ([LOG, SCRAPED, source(basis="scrape", targets=1, observer="router")],
         BOTH),
        ([source(basis="scrape", targets=1, observer="router")], ""),
        ([LOG] * 6,
         "From " + "request log `gateway` (litellm, 1,204,331 rows), " * 3
         + "request log `gateway` (litellm, 1,204,331 rows) and 2 more."),
    ],
)  # fmt: skip
def test_one_line_names_sources_with_their_basis(rows: list[Row], told: str) -> None:
    assert sources.summary(rows) == told


def test_a_source_is_told_with_its_time_and_share() -> None:
    told = sources.line({
        **LOG, "joined_rows": 15, "prompt_tokens": 20_190, "cached_tokens": 12_000,
        "reported_ratio": 0.9, "first_ts": ago(60), "last_ts": ago(0),
    })  # fmt: skip
    assert told.startswith("**request log `gateway` (litellm, 1,204,331 rows)**: 15 of its rows")
    assert "20,190 prompt tokens, 12,000 cached, 90.0 % report cached tokens" in told
    observed = sources.line(source(basis="scrape", targets=1, observer="router"))
    assert observed == "**counters of routers polled from 1 target**: in no engine figure"


def test_both_values_and_their_difference_are_told() -> None:
    pair: Row = {
        "kind": "log_and_engine", "first_source": "gateway", "second_source": "scrape",
        "model": "m", "replica": None, "shared": None, "first_prompt_tokens": 4_000,
        "second_prompt_tokens": 4_800, "difference_tokens": 800, "difference_ratio": 0.2,
    }  # fmt: skip
    assert source_words.compared(pair, code_span) == (
        "the log `gateway` and the engines' counters (`scrape`), model `m`: 4,000 and 4,800 prompt "
        "tokens, difference +800 (+20.0 %)"
    )
    unknown = {**pair, "second_prompt_tokens": None, "difference_tokens": None,
               "difference_ratio": None}  # fmt: skip
    assert source_words.compared(unknown).endswith("4,000 and unknown prompt tokens")


@pytest.mark.parametrize("page", PAGES)
def test_every_page_names_its_sources(exporter: Exporter, open_page: Open, page: str) -> None:
    exporter.request(30, 1000, 800, source="gateway", source_format="litellm")
    exporter.sample(5, "r1", prompt_tokens=10_000, cached_tokens=6_000, origin="scrape")
    app = open_page(page)
    assert not app.exception
    assert (
        "From request log `gateway` (litellm, 1 row) and counters of engines polled from 1 target."
        in words(app)
    )


def test_the_hover_of_a_headline_names_its_sources(exporter: Exporter, open_page: Open) -> None:
    exporter.request(30, 1000, 800, source="gateway", source_format="litellm")
    exporter.sample(5, "r1", prompt_tokens=10_000, cached_tokens=6_000, waiting_requests=2)
    helps = {metric.label: metric.proto.help for metric in open_page().metric}
    for label in ("Token hit ratio", "Coverage", "Computed"):
        assert "From request log `gateway` (litellm)." in helps[label]
    assert "From counters of engines polled from 1 target." in helps["Waiting requests"]


def test_what_counts_twice_is_said_aloud(exporter: Exporter, open_page: Open) -> None:
    for log in ("gateway", "tap"):
        exporter.request(30, 1000, 800, source=log, request_id="r-1")
    app = open_page()
    (warning,) = (w.value for w in app.warning if "Counted twice" in w.value)
    assert (
        "Counted twice (1 calls): calls of the same id in the logs `gateway` and `tap`" in warning
    )
    assert "1,000 and 1,000 prompt tokens, difference +0" in warning
    assert "side: gateway" in warning


def test_hostile_names_stay_text(exporter: Exporter, open_page: Open) -> None:
    for log in (HOSTILE, "tap"):
        exporter.request(30, 1000, 800, source=log, request_id="r-1")
    told = words(open_page())
    assert "`x`" not in told
    assert "<img src=x onerror=alert(1)> [a](http" in told
