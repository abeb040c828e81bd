"""Token ids as the detector gets them: hashes only."""

from collections.abc import Sequence

from replay.hashes import HASH_GRAIN_TOKENS, chain_hashes, content_hashes
from replay.layout_chains.findings import LayoutFinding, layout_findings
from replay.layout_chains.prompts import Prompts
from replay.rules import RULES
from replay.traffic import Chains
from tests.token_pieces import pieces_of
from tests.unit_layout.inject_token_defects import Injected, Sent, Truth

KEY = "a key of these tests"
VLLM = RULES["vllm"].of_blocks(HASH_GRAIN_TOKENS)


def chains_of(token_ids: Sequence[Sequence[int]], scopes: Sequence[str] | None = None) -> Chains:
    scopes = scopes or [""] * len(token_ids)
    return Chains.of(
        [
            chain_hashes(ids, HASH_GRAIN_TOKENS, scope, KEY)
            for ids, scope in zip(token_ids, scopes, strict=True)
        ],
        HASH_GRAIN_TOKENS,
        [content_hashes(ids, HASH_GRAIN_TOKENS, KEY) for ids in token_ids],
    )


def prompts_of(requests: Sequence[Sent], by_pieces: bool = False) -> Prompts:
    token_ids = [each.token_ids for each in requests]
    return Prompts.of(
        chains_of(token_ids),
        pieces=pieces_of(token_ids, KEY) if by_pieces else None,
        prompt_tokens=[len(each.token_ids) for each in requests],
        cached_tokens=[each.cached_tokens for each in requests],
        output_tokens=[len(each.answer_ids) for each in requests],
        started=[each.started for each in requests],
        session=[each.session for each in requests],
        tenant=[each.tenant for each in requests],
    )


def found_in(injected: Injected, by_pieces: bool = False) -> list[LayoutFinding]:
    return layout_findings(prompts_of(injected.requests, by_pieces), VLLM)


def is_right(found: LayoutFinding, truth: Truth | None) -> bool:
    """Kind, frequency, and a place that overlaps the true one (of turns any)."""
    if truth is None or (found.kind, found.frequency) != (truth.kind, truth.frequency):
        return False
    return truth.begin < 0 or (found.from_token < truth.end and truth.begin < found.until_token)
