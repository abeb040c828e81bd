"""Why: the cause of every missed token, what in prompts breaks reuse, scopes and routing."""

from dashboard import causes_tab, page, prompts_tab, routing_tab, scopes_tab
from dashboard.answers import Answers
from dashboard.controls import choose

TABS = {
    "causes": "Causes", "prompts": "Prompts", "scopes": "Scopes", "routing": "Routing",
}  # fmt: skip
BODIES = {
    "causes": causes_tab.body,
    "prompts": prompts_tab.body,
    "scopes": scopes_tab.body,
    "routing": routing_tab.body,
}


def body(answers: Answers) -> None:
    """The chosen tab; only its questions are asked. The choice is in the address."""
    BODIES[choose("Why", "tab", TABS, "causes")](answers)


page.show("why", body)
