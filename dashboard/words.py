"""What the figures mean, for hovers: read from the questions' headers, typed nowhere else."""

from functools import cache

from queries.registry import questions

# What each page's filters cannot reach: engines know neither routes nor tenants.
ENGINE_DIMENSIONS = ("model", "replica")

TTFT_POINTS = {
    "client": "client (network included)",
    "gateway": "gateway",
    "engine_arrival": "engine, from arrival",
    "engine_scheduled": "engine, from scheduling (no queue)",
}

NEXT_STEP_ROWS = "prefixscope ingest requests.jsonl --source gateway"
NEXT_STEP_TAP = "prefixscope tap --help"
NEXT_STEP_ENGINES = "prefixscope serve --config prefixscope.yml"


@cache
def definition(question: str, column: str) -> str:
    """Meaning and unit of a column, as the question's header says it.

    A dimension given as `by` is the column `value` there. Raises KeyError for a column the
    question does not have: a page must not show an undefined number.
    """
    asked = questions()[question]
    by = asked.params.get("by")
    told = asked.columns["value" if by and column in (by.one_of or ()) else column]
    unit = "" if told.unit in {"name", "text", "time", "flag"} else f" Unit: {told.unit}."
    return f"{told.meaning}{unit}"


@cache
def purpose(question: str) -> str:
    """The question a figure answers, in words."""
    return questions()[question].question


def hover(question: str, column: str, *facts: str) -> str:
    """Markdown for a hover: the facts behind this very number, then its definition."""
    lines = [fact for fact in facts if fact]
    return "\n\n".join([*lines, definition(question, column)])


def point_name(ttft_point: object) -> str:
    """Where a TTFT was measured, in words; an unknown point is said to be one."""
    return TTFT_POINTS.get(str(ttft_point), "an unknown point")
