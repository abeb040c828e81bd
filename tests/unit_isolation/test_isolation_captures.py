"""Recorded engines: llama.cpp shares across scopes, vLLM does not."""

import json
from dataclasses import replace

import numpy as np
import pytest

from replay.causes import attribute
from replay.columns import Fleet
from replay.hashes import chain_hashes, content_hashes
from replay.isolation import Scopes, paired
from replay.rules import RULES
from replay.traffic import Chains
from tests.log_path import CAPTURES
from tests.unit_causes.captured import BLOCK_TOKENS, Row, events_of, rows_of, traffic_of
from tests.unit_isolation.engines_that_share import agreed

VLLM = RULES["vllm"].of_blocks(BLOCK_TOKENS)
LLAMA = RULES["llama_cpp"]
SALTED = [f"vllm-0.32.0/{name}" for name in ("main", "evict", "restart", "external", "otel", "dp2")]


@pytest.mark.parametrize("heard", [False, True])
@pytest.mark.parametrize("capture", SALTED)
def test_vllm_kept_every_salt_apart(capture: str, heard: bool) -> None:
    traffic, fleet = traffic_of(rows_of(capture)), Fleet()
    if heard:
        stays, resets = events_of(capture)
        traffic = replace(traffic, replica=np.zeros(len(traffic), np.int64))
        fleet = Fleet(resets=resets, stays=stays) if capture.endswith("evict") else fleet
    found = Scopes.of(traffic, VLLM, fleet).crossed(0.0)
    assert not found.at_most.any()
    # Nor is there anything left that the log could not tell: multi-turn answers are its own.
    assert not found.cannot_tell.any()


@pytest.mark.parametrize(
    ("capture", "merged"), [("main", 3_520), ("evict", 2_816), ("restart", 2_816), ("external", 0)]
)
def test_what_vllm_kept_apart_is_what_one_scope_would_share(capture: str, merged: int) -> None:
    """Two templates of 704 and 722 tokens, salts of three tenants and none: each scope computes a
    template once, 22 whole blocks of either."""
    traffic = traffic_of(rows_of(f"vllm-0.32.0/{capture}"))
    found = Scopes.of(traffic, VLLM).merged()
    assert found is not None
    assert int(found.tokens.sum()) == merged
    assert attribute(traffic, VLLM).totals()["isolated"] == merged
    assert set(found.tokens.tolist()) <= {704, 1_408}


def llama_rows() -> list[Row]:
    """The tenants of the recording as scopes: what a gateway would have put into `cache_salt`."""
    path = CAPTURES / "llama.cpp-b11434" / "mixed" / "requests.jsonl"
    if not path.exists():
        pytest.skip(f"captures of real engines are not here: {path} is missing")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row | {"cache_salt": row["tenant"]} for row in rows]


def test_what_llama_cpp_shared_across_tenants_is_found_to_the_token() -> None:
    """By names of single tokens exactly what loops over the raw ids find; by names of 16 tokens
    the whole of it where a tenant had sent nothing before, else within 15 tokens."""
    rows = llama_rows()
    rows.sort(key=lambda row: row["sent_unix"])
    coarse = traffic_of(rows)
    ids = [row["prompt_token_ids"] for row in rows]
    fine = replace(
        coarse,
        chains=Chains.of(
            [
                chain_hashes(each, 1, str(row["tenant"]))
                for row, each in zip(rows, ids, strict=True)
            ],
            1,
            [content_hashes(each, 1) for each in ids],
        ),
    )
    exact, bounds = (Scopes.of(each, LLAMA).crossed(0.0) for each in (fine, coarse))
    expected = []
    for number, row in enumerate(rows):
        own = [agreed(ids[number], ids[place]) for place in range(number)
               if rows[place]["tenant"] == row["tenant"]]  # fmt: skip
        expected.append(max(int(row["timings"]["cache_n"]) - max(own, default=0), 0))
    # Turns 2 to 4 go on from an answer of their own.
    for number in [place for place, row in enumerate(rows) if row["kind"].startswith("turn-")][1:]:
        expected[number] = 0
    assert exact.at_least.tolist() == exact.at_most.tolist() == expected
    assert sum(expected) == 3_576
    assert (int(bounds.at_least.sum()), int(bounds.at_most.sum())) == (3_559, 3_589)
    assert (bounds.at_least <= np.array(expected)).all()
    first = [place for place, row in enumerate(rows) if row["index"] in (8, 10, 37)]
    assert bounds.at_least[first].tolist() == [725, 725, 713] == exact.at_least[first].tolist()
    assert not exact.cannot_tell.any()


def test_tenants_of_llama_cpp_got_it_from_the_one_that_came_first() -> None:
    rows = llama_rows()
    traffic = traffic_of(rows)
    assert traffic.scope is not None
    found = Scopes.of(traffic, LLAMA).crossed(0.0)
    pairs = paired(traffic.scope, found.other_scope, found.at_least, np.arange(len(rows)))
    names = list(dict.fromkeys(row["tenant"] for row in rows))
    told = {
        (names[a], names[b]): tokens
        for a, b, tokens in zip(
            pairs.scope.tolist(), pairs.other_scope.tolist(), pairs.tokens.tolist(), strict=True
        )
    }
    # A support and a billing prompt each of birch and cedar, and the first without a tenant.
    assert told == {("birch", "acme"): 1_423, ("cedar", "acme"): 1_423, (None, "acme"): 713}
