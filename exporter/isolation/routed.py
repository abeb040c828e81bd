"""What routing lost and how evenly replicas computed, by model, over the parts of an answer."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from exporter.causes.rows import Part
from replay.balance import imbalance_ratio
from replay.causes import Causes
from replay.columns import Fleet
from replay.routing import routing
from replay.traffic import Flags, Traffic


@dataclass
class RoutedSums:
    """Of one model. `computed_tokens` by replica, of requests whose cached tokens are known; the
    blocks are those of all prompts, wherever they are lost since."""

    prompt_tokens: int = 0
    routed_tokens: int = 0
    different_blocks: int = 0
    placed_blocks: int = 0
    computed_tokens: dict[str, int] = field(default_factory=dict)

    @property
    def routed_ratio(self) -> float | None:
        """The share of prompt tokens that a router could win at best; None without any."""
        return self.routed_tokens / self.prompt_tokens if self.prompt_tokens else None

    @property
    def copies_ratio(self) -> float | None:
        """On how many replicas a block was computed, on average; None without blocks."""
        return self.placed_blocks / self.different_blocks if self.different_blocks else None

    @property
    def imbalance_ratio(self) -> float | None:
        """The most that a replica computed ÷ the mean of all; None where nothing was."""
        return imbalance_ratio(np.array(list(self.computed_tokens.values()), np.int64))


@dataclass
class RoutedAudit:
    """Adds up part after part of one answer of `request_chains`."""

    table: pa.Table
    models: dict[str, RoutedSums] = field(default_factory=dict)

    def add(
        self, part: Part, served: tuple[Traffic, Fleet, Sequence[str]], found: Causes, picked: Flags
    ) -> None:
        """One part with its traffic, fleet and the names of its replicas."""
        traffic, _, names = served
        models = np.array(self.table["model"].take(part.rows).to_pylist(), object)
        for model in dict.fromkeys(models[picked].tolist()):
            lost = routing(traffic, found, picked & (models == model))
            sums = self.models.setdefault(model, RoutedSums())
            sums.prompt_tokens += lost.prompt_tokens
            sums.routed_tokens += lost.routed_tokens
            sums.different_blocks += lost.different_blocks
            sums.placed_blocks += lost.placed_blocks
            for replica, tokens in zip(
                lost.replicas.tolist(), lost.computed_tokens.tolist(), strict=True
            ):
                known = sums.computed_tokens.get(names[replica], 0)
                sums.computed_tokens[names[replica]] = known + tokens
