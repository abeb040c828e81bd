"""Recorded traffic by the blocks of an engine."""

import numpy as np
import pytest

from replay.prompts import Prompts
from replay.recorded import Recorded

# Two prompts of 80 and 40 tokens: five whole blocks of 16, and two with 8 tokens behind them.
PROMPTS = Prompts(
    arrived=np.array([0.0, 1.0]),
    prompt_tokens=np.array([80, 40]),
    output_tokens=np.array([1, 1]),
    blocks=np.array([0, 1, 2, 3, 4, 0, 1], np.int32),
    starts=np.array([0, 5, 7]),
    block_tokens=16,
)


def test_recorded_blocks_are_put_together_to_the_engine_s() -> None:
    recorded = Recorded(prompts=PROMPTS, mended=PROMPTS).of_engine_blocks(32)
    assert recorded.mended is not None
    for prompts in (recorded.prompts, recorded.mended):
        assert prompts.block_tokens == 32
        # 0 with 1, 2 with 3, and 4 alone, which does not fill its block.
        assert np.diff(prompts.starts).tolist() == [3, 1]
        assert prompts.blocks.tolist() == [0, 1, 2, 0]
    assert recorded.merged is None


@pytest.mark.parametrize("block_tokens", [8, 16, 24])
def test_blocks_that_do_not_go_into_the_engine_s_stay(block_tokens: int) -> None:
    recorded = Recorded(prompts=PROMPTS)
    assert recorded.of_engine_blocks(block_tokens) is recorded
