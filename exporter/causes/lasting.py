"""What rows of earlier spans told that later rows may leave out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from exporter.causes.block_sizes import BlockSizes

_SEVERAL = ""


@dataclass
class Lasting:
    """`models`: the only model of each replica ('' where there were several). `versions`: the first
    version of each model's weights that was met: rows that state none are of that one, so that a
    column that begins to be filled is no deployment."""

    block_sizes: BlockSizes = field(default_factory=BlockSizes)
    models: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def deployments(self, table: pa.Table) -> list[str]:
        """Of every row its model and version, by a name that lasts."""
        columns = (table[name].to_pylist() for name in ("replica", "model", "model_fingerprint"))
        rows = list(zip(*columns, strict=True))
        for replica, model in dict.fromkeys((replica, model) for replica, model, _ in rows):
            if model and self.models.setdefault(replica, model) != model:
                self.models[replica] = _SEVERAL
        return [self._deployment(*row) for row in rows]

    def _deployment(self, replica: str, model: str, version: str) -> str:
        model = model or self.models.get(replica, "")
        if not version or self.versions.setdefault(model, version) == version:
            return model
        return f"{model}\x1f{version}"

    def kept(self) -> dict[str, Any]:
        """As JSON takes it."""
        sizes = self.block_sizes.kept()
        return {"block_sizes": sizes, "models": self.models, "versions": self.versions}

    @classmethod
    def from_kept(cls, kept: Mapping[str, Any]) -> "Lasting":
        """As it was."""
        sizes = BlockSizes.from_kept(kept["block_sizes"])
        return cls(sizes, dict(kept["models"]), dict(kept["versions"]))
