"""Every page through the entry file: normal, engine-only, empty and odd data, no exporter."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from streamlit.testing.v1 import AppTest

from dashboard import answers as asking
from dashboard.words import NEXT_STEP_ROWS, NEXT_STEP_TAP
from tests.unit_dashboard.loopback import HOSTILE, Exporter, Open, tile, words

PAGES = ("now", "who", "why", "latency", "memory")
# Rows without chains and engines have nothing for Why; test_dashboard_why.py is about it.
WITHOUT_CHAINS = tuple(page for page in PAGES if page != "why")
RATIO = "Token hit ratio"
ENGINE_RATIO = "Token hit ratio (engine counters)"


def log_rows(exporter: Exporter) -> None:
    """6 h: 2,300 of 4,000 reported tokens cached (57.5 %), 1,000 more do not report (coverage
    80 %). The 6 h before: 1,400 of 2,000 (70 %)."""
    measured = {"ttft_point": "client", "route": "chat"}
    exporter.request(30, 1000, 800, tenant="a", ttft_seconds=0.1, **measured)
    exporter.request(40, 3000, 1500, tenant="b", ttft_seconds=0.3, **measured)
    exporter.request(50, 1000, None, tenant="b", route="search")
    exporter.request(400, 2000, 1400, tenant="a", route="chat")


def engine_rows(exporter: Exporter) -> None:
    """6,000 of 10,000 prompt tokens cached on r1, 3,000 of 10,000 on r2: 45 %."""
    common = {"lookup_tokens": 10_000, "running_requests": 3, "ttft_sum_seconds": 2.0,
              "ttft_buckets": {0.5: 8, 1.0: 10, float("inf"): 10}}  # fmt: skip
    exporter.sample(5, "r1", prompt_tokens=10_000, cached_tokens=6_000, lookup_hit_tokens=6_000,
                    waiting_requests=2, kv_usage_ratio=0.5, kv_running_tokens=50_000,
                    kv_capacity_tokens=100_000, **common)  # fmt: skip
    exporter.sample(5, "r2", prompt_tokens=10_000, cached_tokens=3_000, lookup_hit_tokens=3_000,
                    waiting_requests=5, kv_usage_ratio=0.1, kv_running_tokens=30_000,
                    kv_capacity_tokens=300_000, **common)  # fmt: skip


def figures(app: AppTest) -> list[dict[str, Any]]:
    """The charts of a page as dictionaries."""
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


@pytest.mark.parametrize("page", WITHOUT_CHAINS)
def test_page_opens_with_log_and_engine_data(
    exporter: Exporter, open_page: Open, page: str
) -> None:
    log_rows(exporter)
    engine_rows(exporter)
    app = open_page(page)
    assert not app.exception
    assert not app.error
    assert figures(app)


def test_now_tells_ratio_coverage_and_change(exporter: Exporter, open_page: Open) -> None:
    log_rows(exporter)
    app = open_page()
    assert tile(app, RATIO) == ("57.5 %", "-12.5 points")
    assert tile(app, "Coverage")[0] == "80.0 %"
    assert "Changes are against the previous 6 h." in words(app)
    # The verdict is on the last hour: 4,000 tokens are too few to judge.
    assert "Too little traffic to judge: 4,000 reported prompt tokens in the hour" in words(app)
    assert "basis request log · coverage 80 %" in words(app)
    help_text = next(m for m in app.metric if m.label == RATIO).proto.help
    assert "2,300 of 4,000 reported prompt tokens" in help_text


def test_t5_now_without_cached_counts_leads_with_engine_counters(
    exporter: Exporter, open_page: Open
) -> None:
    exporter.request(30, 1000, None)
    engine_rows(exporter)
    app = open_page()
    assert tile(app, ENGINE_RATIO)[0] == "45.0 %"
    assert tile(app, "Coverage")[0] == "0.0 %"
    assert "basis engine counters" in words(app)


def test_log_and_engine_ratio_stand_beside_each_other(exporter: Exporter, open_page: Open) -> None:
    log_rows(exporter)
    engine_rows(exporter)
    app = open_page()
    assert tile(app, RATIO)[0] == "57.5 %"
    assert "Engine counters say 45.0 %" in words(app)
    assert tile(app, "Waiting requests")[0] == "7"


@pytest.mark.parametrize("page", WITHOUT_CHAINS)
def test_engine_only_page_says_what_it_can_and_the_next_step(
    exporter: Exporter, open_page: Open, page: str
) -> None:
    engine_rows(exporter)
    app = open_page(page)
    assert not app.exception
    assert "Level 0: engine counters only" in words(app)
    assert NEXT_STEP_ROWS in words(app)
    assert NEXT_STEP_TAP in words(app)
    assert app.metric or app.dataframe


def test_t10_memory_weighs_by_capacity_and_keeps_unknown_unknown(
    exporter: Exporter, open_page: Open
) -> None:
    engine_rows(exporter)
    app = open_page("memory")
    assert tile(app, "KV in use, fleet")[0] == "20.0 %"  # 80,000 of 400,000, not (50 + 10) / 2
    assert tile(app, "Running, tokens")[0] == "80,000"
    assert tile(app, "Cached, tokens")[0] == "unknown"
    assert tile(app, "Free, tokens")[0] == "unknown"
    assert "both are unknown" in words(app)


def test_latency_without_rows_shows_the_engines_histogram(
    exporter: Exporter, open_page: Open
) -> None:
    engine_rows(exporter)
    app = open_page("latency")
    assert "cannot tell hits from misses" in words(app)
    assert list(app.dataframe[0].value["requests"]) == [10, 10]


def test_latency_claims_no_histogram_that_is_not_there(exporter: Exporter, open_page: Open) -> None:
    exporter.sample(5, "r1", prompt_tokens=0, cached_tokens=0)
    app = open_page("latency")
    assert "The engines timed none in it either." in words(app)
    assert "histogram" not in words(app)
    assert not app.dataframe


def test_who_with_nothing_to_compare_says_so_without_an_empty_chart(
    exporter: Exporter, open_page: Open
) -> None:
    exporter.request(30, 1000, 800)
    app = open_page("who")
    assert "Nothing to compare: one of the two windows has no reported" in words(app)
    assert not figures(app)


def test_t58_now_of_idle_engines_says_no_traffic(exporter: Exporter, open_page: Open) -> None:
    exporter.sample(5, "r1", prompt_tokens=0, cached_tokens=0)
    app = open_page()
    assert "No traffic in the hour to" in words(app)
    assert "No token hit ratio in this window" in json.dumps(figures(app))


def test_latency_never_mixes_points(exporter: Exporter, open_page: Open) -> None:
    for minute in (10, 11, 12):
        exporter.request(minute, 1000, 0, ttft_seconds=0.5, ttft_point="client")
    exporter.request(13, 1000, 0, ttft_seconds=9.0, ttft_point="engine_arrival")
    app = open_page("latency")
    assert list(app.dataframe[0].value["p99_seconds"]) == [pytest.approx(0.5)]
    app = open_page("latency", point="engine_arrival")
    assert list(app.dataframe[0].value["p99_seconds"]) == [pytest.approx(9.0)]


@pytest.mark.parametrize("page", PAGES)
def test_empty_store_says_the_first_step(exporter: Exporter, open_page: Open, page: str) -> None:
    app = open_page(page)
    assert not app.exception
    assert "The store is empty" in words(app)
    assert NEXT_STEP_ROWS in [code.value for code in app.code]
    assert not app.metric


@pytest.mark.parametrize("page", PAGES)
def test_page_without_exporter_says_what_to_run_and_recovers(
    exporter: Exporter, open_page: Open, page: str
) -> None:
    log_rows(exporter)
    exporter.broken = True
    app = open_page(page)
    assert not app.exception
    assert exporter.url in app.error[0].value
    assert "prefixscope serve" in app.code[0].value
    exporter.broken = False
    app.run()
    assert not app.error


def test_token_is_asked_for_and_told_to_nobody(
    exporter: Exporter, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_rows(exporter)
    exporter.token = "right-token"
    monkeypatch.setenv("PREFIXSCOPE_TOKEN", "wrong-token")
    app = open_page()
    assert "PREFIXSCOPE_TOKEN" in words(app)
    assert "wrong-token" not in words(app)
    monkeypatch.setenv("PREFIXSCOPE_TOKEN", "right-token")
    assert tile(app.run(), RATIO)[0] == "57.5 %"


def test_stale_data_is_said_at_the_top(exporter: Exporter, open_page: Open) -> None:
    exporter.request(180, 1000, 400)
    app = open_page()
    assert "The last data is 3 h" in app.warning[0].value
    assert tile(app, RATIO)[0] == "40.0 %"


def test_window_of_a_store_that_ended_long_ago_is_its_end(
    exporter: Exporter, open_page: Open
) -> None:
    exporter.request(5 * 24 * 60, 1000, 400)
    app = open_page()
    assert "The last data is 5 d old" in app.warning[0].value
    assert "Shown: " in app.warning[0].value
    assert tile(app, RATIO)[0] == "40.0 %"


def test_rows_outside_the_window_are_one_click_away(exporter: Exporter, open_page: Open) -> None:
    exporter.request(5 * 24 * 60, 1000, 400)
    engine_rows(exporter)
    app = open_page()
    assert tile(app, ENGINE_RATIO)[0] == "45.0 %"
    assert "No request rows in this window" in words(app)
    app = app.button(key="go-request rows").click().run()
    assert not app.exception
    assert tile(app, RATIO)[0] == "40.0 %"


def test_demo_data_is_labelled(exporter: Exporter, open_page: Open) -> None:
    exporter.request(5, 1000, 400)
    exporter.insert("meta", key="demo", value="true")
    assert "Demo data" in open_page().info[0].value


def test_filters_come_from_the_address(exporter: Exporter, open_page: Open) -> None:
    log_rows(exporter)
    assert tile(open_page(tenant="a"), RATIO)[0] == "80.0 %"
    assert tile(open_page(tenant="b"), RATIO)[0] == "50.0 %"
    exporter.request(20, 1000, 0)
    assert tile(open_page(tenant=""), RATIO)[0] == "0.0 %"  # rows without a tenant


def test_a_choice_goes_into_the_address_and_its_link_shows_the_same(
    exporter: Exporter, open_page: Open
) -> None:
    log_rows(exporter)
    app = open_page()
    app = app.selectbox(key="tenant").select("b").run()
    app = app.selectbox(key="compare").select("off").run()
    address = dict(app.query_params)
    assert address == {"tenant": "b", "compare": "off"}
    again = open_page(**address)
    assert [(m.label, m.value, m.delta) for m in again.metric] == [
        (m.label, m.value, m.delta) for m in app.metric
    ]
    assert tile(again, RATIO) == ("50.0 %", "")


def test_filters_stay_when_the_page_changes(exporter: Exporter, open_page: Open) -> None:
    log_rows(exporter)
    app = open_page(tenant="b")
    app.query_params.clear()  # as Streamlit does when a reader moves on
    app = app.switch_page("views/who.py").run()
    assert app.query_params["tenant"] == "b"
    assert list(app.dataframe[0].value["prompt_tokens"]) == [3000, 1000]


def test_who_tells_ratio_and_share_by_dimension(exporter: Exporter, open_page: Open) -> None:
    log_rows(exporter)
    table = open_page("who", by="tenant").dataframe[0].value
    assert list(table["tenant"]) == ["b", "a"]
    assert list(table["token_hit_ratio"]) == [50.0, 80.0]
    assert list(table["coverage_ratio"]) == [75.0, 100.0]
    assert list(table["computed_tokens"]) == [1500, 200]
    assert list(table["computed_share"]) == pytest.approx([150_000 / 1700, 20_000 / 1700])
    assert table["trend"][0].startswith("data:image/svg+xml")


def test_t5_who_knows_no_computed_tokens_where_nothing_reports(
    exporter: Exporter, open_page: Open
) -> None:
    exporter.request(30, 1000, None, route="silent")
    exporter.request(31, 500, 0, route="cold")
    table = open_page("who", by="route").dataframe[0].value
    assert list(table["route"]) == ["silent", "cold"]
    assert table["computed_tokens"].isna().tolist() == [True, False]
    assert table["token_hit_ratio"].isna().tolist() == [True, False]
    assert list(table["computed_share"])[1] == 100.0


def test_who_says_why_the_ratio_moved(exporter: Exporter, open_page: Open) -> None:
    log_rows(exporter)
    app = open_page("who", by="route")
    assert "Why the ratio moved against the previous 6 h" in words(app)
    # chat alone: 2,300 of 4,000 now, 1,400 of 2,000 before: 12.5 points of 4,000 tokens.
    assert "57.5 %, 70.0 % before: -12.5 points, 500 tokens more computed" in words(app)
    assert "By route: `chat` -12.5 points (its ratio 70.0 % → 57.5 %)." in words(app)
    parts = app.dataframe[1].value
    assert parts["route"][0] == "chat"
    assert (parts["within_tokens"][0], parts["mix_tokens"][0]) == (-500, 0)
    assert parts["change_ratio"][0] == pytest.approx(-12.5)


def test_engine_figures_say_which_filters_they_do_not_follow(
    exporter: Exporter, open_page: Open
) -> None:
    engine_rows(exporter)
    assert "Engines do not know tenant" in words(open_page("memory", tenant="a"))


@pytest.mark.parametrize("page", PAGES)
def test_hostile_names_stay_text(exporter: Exporter, open_page: Open, page: str) -> None:
    names = dict.fromkeys(("tenant", "route", "template", "model", "replica"), HOSTILE)
    exporter.request(5, 1000, 400, ttft_seconds=0.2, ttft_point="gateway", **names)
    exporter.sample(5, HOSTILE, prompt_tokens=100, cached_tokens=10, model=HOSTILE,
                    kv_usage_ratio=0.5, kv_capacity_tokens=100)  # fmt: skip
    exporter.insert("targets", target=HOSTILE, up=False, error=HOSTILE, engine="vllm")
    app = open_page(page, tenant=HOSTILE, by="tenant", requests="ts")
    assert not app.exception
    assert not any(part.proto.allow_html for part in app.markdown)
    for said in [*app.markdown, *app.caption, *app.info, *app.warning, *app.error]:
        outside_code = "".join(str(said.value).split("`")[::2])
        assert "<img" not in outside_code
        assert "evil.example" not in outside_code
    for figure in figures(app):
        assert "<img" not in json.dumps(figure, ensure_ascii=False)


@pytest.mark.parametrize("page", PAGES)
def test_odd_rows_break_no_page(exporter: Exporter, open_page: Open, page: str) -> None:
    odd = {"ttft_seconds": 0.0, "ttft_point": "client"}
    exporter.request(5, 0, 0, route="nothing asked", **odd)
    exporter.request(6, 500, None, route="nothing told", **odd)
    exporter.request(7, 4 * 10**15, 10**15, route="very much", **odd)
    app = open_page(page, range="3650d", compare="week")
    assert not app.exception
    assert not app.error
    assert "nan" not in " ".join(metric.value for metric in app.metric).lower()


def test_odd_address_is_read_as_default(exporter: Exporter, open_page: Open) -> None:
    log_rows(exporter)
    app = open_page(range="banana", since="never", until="2026", compare="?", by="planet")
    assert not app.exception
    assert tile(app, RATIO) == ("57.5 %", "-12.5 points")


def test_fixed_window_in_the_future_shows_no_data_and_no_zero(
    exporter: Exporter, open_page: Open
) -> None:
    log_rows(exporter)
    app = open_page(since="2100-01-01T00:00:00Z", until="2100-01-02T00:00:00Z")
    assert tile(app, RATIO)[0] == "–"
    assert "No traffic in the hour to Saturday 00:00: no hit ratio." in words(app)


def test_t75_each_question_is_asked_once_per_data_version(
    exporter: Exporter, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_rows(exporter)
    monkeypatch.setattr(asking, "data_version", lambda: 10**8)
    open_page()
    first = len(exporter.asked)
    assert len({(name, *sorted(params.items())) for name, params in exporter.asked}) == first
    open_page()
    open_page()
    assert len(exporter.asked) == first
    monkeypatch.setattr(asking, "data_version", lambda: 10**8 + 1)
    open_page()
    assert len(exporter.asked) > first


def test_t76_old_answers_leave_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(url: str, name: str, params: dict[str, str]) -> pa.Table:
        asked.append(name)
        return pa.table({"level": [1]})

    asking.st.cache_data.clear()
    monkeypatch.setattr(asking, "ask", ask)
    for version in range(400):
        monkeypatch.setattr(asking, "data_version", lambda now=version: now)
        asking.asked("store_state")
    assert len(asked) == 400
    asking.asked("store_state")  # the newest is still there
    assert len(asked) == 400
    monkeypatch.setattr(asking, "data_version", lambda: 0)
    asking.asked("store_state")  # the oldest is gone
    assert len(asked) == 401


def test_t76_charts_get_aggregated_points(exporter: Exporter, open_page: Open) -> None:
    exporter.request(0, 1000, 500, ttft_point="client")
    exporter.connection.execute(
        "INSERT INTO requests SELECT * EXCLUDE (i) REPLACE (ts - to_seconds(i) AS ts, "
        "0.1 + i / 1e5 AS ttft_seconds) FROM requests, range(20000) rows(i)"
    )
    for page in ("now", "latency"):
        traces = [trace for figure in figures(open_page(page)) for trace in figure["data"]]
        assert traces
        assert max(len(trace["x"]) for trace in traces if isinstance(trace["x"], list)) <= 320


def test_t77_requests_come_page_by_page_with_the_true_total(
    exporter: Exporter, open_page: Open
) -> None:
    for index in range(250):
        exporter.request(10 + index / 10, 1000 + index, 0)
    app = open_page("who", requests="computed_tokens")
    assert "1 to 100 of 250 requests, most computed first" in words(app)
    table = app.dataframe[-1].value
    assert list(table["prompt_tokens"][:2]) == [1249, 1248]
    assert len(table) == 100
    assert {params["limit"] for name, params in exporter.asked if name == "requests"} == {"100"}


@pytest.fixture
def zone() -> Iterator[Callable[[str], None]]:
    """Moves this process to another zone; at the end it is back where it was."""
    with pytest.MonkeyPatch.context() as patch:

        def move(name: str) -> None:
            patch.setenv("TZ", name)
            time.tzset()

        yield move
    time.tzset()


def test_t78_the_zone_of_the_server_changes_nothing(
    exporter: Exporter,
    open_page: Open,
    zone: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The page says when it was opened: a minute may end between the two.
    now = asking.data_version()
    monkeypatch.setattr(asking, "data_version", lambda: now)
    exporter.insert(
        "requests", ts="2026-11-29 23:30:00", arrived="2026-11-29 23:30:00",
        prompt_tokens=1000, cached_tokens=250,
    )  # fmt: skip
    seen = []
    for name in ("UTC", "Asia/Tokyo"):
        zone(name)
        app = open_page(since="2026-11-29T23:00:00Z", until="2026-11-30T01:00:00Z", compare="off")
        seen.append((words(app), figures(app)))
    assert seen[0] == seen[1]
    assert "Window: 2026-11-29 23:00 to 2026-11-30 01:00 UTC." in seen[0][0]
    assert "2026-11-29T23:30:00" in json.dumps(seen[0][1])
