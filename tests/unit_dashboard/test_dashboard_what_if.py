"""The What if page: what it begins with, and three clicks to what is saved."""

import time

import pytest

from dashboard.answers import asked
from dashboard.figures import what_if as figures
from dashboard.filters import iso
from dashboard.replayed.rows import Step
from dashboard.what_if import traffic
from dashboard.what_if.choices import Choices
from replay.arms import arm_named
from tests.unit_dashboard.loopback import HOSTILE, Exporter, Open, ago, words

KEY = "a1b2c3d4"
# Where nothing is compiled yet, the first replay takes as long as that.
COMPILING_SECONDS = 300


def test_the_page_begins_with_what_the_store_tells_of_the_model(
    exporter: Exporter, open_page: Open
) -> None:
    """Two models: that of most tokens with chains is replayed, with its own engine's memory."""
    exporter.request(30, 900, 0, model="m", block_hashes=[1], hash_key_id=KEY, replica="r1")
    exporter.request(30, 9000, 0, model="n")
    exporter.sample(20, "r1", model="m", kv_capacity_tokens=4096, block_size=32)
    exporter.sample(20, "r2", model="n", kv_capacity_tokens=777, block_size=7)
    app = open_page("what_if")
    assert not app.exception
    values = {field.label: field.value for field in app.number_input}
    assert (values["Replicas"], values["KV tokens a replica"]) == (1, 4096)
    assert values["Block, tokens"] == 32
    assert "memory for 4,096 tokens a replica: as its engine tells" in words(app)
    assert "assumed, as no replica has 100 requests" in words(app)


def requests(exporter: Exporter) -> None:
    """A, B, B, A: two replicas by turns find nothing, by prefix half of it. 33 tokens each, so that
    two whole blocks can be found."""
    for place, block in enumerate((10, 20, 20, 10)):
        exporter.request(30 - place, 33, 0, block_hashes=[block, block + 1], hash_key_id=KEY)


def test_three_clicks_to_what_routing_would_save(
    exporter: Exporter, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests(exporter)
    app = open_page("what_if")  # the first
    assert not app.exception
    app.number_input[0].set_value(2)
    # The second; a third would be a wish of one's own, such as last week instead of six hours.
    app.button[-1].click().run(timeout=COMPILING_SECONDS)
    assert not app.exception
    assert "Caching makes no difference." in words(app)
    assert "Routing by bounded-load saves" in words(app)
    # A live window moves on every few seconds; what was asked for is not replayed with it.
    replays = sum(name == "request_chains" for name, _ in exporter.asked)
    later = time.time() + 600
    monkeypatch.setattr("dashboard.answers.time.time", lambda: later)
    app.run()
    assert not app.exception
    assert sum(name == "request_chains" for name, _ in exporter.asked) == replays == 1
    shown = app.dataframe[0].value
    assert list(shown["arm"])[:2] == ["off", "round-robin"]
    assert list(shown["arm"])[-2:] == ["memory:2", "host:1"]
    ratios = dict(zip(shown["arm"], shown["token_hit_ratio"], strict=True))
    assert round(ratios["round-robin"], 1) == 0.0
    assert round(ratios["sticky"], 1) == 48.5  # 64 of 132 tokens
    assert "prefill of 20,000 tokens/s" in words(app)
    assert [button.label for button in app.download_button] == ["Download as HTML", "as JSON"]
    # The same requests by template and tenant are not asked for: they have none.
    assert [tab.label for tab in app.tabs] == ["Differences", "More memory", "Assumed"]


def test_scopes_layout_and_tenants_are_tried_and_told_where_the_traffic_has_them(
    exporter: Exporter, open_page: Open
) -> None:
    """Of two tenants with the same prompts nothing is shared; in the second block of each is
    something of its own, so that 16 tokens are. Names are hostile."""
    for place in range(20):
        contents = [1, 1000 + place, *range(3, 9)]
        blocks = [1 + place % 2, *(place * 1000 + depth for depth in range(1, 8))]
        exporter.request(
            30 - place, 16 * 8 + 1, 16, model=HOSTILE, tenant=HOSTILE if place % 2 else "b",
            template="t", scope=f"s{place % 2}", block_hashes=blocks, content_hashes=contents,
            hash_key_id=KEY,
        )  # fmt: skip
    looked_at = {"model": HOSTILE, "window_since": ago(60), "window_until": ago(0)}
    exporter.insert("scope_pairs", **looked_at, replica="", scope="s1", tenants="",
                    other_scope="s0", other_tenants="", isolated_tokens=0, isolated_requests=0,
                    merged_tokens=16, merged_requests=1)  # fmt: skip
    exporter.insert("layout_findings", **looked_at, template="t", from_token=16, until_token=32,
                    kind="unknown", frequency="request", requests=20, template_requests=20,
                    prompt_tokens=2580, lost_tokens=900, gain_tokens=900, segment="", command="",
                    advice=f"Put {HOSTILE} last.")  # fmt: skip
    app = open_page("what_if")
    assert [box.label.split(",")[0] for box in app.checkbox] == [
        "Isolation off: by the last audit one scope for all would share 16 tokens more",
        "Layout of prompts mended",
    ]
    assert f"t: Put {HOSTILE} last." in [text.value for text in app.text]
    routers = {box.label: box for box in app.selectbox}
    routers["Routers count as load"].set_value(True)
    routers["Of replicas that are alike"].set_value(False)
    app.button[-1].click().run(timeout=COMPILING_SECONDS)
    assert not app.exception
    assumed = "".join(text.value for text in app.text)
    assert "where replicas are alike to a router, the first one is taken" in assumed
    assert "scored goes by uncached tokens + 1 × load (requests under way)" in assumed
    assert "Mending the layout of prompts would then, at best, save" in words(app)
    ratios = dict(
        zip(*(app.dataframe[0].value[name] for name in ("arm", "token_hit_ratio")), strict=True)
    )
    # 18 of 20 find the first block of their scope; as one scope for all, 19.
    assert round(ratios["round-robin"], 1) == round(100 * 18 * 16 / 2580, 1)
    assert round(ratios["merged"], 1) == round(100 * 19 * 16 / 2580, 1)
    assert ratios["mended"] > 60
    by = [table.value for table in app.dataframe if "group" in table.value]
    assert [sorted(table["group"]) for table in by] == [["t"], sorted([HOSTILE[:59] + "…", "b"])]
    assert HOSTILE not in "".join(part.value for part in (*app.markdown, *app.caption))


def test_choices_are_arms_by_name_each_beside_one_that_differs_in_that_alone() -> None:
    chosen = Choices(
        routers=("off", "round-robin"), memory=(0.5, 4.0), host=(0.0,), replicas=(3,),
        blocks=(128,), lifetimes=(300,), merged=True, mended=True,
        behind="sticky",
    )  # fmt: skip
    names = chosen.arms()
    assert names[:3] == ("off", "round-robin", "sticky")
    assert [arm_named(name).name for name in names[3:]] == [
        "sticky+memory:0.5", "sticky+memory:4", "sticky+host:0", "sticky+replicas:3",
        "sticky+block:128", "sticky+ttl:300", "sticky+merged", "sticky+mended",
    ]  # fmt: skip
    assert Choices(routers=("off",), memory=(), host=()).arms() == ("off",)
    assert Choices(routers=(), memory=(), host=()).arms() == ()


def test_of_a_window_too_large_its_end_is_replayed(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten requests of four hashes within 100 minutes; 20 hashes may be asked for."""
    for place in range(10):
        exporter.request(10 * place, 33, 0, block_hashes=[1, 2, 3, 4], hash_key_id=KEY)
    monkeypatch.setattr(traffic, "MOST_HASHES", 20)
    window = {"since": iso(ago(100)), "until": iso(ago(-1))}
    fits = traffic.newest_that_fits(window, None, 40)
    assert fits["until"] == window["until"]
    row = next(iter(asked("request_chain_counts", fits)))
    assert 12 <= row["hashes"] <= 20
    assert traffic.newest_that_fits(window, None, 20) == window


def test_bars_of_the_gain_begin_where_the_one_before_ends() -> None:
    steps = [Step("Caching off", "", 0, 100), Step("Caching", "caching", 100, 60),
             Step("Routing", "routing", 60, 70), Step("Left", "", 0, 70)]  # fmt: skip
    bars = figures.gain(steps).data[0]
    assert (list(bars.base), list(bars.x)) == ([0, 60, 60, 0], [100, 40, 10, 70])
    assert list(bars.text) == ["100", "-40", "+10", "70"]
    assert len(set(bars.marker.color)) == 3  # a sum, what is saved, what costs more


def test_without_chains_the_page_says_the_next_step(exporter: Exporter, open_page: Open) -> None:
    exporter.request(30, 1000, 0)
    app = open_page("what_if")
    assert not app.exception
    assert "carry no chains of block hashes" in words(app)


def test_a_store_of_engines_alone_is_told_to_send_requests(
    exporter: Exporter, open_page: Open
) -> None:
    exporter.sample(20, "r1", kv_capacity_tokens=4096)
    app = open_page("what_if")
    assert not app.exception
    assert "A replay takes requests, and there are none. One step adds them" in words(app)


def test_a_model_without_chains_and_chunks_of_text_are_told_apart(
    exporter: Exporter, open_page: Open
) -> None:
    text = {"block_hashes": [1], "hash_key_id": KEY, "text_bytes": 64}
    exporter.request(30, 1000, 0, model="m", **text)
    exporter.request(400, 1000, 0, model="m", **text)
    exporter.request(30, 1000, 0, model="n", block_hashes=[1], hash_key_id=KEY)
    exporter.request(31, 1000, 0, model="n")
    assert "No request of the model chosen above" in words(open_page("what_if", model="m"))
    ends = {"since": iso(ago(500)), "until": iso(ago(390))}
    assert "name chunks of text" in words(open_page("what_if", **ends))
    app = open_page("what_if", model="n", tenant="acme")
    assert "1 request of `n`" in words(app)
    assert "1 more have no chain of them, and cannot be replayed" in words(app)
    assert "serve all of them, whatever tenant above says" in words(app)
