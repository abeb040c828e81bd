"""Memory: what fills it, what leaves it, whether offload pays, and what it holds."""

from dashboard import page
from dashboard.answers import Answers
from dashboard.controls import choose
from dashboard.memory import contents, evictions, offload, split

TABS = {
    "split": "Split", "evictions": "Evictions", "offload": "Offload", "contents": "Contents",
}  # fmt: skip
BODIES = {
    "split": split.body,
    "evictions": evictions.body,
    "offload": offload.body,
    "contents": contents.body,
}


def body(answers: Answers) -> None:
    """The chosen tab; only its questions are asked. The choice is in the address."""
    BODIES[choose("Memory", "tab", TABS, "split")](answers)


page.show("memory", body)
