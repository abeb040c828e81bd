"""Memory: what fills it, what leaves it, whether offload pays, and what it holds."""

from dashboard import contents_tab, evictions_tab, offload_tab, page, split_tab
from dashboard.answers import Answers
from dashboard.controls import choose

TABS = {
    "split": "Split", "evictions": "Evictions", "offload": "Offload", "contents": "Contents",
}  # fmt: skip
BODIES = {
    "split": split_tab.body,
    "evictions": evictions_tab.body,
    "offload": offload_tab.body,
    "contents": contents_tab.body,
}


def body(answers: Answers) -> None:
    """The chosen tab; only its questions are asked. The choice is in the address."""
    BODIES[choose("Memory", "tab", TABS, "split")](answers)


page.show("memory", body)
