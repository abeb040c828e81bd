"""How evenly replicas compute: one figure wherever it is told."""

from replay.traffic import Numbers


def imbalance_ratio(computed_tokens: Numbers) -> float | None:
    """The most that a replica computed ÷ their mean: 1 = all the same; None: nothing at all."""
    if not len(computed_tokens) or not computed_tokens.sum():
        return None
    return float(computed_tokens.max() / computed_tokens.mean())
