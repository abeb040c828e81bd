"""What if: which requests of a window are replayed, and what the store says of speed and memory."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from dashboard.answers import asked
from dashboard.figures.rows import Row
from dashboard.filters import iso
from dashboard.words import NEXT_STEP_ROWS
from replay.calibration import QUESTIONS, Calibration, calibration

# As many as the commands ask an exporter for: an answer stands in its memory, 8 bytes a hash, and
# once more while it is sent. To replay so many took seconds and 0.3 GB.
MOST_HASHES = 10_000_000
# A table with an entry for each block and replica stands in memory.
MOST_REPLICAS = 64
# Where no engine tells its memory a page has to begin with something.
USUAL_CAPACITY_TOKENS = 1_000_000

NO_CHAINS = (
    "Requests of this window carry no chains of block hashes, by which a replay knows what they "
    "have in common. One step adds them: put the tap before the engine (`prefixscope tap`), or "
    "send token ids or prompts with the log (docs/chains.md)."
)
OF_TEXT = (
    "The hashes of this window name chunks of text, which are no blocks of a cache. One step makes "
    "them blocks of tokens: a tokenizer for the model (docs/chains.md)."
)
_SHORTEST = timedelta(minutes=1)


def replayed_model(window: Mapping[str, object]) -> Row:
    """The model of most prompt tokens that can be replayed, with what is counted of it; an empty
    row where there is none."""
    models = asked("request_chain_counts", {**window, "by": "model"})
    return next((row for row in models if row["chain_prompt_tokens"]), {})


def measured(window: Mapping[str, object], model: str | None) -> Calibration:
    """What the window tells of speeds and memory, of one model."""
    told = {name: asked(name, {**window, **params}) for name, params in QUESTIONS.items()}
    return calibration(told, model)


def merged_tokens(model: str) -> int:
    """What one scope for all would share by the last audit: without any, isolation costs nothing
    that could be told."""
    rows = asked("isolation", {"model": model}, versions=8)
    return sum(row["merged_tokens"] or 0 for row in rows)


def findings(model: str) -> list[str]:
    """What in the layout of prompts always breaks reuse, in words, the largest gain first."""
    rows = asked("layout", {"model": model}, versions=8)
    always = [row for row in rows if row["gain_tokens"] and row["frequency"] not in {"", "once"}]
    return [f"{row['template'] or 'no template'}: {row['advice']}" for row in always]


def newest_that_fits(window: Mapping[str, str], model: str | None, hashes: int) -> dict[str, str]:
    """The end of a window that may be asked for at once, or all of it."""
    since, until = (datetime.fromisoformat(window[name]) for name in ("since", "until"))
    length = until - since
    while hashes > MOST_HASHES and length > _SHORTEST:
        length *= min(0.9 * MOST_HASHES / hashes, 0.9)
        part = {"since": iso(until - length), "until": window["until"]}
        hashes = next(iter(asked("request_chain_counts", part | {"model": model})), {})["hashes"]
    return {"since": iso(until - length), "until": window["until"]}


def nothing_words(window: Mapping[str, object], model: str | None) -> str:
    """Why nothing of a window can be replayed, and the next step."""
    told = next(iter(asked("request_chain_counts", window)), {})
    if not told.get("stored_requests"):
        return (
            f"A replay takes requests, and there are none. One step adds them: `{NEXT_STEP_ROWS}`"
        )
    if not told["prompt_requests"]:
        return "No request of this window has prompt tokens: choose another window."
    if model is not None and told["chain_prompt_tokens"]:
        return (
            "No request of the model chosen above has a chain of blocks of tokens: choose another."
        )
    if told["chain_requests"]:
        return OF_TEXT
    return NO_CHAINS
