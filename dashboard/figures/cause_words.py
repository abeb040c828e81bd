"""What causes of missed tokens mean, in words and colours, for charts and for files."""

from collections.abc import Mapping
from dataclasses import dataclass

from dashboard.figures.palette import CACHED, UNKNOWN
from dashboard.figures.rows import Row, number


@dataclass(frozen=True)
class Meaning:
    """How a cause is shown: its colour is that of who can do something about it."""

    says: str
    colour: str


# Memory, replicas and routing, scopes and versions, prompts, and what nothing can be done about.
_MEMORY, _RESET, _ROUTING, _SCOPE, _PROMPT, _NEW = (
    "#c8452d", "#7d5ba6", "#2a9d8f", "#b5739d", "#b58700", "#4f6d9b",
)  # fmt: skip
_GREY = "#b9c0c8"
MEANINGS: Mapping[str, Meaning] = {
    "unserved": Meaning("held at the look-up, and not served", "#6b4e3d"),
    "evicted": Meaning("lost to make room", _MEMORY),
    "expired": Meaning("kept only for a time", _MEMORY),
    "reset": Meaning("lost to a restart, sleep or clear", _RESET),
    "routed": Meaning("on another replica", _ROUTING),
    "concurrent": Meaning("still being computed by another request", "#8d99ae"),
    "isolated": Meaning("in another scope", _SCOPE),
    "redeployed": Meaning("under another model or version", "#a6761d"),
    "layout": Meaning("seen before, at another place in the prompt", _PROMPT),
    "new": Meaning("never seen before", _NEW),
    "rounding": Meaning("less than a block", _GREY),
    "ineligible": Meaning("no cache could serve it", _GREY),
    "unexplained": Meaning("not covered by a chain", UNKNOWN),
}


def tokens_of(row: Row, cause: str) -> float:
    """Tokens of a cause in a row of `waterfall`."""
    return number(row, f"{cause}_tokens") or 0.0


def colour_of(name: str) -> str:
    """Of a cause, or of "cached"."""
    return CACHED if name == "cached" else MEANINGS[name].colour


def says(name: str) -> str:
    """What became of the tokens: of a cause, or of "cached"."""
    return "served from cache" if name == "cached" else MEANINGS[name].says
