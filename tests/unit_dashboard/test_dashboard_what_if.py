"""The What if page: what it begins with, and three clicks to what is saved."""

import time

import pytest

from tests.unit_dashboard.loopback import Exporter, Open, words

KEY = "a1b2c3d4"


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
    app.button[-1].click().run()  # the second; a third would be a wish of one's own
    assert not app.exception
    assert "Caching saves 0 GPU-seconds of prefill" in words(app)
    assert "Routing by bounded-load saves" in words(app)
    # A live window moves on every few seconds; what was asked for is not replayed with it.
    asked = sum(name == "request_chains" for name, _ in exporter.asked)
    later = time.time() + 600
    monkeypatch.setattr("dashboard.answers.time.time", lambda: later)
    app.run()
    assert not app.exception
    assert sum(name == "request_chains" for name, _ in exporter.asked) == asked == 1
    shown = app.dataframe[0].value
    assert list(shown["arm"])[:2] == ["off", "round-robin"]
    ratios = dict(zip(shown["arm"], shown["token_hit_ratio"], strict=True))
    assert round(ratios["round-robin"], 1) == 0.0
    assert round(ratios["sticky"], 1) == 48.5  # 64 of 132 tokens
    assert "Assumed: vLLM" not in words(app)
    assert "prefill of 20,000 tokens/s" in words(app)


def test_without_chains_the_page_says_the_next_step(exporter: Exporter, open_page: Open) -> None:
    exporter.request(30, 1000, 0)
    app = open_page("what_if")
    assert not app.exception
    assert "carry no chains of block hashes" in words(app)
