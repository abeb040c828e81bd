"""Why more tokens missed: the causes that grew most since the same hour a week ago, in one line."""

from queries.on_call.asking import WINDOW, Asking
from queries.on_call.verdict import TELEMETRY
from queries.on_call.words import Row, number, points


def missed(asking: Asking, lead: Row | None) -> str:
    """"Missed tokens: evicted 8 % → 21 % of …" beside a drop, or a fall that load explains.

    '' where the causes are no evidence: they are not known in both hours, or did not grow.
    """
    if lead is None or lead["class"] in (None, TELEMETRY):
        return ""
    ends = asking.week_before(asking.until)
    before = {"baseline_since": ends - WINDOW, "baseline_until": ends}
    told = [row for row in asking.rows("missed_change", WINDOW, **before) if row["is_evidence"]]
    if not told:
        return ""
    grown = ", ".join(row["evidence"] for row in told)
    change = points(number(told[0], "missed_change_ratio"))
    return (
        f"Missed tokens: {grown} of the prompt tokens; in all {change}, against the same hour a "
        "week ago."
    )
