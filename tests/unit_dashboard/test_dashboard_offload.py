"""The Offload tab: verdict first, evidence, and words where something is missing."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.figures.offload import (
    first_token_differences,
    load_against_prefill,
    moved_over_time,
    signed_seconds,
    speed_words,
)
from dashboard.figures.rows import Rows
from dashboard.memory.offload_missing import ADVICE, advice
from tests.unit_dashboard.loopback import HOSTILE, Exporter, ago, words
from tests.unit_offload.simulation import Replica, Row, Traffic, counters, simulate

PAGE = """
from dashboard import page
from dashboard.memory import offload as offload_tab

page.show("memory", offload_tab.body)
"""
Show = Callable[[], AppTest]


@pytest.fixture
def show(exporter: Exporter) -> Show:
    """The tab on the exporter's data; any error of the page fails the test."""

    def run() -> AppTest:
        app = AppTest.from_string(PAGE, default_timeout=180).run()
        assert not app.exception
        return app

    return run


def traffic(exporter: Exporter, kind: Replica, **more: object) -> list[Row]:
    """Simulated rows and counters that end now."""
    rows = simulate(kind, Traffic(count=1200))
    shift = ago(1) - rows[-1]["ts"]
    moved = [{**row, "ts": row["ts"] + shift, **more} for row in rows]
    for row in moved:
        exporter.insert("requests", arrived=row["ts"], **row)
    return moved


def charts(app: AppTest) -> list[dict[str, Any]]:
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


def test_verdict_comes_first_with_the_words_of_the_question(exporter: Exporter, show: Show) -> None:
    rows = traffic(exporter, Replica())
    for sample in counters(rows, 50e-6):
        sample["offload_bytes"] = {k: v * 1000 for k, v in sample["offload_tokens"].items()}
        exporter.insert("engine_samples", target="a", **sample)
    app = show()
    (box,) = app.success
    assert box.value.startswith("`m`, host: **pays**: requests served from host memory had their")
    assert "loading took at most 50 µs a token" in box.value
    assert len(charts(app)) == 3
    told = words(app)
    assert "A higher hit ratio alone is no gain." in told
    assert "measured at engine, from arrival" in told
    assert "One transfer moves: host 20 MB/s." in told  # 1,000 bytes in 50 µs
    assert app.dataframe


def test_a_tier_that_does_not_pay_is_a_warning(exporter: Exporter, show: Show) -> None:
    traffic(exporter, Replica(load_seconds_per_token=500e-6))
    (box,) = show().warning
    assert box.value.startswith("`m`, host: **does not pay**: ")


def test_what_is_missing_is_named_with_what_would_tell_it(exporter: Exporter, show: Show) -> None:
    exporter.sample(5, cached_host=500, cached_tokens=500, prompt_tokens=1000)
    app = show()
    (box,) = [info for info in app.info if "cannot be told" in info.value]
    assert box.value.startswith("`m`, host: **cannot be told** (missing: request rows")
    told = words(app)
    assert "No requests to compare" in told
    assert "Not known: it needs the time and tokens of loads" in told
    assert "No metrics page in this window counts transfers" in told
    assert "vLLM's OffloadingConnector counts it from 0.24" in told
    assert not charts(app)


def test_without_a_lower_tier_the_flags_are_shown(exporter: Exporter, show: Show) -> None:
    exporter.sample(5, cached_tokens=500, cached_device=500, prompt_tokens=1000)
    app = show()
    assert any("No lower tier was at work" in info.value for info in app.info)
    assert "--kv-offloading-size GIB" in words(app)
    assert "--enable-hierarchical-cache" in words(app)


def test_stale_reuse_is_an_error_box_even_without_a_tier(exporter: Exporter, show: Show) -> None:
    chain = {"block_hashes": [7], "block_size": 16, "replica": "r1", "model": "m"}
    exporter.request(9, 200, 0, model_fingerprint="v1", **chain)
    exporter.request(5, 200, 160, model_fingerprint="v2", **chain)
    (box,) = show().error
    assert "written under other weights were reused" in box.value
    assert "Written under `v1`, reused under `v2`" in box.value


def test_hostile_names_are_shown_as_they_are(exporter: Exporter, show: Show) -> None:
    traffic(exporter, Replica(), model=HOSTILE)
    (box,) = show().success
    assert box.value.startswith("`")
    assert "<script" not in box.value.split("`")[2]


def difference(comparison: str, low: float, high: float, **more: object) -> dict[str, Any]:
    return {
        "comparison": comparison, "within_from": 1024, "within_to": 1449,
        "difference_seconds": (low + high) / 2, "low_seconds": low, "high_seconds": high,
        "served_requests": 20, "computed_requests": 30, "served_seconds": 0.1,
        "computed_seconds": 0.3, **more,
    }  # fmt: skip


def test_differences_have_their_intervals_and_leave_transfers_out() -> None:
    rows = [
        difference("host", -0.3, -0.1), difference("transfers", 1, 2),
        difference("host", 0.0, 0.2, within_from=512, within_to=725),
        difference("disk", 0.1, 0.5),
    ]  # fmt: skip
    figure = first_token_differences(rows)
    host, disk = figure.data
    assert list(host.x) == pytest.approx([-0.2, 0.1])
    assert list(host.error_x.array) == pytest.approx([0.1, 0.1])
    assert list(disk.error_x.arrayminus) == pytest.approx([0.2])
    assert list(figure.layout.yaxis.categoryarray) == ["512 – 725", "1,024 – 1,449"]
    assert "20 against 30 requests" in host.customdata[0]
    assert "−200 ms (−300 ms to −100 ms)" in host.customdata[0]


def test_bars_only_where_both_times_are_known() -> None:
    known = {"load_seconds_per_token": 5e-5, "prefill_seconds_per_token": 2.5e-4}
    rows: Rows = [
        {"model": "<b>m</b>", "tier": "host", **known},
        {"model": "n", "tier": "disk", "load_seconds_per_token": None,
         "prefill_seconds_per_token": 1e-4},
    ]  # fmt: skip
    load, prefill = load_against_prefill(rows).data
    assert list(load.y) == ["&lt;b&gt;m&lt;/b&gt;, host"]
    assert (list(load.x), list(prefill.x)) == ([pytest.approx(50)], [pytest.approx(250)])


def test_flow_is_by_second_and_breaks_where_nothing_was_scraped() -> None:
    at = ago(10)
    rows = [
        {"ts": at + timedelta(minutes=minute), "tier": "host", "direction": "load",
         "bytes": 6_000_000, "tokens": 60, "bytes_per_second": 1e9}
        for minute in (0, 1, 5)
    ]  # fmt: skip
    figure = moved_over_time(rows, step_seconds=60, since=at, until=ago(0))
    flow, speed = figure.data
    assert [value for value in flow.y if value is not None] == [100_000, 100_000, 100_000]
    assert list(flow.y)[2] is None
    assert speed.y[0] == 1e9
    assert flow.name == "brought back, host"
    tokens = [{**row, "bytes": None, "bytes_per_second": None} for row in rows]
    only = moved_over_time(tokens, step_seconds=60, since=at, until=ago(0))
    assert [trace.y[0] for trace in only.data] == [1.0]
    assert only.layout.yaxis.title.text == "tokens a second"


def test_words_of_figures() -> None:
    assert (signed_seconds(-0.25), signed_seconds(0.25)) == ("−250 ms", "+250 ms")
    assert (signed_seconds(0.0), signed_seconds(None)) == ("0.0 ms", "–")
    assert (speed_words(2.5e9), speed_words(2.5e6), speed_words(None)) == (
        "2.5 GB/s", "2.5 MB/s", "–")  # fmt: skip


def test_every_missing_thing_the_question_can_name_has_advice(exporter: Exporter) -> None:
    """One store after another lacks what can be lacking."""
    exporter.sample(5, cached_host=500, offload_seconds={"load/host": 3.0})
    traffic(exporter, Replica(), replica="other", cached_host=None, cached_device=None,
            cached_disk=None, cached_remote=None)  # fmt: skip
    named = []
    for damage in ("", "UPDATE requests SET cached_host = cached_tokens, queue_seconds = NULL",
                   "UPDATE requests SET ttft_seconds = NULL", "DELETE FROM requests"):  # fmt: skip
        if damage:
            exporter.connection.execute(damage)
        (row,) = exporter.answer("offload_verdict", {}).to_pylist()
        named += advice(row["missing"])
    assert len(named) >= 8
    assert all(told in ADVICE.values() for _, told in named)
