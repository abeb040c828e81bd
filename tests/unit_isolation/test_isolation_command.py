"""`attribute --isolation` and `--routing` on recordings of real engines."""

from pathlib import Path
from typing import Any

import pytest

from tests.log_path import CAPTURES, needs_captures
from tests.unit_isolation.told import asked, attribute, check_told, recorded

RECORDING = Path(__file__).parent / "llama_two_tenants"
LOG = RECORDING / "tap.ndjson"


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    """All that is told of the recording, of a server whose cache was empty when it began."""
    return asked(
        LOG, "--isolation", "--routing", "--warm-up", "0s", "--least-tenants", 4, "--by", "scope"
    )


def test_what_llama_cpp_shared_is_found_to_the_token(whole: dict[str, Any]) -> None:
    found = whole["isolation"]
    check_told(found, recorded(RECORDING))
    pairs = {pair["tenants"]: pair for pair in found["pairs"]}
    exact = {
        name: (pair["reused_at_least_tokens"], pair["reused_at_most_tokens"])
        for name, pair in pairs.items()
    }
    # One prompt of 500 tokens, all but the last of it served; the one without a salt sent 77 more.
    # cedar had sent another prompt before, of which less than a block may be the same.
    assert exact == {"birch": (499, 499), "cedar": (484, 499), "no salt": (500, 500)}
    assert {pair["replica"] for pair in pairs.values()} == {"llama-0"}
    assert (found["reused_requests"], found["scopes"]) == (3, 4)
    assert found["judged_cached_tokens"] == 499 + 499 + 499 + 203 + 500
    # Whole blocks of a prompt of 500 tokens: 31 of 16, once for each of three scopes.
    assert found["merged_tokens"] == 3 * 496


def test_public_prefixes_of_the_recording(whole: dict[str, Any]) -> None:
    """The prompt of 500 tokens, by all four; cedar's last request leaves it after 203."""
    told = [
        (each["tokens"], each["callers"], each["scopes"], each["requests"])
        for each in whole["isolation"]["public_prefixes"]
    ]
    assert told == [(496, 4, 4, 5), (192, 4, 4, 1)]


def test_sums_by_scope_are_those_of_the_whole(whole: dict[str, Any]) -> None:
    groups = {group["scope"]: group["prompt_tokens"] for group in whole["groups"]}
    assert len(groups) == 4
    assert sum(groups.values()) == whole["prompt_tokens"] == 500 * 4 + 300 + 503 + 577
    (routed,) = whole["routing"]
    assert (routed["replicas"], routed["routed_tokens"]) == (1, 0)
    assert routed["computed_tokens"] == {"llama-0": whole["prompt_tokens"] - 2200}


def test_a_person_reads_who_reused_whose_and_when_nobody_can_tell() -> None:
    _, text, _ = attribute(LOG, "--isolation", "--routing", "--warm-up", "0s")
    assert "At least 1,483 cached tokens of 3 requests" in text
    assert "does not keep the scopes apart" in text
    assert "birch" in text
    assert "What routing lost" in text
    _, silent, _ = attribute(LOG, "--isolation")
    assert "nobody can tell whose they were" in silent
    assert "At least" not in silent


@needs_captures
def test_vllm_kept_its_salts_apart() -> None:
    log = CAPTURES / "vllm-0.32.0" / "main" / "requests.jsonl"
    whole = asked(log, "--isolation", "--routing", "--warm-up", "0s", "--block-tokens", "32")
    found = whole["isolation"]
    assert found["reused_at_most_tokens"] == found["cannot_tell_tokens"] == 0
    assert found["isolated_tokens"] == found["merged_tokens"] == 3_520
    (sums,) = whole["routing"]
    assert (sums["routed_tokens"], sums["imbalance_ratio"], sums["copies_ratio"]) == (0, 1, 1)


@pytest.mark.parametrize("span", ["soon", "-1d", "2100-12-01"])
def test_a_warm_up_that_is_no_span_is_refused(span: str) -> None:
    status, _, err = attribute(LOG, "--warm-up", span)
    assert status == 2
    assert "no span like 7d" in err
