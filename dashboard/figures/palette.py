"""Colours with one meaning each, the same on every page, told apart by colour-blind eyes.

They are middle tones: each stands out from both the light and the dark background.
"""

OUTCOME_COLOUR = {
    "hit": "#2b83c6",
    "partial": "#b58700",
    "miss": "#c8452d",
    "unknown": "#8b929c",
}
# A second sign beside the colour: prints and colour-blind readers need it.
OUTCOME_DASH = {"hit": "solid", "partial": "dash", "miss": "solid", "unknown": "dot"}
OUTCOME_SYMBOL = {"hit": "circle", "partial": "diamond", "miss": "square", "unknown": "x"}
OUTCOMES = ("hit", "partial", "miss", "unknown")

CACHED = OUTCOME_COLOUR["hit"]
COMPUTED = OUTCOME_COLOUR["miss"]
UNKNOWN = OUTCOME_COLOUR["unknown"]
BEFORE = "#8b929c"
LOAD = "#8b929c"
RUNNING = "#7d5ba6"
FREE = "#b9c0c8"
CHANGED_RATIO = "#4f6d9b"
CHANGED_MIX = "#b58700"

# Replicas are names, not meanings: steps of lightness over neutral hues.
REPLICAS = (
    "#7d5ba6", "#2a9d8f", "#b5739d", "#5c7f3a", "#4f6d9b", "#a6761d", "#8d99ae", "#6b4e3d",
)  # fmt: skip


def translucent(colour: str, opacity: float) -> str:
    """The colour as rgba, for areas behind lines."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
