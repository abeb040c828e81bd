"""What if: which requests of a window are replayed, and what the store says of speed and memory."""

from collections.abc import Mapping

from dashboard.answers import asked
from dashboard.figures.rows import Row
from replay.calibration import QUESTIONS, Calibration, calibration

# What a page may ask of the exporter's memory at once, 80 MB in either: the same as the commands.
# More takes minutes to replay through several arms, for which a page is the wrong place.
MOST_HASHES = 10_000_000
# A table with an entry for each block and replica stands in memory.
MOST_REPLICAS = 64
# Where no engine tells its memory a page has to begin with something.
USUAL_CAPACITY_TOKENS = 1_000_000


def replayed_model(window: Mapping[str, object]) -> Row:
    """The model of most prompt tokens that can be replayed, with what is counted of it; an empty
    row where there is none."""
    models = asked("request_chain_counts", {**window, "by": "model"})
    return next((row for row in models if row["chain_prompt_tokens"]), {})


def measured(window: Mapping[str, object], model: str | None) -> Calibration:
    """What the window tells of speeds and memory, of one model."""
    told = {name: asked(name, {**window, **params}) for name, params in QUESTIONS.items()}
    return calibration(told, model)
