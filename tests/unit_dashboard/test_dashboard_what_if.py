"""The What if page: prompts from rows, what it begins with, and three clicks to what is saved."""

import time
from datetime import timedelta

import pyarrow as pa
import pytest

from dashboard import what_if
from tests.unit_dashboard.loopback import Exporter, Open, ago, words

KEY = "a1b2c3d4"


def chains(**columns: list[object]) -> pa.Table:
    count = len(columns["block_hashes"])
    given = {
        "ts": [ago(60) + timedelta(seconds=place) for place in range(count)],
        "prompt_tokens": [40] * count, "output_tokens": [None] * count,
        "block_size": [None] * count, "hash_key_id": [KEY] * count, "model": ["m"] * count,
        "model_fingerprint": [""] * count, "scope": [""] * count, "hash_scope": ["global"] * count,
        "trace_id": [None] * count, "replica": [""] * count, "text_bytes": [None] * count,
        "cached_tokens": [None] * count,
        "batch": [1] * count, "position": list(range(count)),
    } | columns  # fmt: skip
    types = {"block_hashes": pa.list_(pa.uint64()), "block_size": pa.int32(),
             "output_tokens": pa.int64(), "ts": pa.timestamp("us")}  # fmt: skip
    return pa.table({name: pa.array(values, types.get(name)) for name, values in given.items()})


def test_rows_become_prompts_in_order_of_time() -> None:
    late, early = ago(10), ago(20)
    table = chains(block_hashes=[[7, 9], [7, 2**64 - 1]], ts=[late, early])
    found = what_if.recorded(table)
    assert found is not None
    prompts = found.prompts
    assert (found.model, found.token_hit_ratio) == ("m", None)
    assert prompts.blocks.tolist() == [0, 1, 0, 2]
    assert (round(float(prompts.arrived[1])), prompts.block_tokens) == (600, 16)
    assert prompts.output_tokens.tolist() == [0, 0]


def test_rows_without_a_chain_or_of_another_grain_are_left_out() -> None:
    """Two of our own (16 tokens) stay; a trace's blocks of 512 and a row without go."""
    table = chains(block_hashes=[[1], None, [2], [3], []], block_size=[32, None, None, 512, None],
                   hash_key_id=[KEY, KEY, KEY, "", KEY])  # fmt: skip
    found = what_if.recorded(table)
    assert found is not None
    prompts = found.prompts
    assert (len(prompts), prompts.block_tokens) == (2, 16)
    assert what_if.recorded(chains(block_hashes=[None, None])) is None
    assert what_if.recorded(chains(block_hashes=[[1]], text_bytes=[64])) is None


@pytest.mark.parametrize(
    "apart",
    [
        {"scope": ["a", "b"]},
        {"model_fingerprint": ["v1", "v2"]},
        {"hash_scope": ["trace", "trace"], "trace_id": ["1", "2"]},
        {"hash_scope": ["engine", "engine"], "replica": ["r1", "r2"]},
        {"hash_key_id": [KEY, "another"]},
    ],
)
def test_names_that_do_not_mean_the_same_are_no_hits(apart: dict[str, list[object]]) -> None:
    found = what_if.recorded(chains(block_hashes=[[1], [1]], **apart))
    assert found is not None
    assert found.prompts.distinct_blocks == 2


def test_of_several_models_that_with_most_tokens_is_replayed() -> None:
    """10 of the 40 tokens that b's reporting request has were cached."""
    table = chains(
        block_hashes=[[1], [1], [2]], model=["a", "b", "b"], cached_tokens=[40, 10, None]
    )
    found = what_if.recorded(table)
    assert found is not None
    assert (len(found.prompts), found.model, found.token_hit_ratio) == (2, "b", 0.25)


def test_larger_blocks_are_named_by_their_last() -> None:
    found = what_if.recorded(chains(block_hashes=[[1, 2, 3, 4, 5], [1, 2, 3, 9]]))
    assert found is not None
    larger = found.prompts.of_blocks(32)
    assert (larger.blocks.tolist(), larger.starts.tolist()) == ([0, 1, 0, 2], [0, 2, 4])
    with pytest.raises(ValueError, match="no multiple of 16"):
        found.prompts.of_blocks(24)


def test_what_the_store_tells_is_begun_with_and_named() -> None:
    found = what_if.measured(
        [{"role": "unified"}, {"role": "unified"}, {"role": "decode"}],
        [
            {"capacity_tokens": 102_400, "capacity_blocks": 3200},
            {"capacity_tokens": 297_600},
            {"capacity_tokens": None},
        ],
        [{"tokens_per_second": 9_000.0}],
    )
    assert (found.replicas, found.capacity_tokens, found.block_tokens) == (2, 200_000, 32)
    assert found.prefill_tokens_per_second == 9_000.0
    assert "2 replicas were heard" in found.sources
    nothing = what_if.measured([], [], [])
    assert [word for word in nothing.sources if "assumed" in word] == list(nothing.sources)


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
