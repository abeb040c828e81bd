"""The four tabs of the Memory page: with events, with engine data only, with an empty store."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.memory.events_missing import FLAGS
from prefixscope.settings import Settings
from prefixscope.settings_file import load
from tests.unit_dashboard.loopback import HOSTILE, Exporter, Open, ago, tile, words

TABS = ("split", "evictions", "offload", "contents")


def sample(exporter: Exporter, minutes: float, replica: str = "r1", **more: object) -> None:
    given = {"kv_usage_ratio": 0.25, "kv_running_tokens": 4000, "kv_capacity_tokens": 16_000,
             "running_requests": 10, "block_size": 16, **more}  # fmt: skip
    exporter.sample(minutes, replica, **given)


def told(exporter: Exporter, minutes: float, replica: str = "r1", **more: object) -> None:
    """One minute of events; capacity is 1000 blocks."""
    ts = ago(minutes).replace(second=0, microsecond=0)
    given = {"stored_blocks": 0, "evicted_blocks": 0, "demoted_blocks": 0, "promoted_blocks": 0,
             "reset_blocks": 0, "resident_blocks": 750, "resident_tokens": 12_000,
             **more}  # fmt: skip
    exporter.insert("block_minutes", minute=ts, heard=ts + timedelta(seconds=30),
                    replica=replica, **given)  # fmt: skip


def with_events(exporter: Exporter, **stream: object) -> None:
    """r1 with events: 100 of 1000 blocks evicted in the window, 40 of 80 known never reused."""
    sample(exporter, 5)
    told(exporter, 60, stored_blocks=850, lifetime={56: 90, 57: 10}, evicted_reuse_gap={40: 7})
    told(exporter, 30, evicted_blocks=100, never_reused_blocks=40, reuse_known_blocks=80)
    exporter.insert("block_streams", first_heard=ago(60), last_heard=ago(5), **stream)
    exporter.insert("block_resets", ts=ago(45), reason="clear", blocks=33)


def with_contents(exporter: Exporter, **first: object) -> None:
    now = ago(1)
    given = {"as_of": now, "prefix": 2**63 + 5, "prefix_tokens": 640, "blocks": 500,
             "tokens": 8000, "replicas": 2, "requests": 12, "template": "chat",
             "tenant": "acme"}  # fmt: skip
    exporter.insert("resident_prefixes", **{**given, **first})
    exporter.insert("block_copies", minute=now, unique_blocks=600, resident_blocks=750)
    exporter.insert("block_copies", minute=now, replica_a="r1", replica_b="r2",
                    unique_blocks=600, resident_blocks=750, shared_blocks=150)  # fmt: skip


def figures(app: AppTest) -> list[dict[str, Any]]:
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


def table(app: AppTest, column: str) -> Any:  # noqa: ANN401  # a pandas frame
    return next(frame.value for frame in app.dataframe if column in frame.value.columns)


@pytest.mark.parametrize("tab", TABS)
@pytest.mark.parametrize("kind", ["events", "engine", "empty"])
def test_every_tab_opens_with_whatever_there_is(
    exporter: Exporter, open_page: Open, tab: str, kind: str
) -> None:
    if kind == "engine":
        sample(exporter, 5)
    if kind == "events":
        with_events(exporter)
        with_contents(exporter)
    app = open_page("memory", tab=tab)
    assert not app.exception
    assert not app.error
    assert words(app).strip()


def test_the_tab_is_in_the_address_and_a_wrong_one_is_the_first(
    exporter: Exporter, open_page: Open
) -> None:
    with_events(exporter)
    app = open_page("memory", tab="evictions")
    assert app.segmented_control(key="tab").value == "evictions"
    assert app.query_params["tab"] == "evictions"
    app.segmented_control(key="tab").set_value("contents").run()
    assert app.query_params["tab"] in ("contents", ["contents"])
    app.segmented_control(key="tab").set_value("split").run()
    assert "tab" not in app.query_params
    assert open_page("memory", tab="<b>").segmented_control(key="tab").value == "split"


def test_t20_split_by_events_in_tokens_and_gib(exporter: Exporter, open_page: Open) -> None:
    with_events(exporter)
    exporter.insert("kv_geometry", model="m", bytes_per_token=2**20)
    app = open_page("memory")
    # Of 12000 resident 4000 - 10 x 16 are held by running requests: 8160 cached, 3840 free.
    assert tile(app, "Cached, tokens")[0] == "8,160"
    assert tile(app, "Free, tokens")[0] == "3,840"
    assert "15.62 GiB of KV: 3.91 GiB running, 7.97 GiB cached, 3.75 GiB free." in words(app)
    assert "by KV-cache events" in words(app)
    assert list(table(app, "cached_bytes")["cached_bytes"]) == [pytest.approx(7.96875)]
    stack = next(f for f in figures(app) if f["layout"].get("barmode") == "stack"
                 and f["layout"]["xaxis"].get("type") == "date")  # fmt: skip
    assert [trace["name"] for trace in stack["data"]] == ["running", "cached", "free"]


def test_without_geometry_no_byte_is_shown(exporter: Exporter, open_page: Open) -> None:
    with_events(exporter)
    app = open_page("memory")
    assert "GiB" not in words(app)
    assert "cached_bytes" not in table(app, "cached_tokens").columns


def test_t29_uncertain_state_is_said_on_every_tab_that_uses_it(
    exporter: Exporter, open_page: Open
) -> None:
    with_events(exporter, uncertain=f"3 batches are missing {HOSTILE}", missed_batches=3)
    for tab in ("split", "evictions", "contents"):
        app = open_page("memory", tab=tab)
        said = [warning.value for warning in app.warning]
        assert any("What `r1` holds is uncertain: `3 batches are missing" in w for w in said), tab


def test_events_of_an_unknown_replica_say_so(exporter: Exporter, open_page: Open) -> None:
    with_events(exporter)
    exporter.insert("block_streams", replica="10.0.0.7:5557")
    assert "Events of `10.0.0.7:5557` match no scraped replica" in words(open_page("memory"))


def test_evictions_tell_rate_regret_and_resets(exporter: Exporter, open_page: Open) -> None:
    with_events(exporter)
    app = open_page("memory", tab="evictions")
    assert tile(app, "Evicted, blocks (device)")[0] == "100"
    assert tile(app, "Never reused")[0] == "50.0 %"
    # 7 blocks in the bucket [1.08^40, 1.08^41) = [21.72, 23.46): their median is its middle.
    assert tile(app, "Wanted again after (p50)")[0] == "22.6 s"
    course = next(f for f in figures(app) if "reset" in {t.get("name") for t in f["data"]})
    mark = next(t for t in course["data"] if t.get("name") == "reset")
    assert mark["customdata"] == ["clear of r1, 33 blocks"]
    ages = {t["name"]: t for f in figures(app) for t in f["data"] if t["type"] == "bar"}
    # 1.08^57 is 80.4 s and 1.08^58 86.8: all 100 lie between one and two minutes.
    assert ages["lifetime"]["x"] == ["1–2 min"]
    assert ages["evicted, then stored again after"]["x"] == ["10–30 s"]
    assert "By KV-cache events." in words(app)
    assert list(table(app, "evicted_blocks")["evicted_blocks"]) == [100]


def test_t28_evictions_by_counters_say_what_they_cannot_tell(
    exporter: Exporter, open_page: Open
) -> None:
    sample(exporter, 5, engine="sglang", evicted={"device/tokens": 320},
           demoted={"host/tokens": 160})  # fmt: skip
    app = open_page("memory", tab="evictions")
    assert tile(app, "Evicted, blocks (device)")[0] == "20"
    assert tile(app, "Demoted, blocks")[0] == "10"
    assert tile(app, "Never reused")[0] == "–"
    assert "By the engines' own counters" in words(app)
    assert "Only KV-cache events tell what was wanted again." in words(app)
    assert next(code.value for code in app.code) == FLAGS["sglang"][1]
    assert FLAGS["vllm"][1] not in [code.value for code in app.code]


@pytest.mark.parametrize("tab", ["evictions", "contents"])
def test_missing_events_are_explained_with_the_flag_to_set(
    exporter: Exporter, open_page: Open, tab: str
) -> None:
    sample(exporter, 5)
    app = open_page("memory", tab=tab)
    assert app.info[-1].value.endswith("name their streams in prefixscope.yml.")
    assert FLAGS["vllm"][1] in [code.value for code in app.code]
    assert not figures(app)


def test_flags_are_json_and_the_setting_is_ours(
    exporter: Exporter, open_page: Open, tmp_path: Path
) -> None:
    for _, flag in FLAGS.values():
        given = json.loads(flag.removeprefix("--kv-events-config ").strip("'"))
        assert given["publisher"] == "zmq"
        ports = {given["endpoint"].rsplit(":")[-1], given["replay_endpoint"].rsplit(":")[-1]}
        assert ports == {"5557", "5657"}
    sample(exporter, 5)
    file = tmp_path / "prefixscope.yml"
    file.write_text(open_page("memory", tab="contents").code[-1].value)
    (stream,) = load(Settings, file, {}).events
    assert stream.endpoint == "tcp://{host}:5557"


def test_contents_name_whose_it_is_and_what_they_weigh(exporter: Exporter, open_page: Open) -> None:
    with_events(exporter)
    with_contents(exporter, template=HOSTILE)
    exporter.insert("kv_geometry", model="m", bytes_per_token=2**20)
    app = open_page("memory", tab="contents")
    assert tile(app, "Resident, tokens")[0] == "12,000"
    assert tile(app, "The same in GiB")[0] == "11.72 GiB"
    assert tile(app, "Copies per block")[0] == "1.25"
    assert tile(app, "Held more than once, tokens")[0] == "2,400"
    held = next(f for f in figures(app) if f["data"][0].get("orientation") == "h")
    assert list(held["layout"]["yaxis"]["ticktext"])[1] == "further prefixes, not named"
    assert "<img" not in json.dumps(held)
    prefixes = table(app, "prefix")
    assert list(prefixes["prefix"]) == ["80000000"]
    assert list(prefixes["share_ratio"]) == [pytest.approx(100 * 8000 / 12_000)]
    heat = next(f for f in figures(app) if f["data"][0]["type"] == "heatmap")
    assert heat["data"][0]["customdata"][0][1] == "150 of 600 blocks on both (25.0 %)"


def test_contents_follow_the_filters(exporter: Exporter, open_page: Open) -> None:
    with_events(exporter)
    with_contents(exporter)
    with_contents(exporter, prefix=7, tenant="other")
    app = open_page("memory", tab="contents", tenant="acme", contents="tenant")
    assert list(table(app, "prefix")["tenant"]) == ["acme"]
    assert "No prefix with these filters" in words(
        open_page("memory", tab="contents", tenant="nobody")
    )


def test_only_the_questions_of_a_tab_are_asked(exporter: Exporter, open_page: Open) -> None:
    with_events(exporter)
    exporter.asked.clear()
    open_page("memory", tab="contents")
    asked = {name for name, _ in exporter.asked}
    assert "resident_contents" in asked
    assert not asked & {"evictions", "memory_over_time", "offload"}


def test_replicas_that_could_send_events_and_do_not_are_named(
    exporter: Exporter, open_page: Open
) -> None:
    with_events(exporter)
    sample(exporter, 5, "quiet")
    sample(exporter, 5, "other-engine", engine="llamacpp")
    said = words(open_page("memory", tab="evictions"))
    assert "`quiet`: what events tell is not in these figures." in said
    assert "other-engine" not in said


def test_an_engine_without_events_is_not_asked_for_them_by_name(
    exporter: Exporter, open_page: Open
) -> None:
    sample(exporter, 5, engine="llamacpp")
    codes = [code.value for code in open_page("memory", tab="contents").code]
    assert [flag for _, flag in FLAGS.values()] == codes[:2]
