"""Captured requests as prompts to replay."""

from typing import Any

import numpy as np

from replay.known_blocks import numbered
from replay.prompts import Prompts
from replay.traffic import starts_of
from tests.unit_causes.captured import BLOCK_TOKENS, traffic_of


def prompts_of_rows(rows: list[dict[str, Any]]) -> Prompts:
    """In the order given, which is that of their times for `arrived` to be told."""
    chains = traffic_of(rows).chains
    step = BLOCK_TOKENS // chains.grain_tokens
    own = [chains.names[a + step - 1 : b : step] for a, b in
           zip(chains.starts[:-1], chains.starts[1:], strict=True)]  # fmt: skip
    sent = np.array([row["sent_unix"] for row in rows])
    usage = [row["usage"] for row in rows]
    return Prompts(
        arrived=sent - sent[0],
        prompt_tokens=np.array([each["prompt_tokens"] for each in usage], np.int64),
        output_tokens=np.array([each["completion_tokens"] for each in usage], np.int64),
        blocks=numbered(np.concatenate(own))[0],
        starts=starts_of([len(chain) for chain in own]),
        block_tokens=BLOCK_TOKENS,
    )
