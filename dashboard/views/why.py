"""Why: the cause of every missed token, what in prompts breaks reuse, scopes and routing."""

from dashboard import page
from dashboard.answers import Answers
from dashboard.controls import choose
from dashboard.why import causes, prompts, routing, scopes

TABS = {
    "causes": "Causes", "prompts": "Prompts", "scopes": "Scopes", "routing": "Routing",
}  # fmt: skip
BODIES = {
    "causes": causes.body,
    "prompts": prompts.body,
    "scopes": scopes.body,
    "routing": routing.body,
}


def body(answers: Answers) -> None:
    """The chosen tab; only its questions are asked. The choice is in the address."""
    BODIES[choose("Why", "tab", TABS, "causes")](answers)


page.show("why", body)
