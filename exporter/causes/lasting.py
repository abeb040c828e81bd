"""What rows of earlier spans told that later rows may leave out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from exporter.causes.block_sizes import BlockSizes

_SEVERAL = ""


@dataclass
class Lasting:
    """`served`: what each replica served last. `only_replica`: the one that was heard of when no
    row named any; '' where none or several were. `models`: the only model of each replica ('' where
    there were several). `versions`: the first version of each model's weights that was met: rows
    that state none are of that one, so that a column that begins to be filled is no deployment."""

    block_sizes: BlockSizes = field(default_factory=BlockSizes)
    served: dict[str, str] = field(default_factory=dict)
    only_replica: str = ""
    models: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def deployments(self, table: pa.Table) -> list[str]:
        """Of every row its model and version, by a name that lasts."""
        columns = (table[name].to_pylist() for name in ("replica", "model", "model_fingerprint"))
        rows = list(zip(*columns, strict=True))
        for replica, model in dict.fromkeys((replica, model) for replica, model, _ in rows):
            if model and self.models.setdefault(replica, model) != model:
                self.models[replica] = _SEVERAL
        found = [self._deployment(*row) for row in rows]
        for (replica, _, _), deployment in zip(rows, found, strict=True):
            self.served[replica or self.only_replica] = deployment
        return found

    def replicas(self, names: Sequence[str], heard: Sequence[str]) -> list[str]:
        """Of names that rows give: rows without one are of the only replica that was heard of."""
        if list(names) == [""] and len(set(heard)) == 1 and not self.only_replica:
            self.only_replica = heard[0]
        return [name or self.only_replica for name in names]

    def _deployment(self, replica: str, model: str, version: str) -> str:
        model = model or self.models.get(replica, "")
        if not version or self.versions.setdefault(model, version) == version:
            return model
        return f"{model}\x1f{version}"

    def kept(self) -> dict[str, Any]:
        """As JSON takes it."""
        sizes = self.block_sizes.kept()
        return {
            "block_sizes": sizes, "served": self.served, "only_replica": self.only_replica,
            "models": self.models, "versions": self.versions,
        }  # fmt: skip

    @classmethod
    def from_kept(cls, kept: Mapping[str, Any]) -> "Lasting":
        """As it was."""
        sizes = BlockSizes.from_kept(kept["block_sizes"])
        served, only = dict(kept["served"]), str(kept["only_replica"])
        return cls(sizes, served, only, dict(kept["models"]), dict(kept["versions"]))
