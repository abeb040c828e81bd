"""Traffic that is replayed from a store: which requests, of which model and window, and why not."""

from pathlib import Path

import pytest
import typer

from exporter.errors import PrefixscopeError
from exporter.store.store import Store
from prefixscope.commands.traffic_options import refuse_beside_traces, store_traffic
from prefixscope.recorded_traffic import StoreTraffic
from replay.curve import curve
from replay.prompts import Prompts
from replay.rules import RULES
from tests.log_path import NOON, SMALL, Row, load

ASKED_SINCE = "2026-03-02T12:30:00Z"


def row(minute: int, model: str = "m", **more: object) -> Row:
    """A request of 40 tokens at 12:00 and so many minutes, 8 of them cached."""
    ts = NOON.replace("12:00", f"{12 + minute // 60}:{minute % 60:02d}")
    return {"ts": ts, "request_id": f"{model}{minute}", "model": model, "prompt_tokens": 40,
            "cached_tokens": 8, "block_hashes": [1, 2], "hash_scope": "global",
            "hash_key_id": "k", **more}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three requests of m with chains and one without, one of small, a text known by chunks."""
    path = tmp_path_factory.mktemp("recorded") / "store"
    store = Store.open(path, SMALL)
    try:
        load(store, [row(0), row(59), row(90), row(91, block_hashes=None, hash_scope=None,
                                                   hash_key_id=None),
                     row(30, "small"), row(40, "text", text_bytes=128)])  # fmt: skip
    finally:
        store.close()
    return path


def asked(folder: Path, since: str | None = None, model: str | None = None) -> StoreTraffic:
    return store_traffic(since, None, model, folder, None, None)


def test_the_model_of_most_tokens_is_taken_and_the_rest_is_told(folder: Path) -> None:
    found = asked(folder)
    assert found.recorded.model == "m"
    assert found.recorded.prompts.arrived.tolist() == [0.0, 59 * 60.0, 90 * 60.0]
    assert len(found.rows.table) == 3
    assert found.words() == (
        f"the store in {folder}: 3 requests of m; left out: 2 of other models, 1 without a chain "
        "of blocks; within 1.5 h; of their prompt tokens 20.0% were cached"
    )


def test_a_window_and_a_model_are_kept_to(folder: Path) -> None:
    assert len(asked(folder, since=ASKED_SINCE).recorded.prompts) == 2
    small = asked(folder, model="small")
    assert (small.recorded.model, len(small.recorded.prompts)) == ("small", 1)


def test_why_nothing_can_be_replayed_is_said(folder: Path) -> None:
    with pytest.raises(PrefixscopeError, match=r"of the model 'x'; known: 'm', 'small', 'text'$"):
        asked(folder, model="x")
    with pytest.raises(PrefixscopeError, match="no request has a chain of blocks of tokens"):
        asked(folder, model="text")
    with pytest.raises(PrefixscopeError, match="widen the window"):
        asked(folder, since="2026-03-03T00:00:00Z")
    with pytest.raises(PrefixscopeError, match="there is no store in"):
        asked(folder / "elsewhere")


def test_traffic_is_mended_where_that_is_asked_for(tmp_path: Path) -> None:
    """A value that is always another one stands in the first of 61 blocks: the 60 behind it are
    found by nobody, and by all but the first once it stands last."""
    store, requests = Store.open(tmp_path / "store", SMALL), 20
    try:
        load(store, [changing_first_block(number) for number in range(requests)])
    finally:
        store.close()

    def found_tokens(prompts: Prompts | None) -> int:
        assert prompts is not None
        told = curve(prompts, RULES["full"].of_blocks(16))
        return told.tokens_at(told.enough_blocks)

    found = store_traffic(None, None, None, tmp_path / "store", None, None, mends=True).recorded
    assert len(found.mended_words) == 1
    assert found_tokens(found.prompts) == 0
    assert found_tokens(found.mended) == (requests - 1) * 60 * 16


def changing_first_block(number: int) -> Row:
    contents = [1000 + number, *range(1, 61)]
    chain = [10_000 * number + end for end in range(1, 62)]
    return row(number, request_id=f"{number}", session=f"{number}", template="t",
               prompt_tokens=61 * 16, block_hashes=chain, content_hashes=contents)  # fmt: skip


def test_wrong_words_are_wrong_usage(folder: Path) -> None:
    with pytest.raises(typer.BadParameter, match="since"):
        asked(folder, since="yesterday-ish")
    with pytest.raises(typer.BadParameter, match="give trace files, or --since and --store, not"):
        refuse_beside_traces("7d", None, None, folder, None)
    refuse_beside_traces(None, None, None, None, None)
