"""What fuzzing found, each with the smallest input that showed it."""

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from pydantic import ValidationError
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from exporter.access import Access
from exporter.blocks.tracker import Heard, StreamName, Tracker
from exporter.errors import PrefixscopeError
from exporter.price_tables import PriceFile
from exporter.records import EngineSample
from exporter.sources.discovery import Discovery
from exporter.sources.engines.reading import read_page
from exporter.sources.increase import advance
from exporter.sources.page_files import read_pages
from exporter.sources.target_settings import (
    FileDiscovery,
    HttpDiscovery,
    StaticTarget,
    TargetSettings,
)
from exporter.sources.target_state import TargetIdentity, TargetState
from exporter.store.store import Store
from prefixscope.settings import load_settings
from prefixscope.settings_file import BadSettings
from replay.geometry import kv_geometry
from replay.model_config import UnknownGeometry
from tests.log_path import NOON, by_id, load, store
from tests.unit_events.batches import batch as event_batch
from tests.unit_events.batches import removed, stored

__all__ = ["store"]


def test_words_that_are_none_of_ours_say_nothing(store: Store) -> None:
    """A role, scope or point nobody knows was stored as it stood."""
    row = {"ts": NOON, "prompt_tokens": 100, "cached_tokens": 0, "ttft_s": 0.5}
    odd = {"replica_role": "ccc", "hash_scope": "a", "ttft_point": "x"}
    good = {"replica_role": "decode", "hash_scope": "trace", "ttft_point": "client"}
    load(store, [{**row, **odd, "request_id": "odd"}, {**row, **good, "request_id": "good"}])
    found = by_id(store)
    assert {name: found["odd"][name] for name in odd} == dict.fromkeys(odd)
    assert {name: found["good"][name] for name in good} == good


def test_a_source_states_the_role_where_the_row_has_no_word_of_ours(store: Store) -> None:
    rows = [{"ts": NOON, "request_id": "r", "prompt_tokens": 1, "replica_role": "ccc"}]
    load(store, rows, defaults={"replica_role": "prefill"})
    assert by_id(store)["r"]["replica_role"] == "prefill"


@pytest.mark.parametrize("odd", ["x", None, -1, {}])
def test_a_chain_with_a_hash_that_cannot_be_read_is_unknown(store: Store, odd: object) -> None:
    """It was stored with a hole in it, which no chain has."""
    rows = [
        {"ts": NOON, "request_id": "odd", "prompt_tokens": 48, "block_hashes": [1, odd, 3]},
        {"ts": NOON, "request_id": "good", "prompt_tokens": 48, "block_hashes": [1, 2, 3]},
        {"ts": NOON, "request_id": "none", "prompt_tokens": 48, "block_hashes": []},
    ]
    load(store, rows)
    found = by_id(store)
    assert found["odd"]["block_hashes"] is None
    assert "unusable:block_hashes" in found["odd"]["flags"]
    assert found["good"]["block_hashes"] == [1, 2, 3]
    assert found["none"]["block_hashes"] == []


# ------------------------------------------------------------------ settings, lists


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("server: 2001-99-99\n", "put it in quotes (line 1, column 9)"),
        (f"server: {'9' * 5000}\n", "put it in quotes (line 1, column 9)"),
        ("!!int", "put it in quotes (line 1, column 1)"),
        ("server: !!bool x", "put it in quotes (line 1, column 9)"),
        ("server: !!timestamp x", "put it in quotes (line 1, column 9)"),
        ("? {}\n: 1\n", "key {} is not text (line 1, column 3)"),
        ("? [a]\n: 1\n", "key ['a'] is not text (line 1, column 3)"),
        (f"server:\n {'- ' * 2000}\n", "nested beyond reason"),
    ],
)
def test_odd_yaml_is_an_error_to_read(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "odd.yml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadSettings) as caught:
        load_settings(file, {})
    assert str(file) in str(caught.value)
    assert str(caught.value).endswith(reason)


def test_a_list_nested_without_end_in_the_environment_is_an_error_to_read() -> None:
    with pytest.raises(BadSettings, match="PREFIXSCOPE_LOGS: not valid YAML: nested beyond"):
        load_settings(None, {"PREFIXSCOPE_LOGS": "[" * 5000})


def test_a_deep_line_in_an_index_of_pages_is_an_error_to_read(tmp_path: Path) -> None:
    (tmp_path / "1.prom").touch()
    (tmp_path / "index.jsonl").write_text("[" * 50_000, encoding="utf-8")
    with pytest.raises(PrefixscopeError, match=r"index\.jsonl:1: not JSON"):
        list(read_pages([tmp_path]))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[{"targets": ["[1"]}]', "'http://[1/metrics' is no address of a page"),
        ("- targets: ['a:b']", "'http://a:b/metrics' is no address of a page"),
        ("- targets: ['a:70000']", "'http://a:70000/metrics' is no address of a page"),
        ("- targets: [2001-99-99]", "neither JSON nor YAML"),
        ("!!int", "neither JSON nor YAML"),
        ("- targets: [!!bool x]", "neither JSON nor YAML"),
        ("- targets: [!!timestamp x]", "neither JSON nor YAML"),
        ("[" * 50_000, "nested beyond reason"),
        (f"- targets: [{'9' * 5000}]", "neither JSON nor YAML"),
    ],
)
def test_odd_lists_of_targets_keep_the_last_good_one(
    tmp_path: Path, text: str, reason: str
) -> None:
    file = tmp_path / "targets.yml"
    discovery = Discovery(TargetSettings(file_sd=[FileDiscovery(files=[str(file)])]))
    file.write_text("- targets: ['good:8000']", encoding="utf-8")
    assert [target.name for target in discovery.refresh()] == ["good:8000"]
    file.write_text(text, encoding="utf-8")
    assert [target.name for target in discovery.refresh()] == ["good:8000"]
    assert reason in discovery.errors[f"file_sd {file}"]


def test_lists_over_http_are_json_only() -> None:
    """A few kilobytes of YAML took seconds to read, and came from another program."""

    class Answered(Discovery):
        def _get(self, url: str) -> str:  # noqa: ARG002  # whatever is asked for
            return "x" + "[" * 50_000

    discovery = Answered(TargetSettings(http_sd=[HttpDiscovery(url="http://sd")]))
    assert discovery.refresh() == []
    assert "http://sd: the answer is not JSON" in discovery.errors["http_sd http://sd"]


@pytest.mark.parametrize("url", ["http://a:b/metrics", "http://[1", "a:70000", "a:0"])
def test_a_fixed_target_that_is_no_address_is_refused_at_start(url: str) -> None:
    with pytest.raises(ValidationError):
        StaticTarget(url=url)


@pytest.mark.parametrize(
    ("origin", "answer"),
    [("http://[", 403), ("http://[::1]:80", 200), ("http://localhost", 200), ("null", 403)],
)
def test_an_origin_that_is_no_address_is_another_site(origin: str, answer: int) -> None:
    """It was an error of ours, answered with 500."""
    page = PlainTextResponse("page")
    client = TestClient(Access(page, None), base_url="http://localhost")
    assert client.get("/x", headers={"Origin": origin}).status_code == answer


def test_a_name_too_long_for_a_file_is_an_error_to_read(tmp_path: Path) -> None:
    (tmp_path / "1.prom").touch()
    line = {"file": "a" * 5000, "scraped_unix": 1e9}
    (tmp_path / "index.jsonl").write_text(json.dumps(line), encoding="utf-8")
    with pytest.raises(PrefixscopeError, match="which is not beside it"):
        list(read_pages([tmp_path]))


@pytest.mark.parametrize("cost", ["3e-0" + "9" * 400, "1e" + "9" * 400])
def test_a_cost_with_an_exponent_without_end_is_an_error_to_read(tmp_path: Path, cost: str) -> None:
    file = tmp_path / "prices.json"
    file.write_text(f'{{"m": {{"input_cost_per_token": {cost}}}}}', encoding="utf-8")
    with pytest.raises(PrefixscopeError, match=r"prices\.file"):
        PriceFile(file)


def test_a_tier_that_is_no_number_of_tokens_is_none(tmp_path: Path) -> None:
    entry = {"input_cost_per_token": 1e-6, f"input_cost_per_token_above_{'9' * 5000}k_tokens": 1e-6}
    file = tmp_path / "prices.json"
    file.write_text(json.dumps({"m": entry}), encoding="utf-8")
    price = PriceFile(file).find(None, "m")
    assert price is not None
    assert (price.input, price.tier_tokens) == (1.0, None)


# ---------------------------------------------------------------------- metric pages


def samples(*pages: str) -> list[EngineSample]:
    """What the last of some pages, a minute apart, gives."""
    state, found = TargetState(), []
    for minute, text in enumerate(pages):
        page = read_page(text.encode(), "text/plain")
        found = advance(state, page, 1e9 + 60 * minute, TargetIdentity("t", "r"))
    return found


CONFIG = 'vllm:cache_config_info{{block_size="{}",num_gpu_blocks="1001"}} 1\n'


@pytest.mark.parametrize(
    ("usage", "running"), [("1e16", None), ("1.5", None), ("0.5", 8_000), ("0", 0)]
)
def test_a_share_above_a_whole_is_unknown(usage: str, running: int | None) -> None:
    """It was multiplied with the capacity, and the store could not hold the product."""
    (sample,) = samples(f"vllm:kv_cache_usage_perc {usage}\n" + CONFIG.format(16))
    assert sample.kv_capacity_tokens == 16_000
    assert sample.kv_running_tokens == running


def test_a_product_the_store_cannot_hold_is_unknown() -> None:
    info = 'vllm:cache_config_info{block_size="1000000",num_gpu_blocks="90000000000000000"} 1\n'
    (sample,) = samples(info)
    assert sample.kv_capacity_tokens is None
    assert sample.block_size == 1_000_000


def test_a_rank_of_five_thousand_digits_is_none() -> None:
    series = 'sglang:num_running_reqs{model_name="m",tp_rank="0",pp_rank="%s"} 3\n'
    (sample,) = samples(series % ("9" * 5000))
    assert sample.running_requests == 3


# --------------------------------------------------------------------- model configs


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (2**31, "num_hidden_layers: no model has 2,147,483,648 layers"),
        (2**63, "num_hidden_layers: expected a whole number, found 9223372036854775808"),
    ],
)
def test_more_layers_than_memory_are_refused(layers: int, message: str) -> None:
    """A list of that length was made, and the process killed."""
    llama = {"hidden_size": 4096, "num_attention_heads": 32, "torch_dtype": "bfloat16"}
    with pytest.raises(UnknownGeometry) as caught:
        kv_geometry({**llama, "num_hidden_layers": layers})
    assert str(caught.value) == message


# --------------------------------------------------------------------- KV-cache events


@pytest.mark.parametrize("odd", [5, 1.5, "salt", True])
def test_keys_of_a_block_that_are_no_list_leave_it_without_a_name(odd: object) -> None:
    """It was an error nobody caught, which ended the thread that hears every stream."""
    payload = msgspec.msgpack.encode([1e9, [{**stored(1, 2), "extra_keys": [odd, None]}], 0])
    tracker = Tracker("key")
    stream, at = StreamName("events", "r"), datetime(2026, 11, 30, tzinfo=UTC)
    assert tracker.hear(stream, 0, payload, at) in (Heard.APPLIED, Heard.UNREADABLE)
    assert tracker.hear(stream, 1, event_batch(1e9, removed(1)), at) is Heard.APPLIED
