"""What routing lost and how evenly replicas computed, by model, over the parts of an answer."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from exporter.causes.rows import Part
from replay.causes import Causes
from replay.columns import Fleet
from replay.routing import Routing
from replay.traffic import Flags, Traffic


@dataclass
class RoutedAudit:
    """Adds up part after part of one answer of `request_chains`."""

    table: pa.Table
    models: dict[str, Routing] = field(default_factory=dict)

    def add(
        self, part: Part, served: tuple[Traffic, Fleet, Sequence[str]], found: Causes, picked: Flags
    ) -> None:
        """One part with its traffic, fleet and the names of its replicas."""
        traffic, _, replicas = served
        models = np.array(self.table["model"].take(part.rows).to_pylist(), object)
        for model in dict.fromkeys(models[picked].tolist()):
            sums = self.models.setdefault(model, Routing())
            sums.add(traffic, found, picked & (models == model), replicas)
