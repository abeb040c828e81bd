"""Why more tokens missed: the causes that grew most since the same hour a week ago, in one line."""

from queries.on_call.asking import WINDOW, Asking
from queries.on_call.verdict import TELEMETRY
from queries.on_call.words import Row, Rows, number, points


def missed(asking: Asking, lead: Row | None) -> str:
    """Beside a drop, or a fall that load explains; '' where the causes are no evidence."""
    if lead is None or not may_be_told(lead):
        return ""
    ends = asking.week_before(asking.until)
    before = {"baseline_since": ends - WINDOW, "baseline_until": ends}
    return missed_words(asking.rows("missed_change", WINDOW, **before))


def may_be_told(judged: Row) -> bool:
    """Whether the ratio fell, and by counts that are not lost: else there is nothing to explain."""
    return judged["class"] not in (None, TELEMETRY)


def missed_words(changes: Rows) -> str:
    """ "Missed tokens: evicted 8 % → 21 % of …", of rows of `missed_change`; '' without evidence:
    where causes are not known in both hours, or did not grow."""
    told = [row for row in changes if row["is_evidence"]]
    if not told:
        return ""
    grown = ", ".join(row["evidence"] for row in told)
    change = points(number(told[0], "missed_change_ratio"))
    return (
        f"Missed tokens: {grown} of the prompt tokens; in all {change}, against the same hour a "
        "week ago."
    )
