"""Since when a drop lasts: the minute from which the ratio lies nearer to its present level."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from queries.on_call.expected import Expected
from queries.on_call.words import Row, Rows, moment, number


@dataclass(frozen=True)
class Onset:
    """`at` is the start of the first step of the drop; `earlier`: it began before what was seen."""

    at: datetime
    earlier: bool = False


def onset(steps: Rows, expected: Sequence[Expected], level: float) -> Onset | None:
    """The start of the unbroken stretch up to the end in which more tokens were lost, against
    halfway between the expected ratio and the present `level`, than were won back.

    It is the step behind the last zero of a cumulative sum, so that neither one good minute within
    a drop nor one bad minute before it counts. `steps` are rows over time with their token sums;
    those without reported tokens or without an expectation say nothing. None where the last step
    brings the sum to zero: the ratio has come back.
    """
    lost, start, first = 0.0, None, None
    for row in sorted(steps, key=lambda row: moment(row["ts"])):
        ts, reported, ratio = moment(row["ts"]), *_tokens(row)
        usual = next((e.ratio for e in expected if e.since <= ts < e.until), None)
        if not reported or ratio is None or usual is None:
            continue
        first = first or ts
        lost = max(0.0, lost + ((usual + level) / 2 - ratio) * reported)
        start = None if lost == 0 else start or ts
    return None if start is None else Onset(start, earlier=start == first)


def _tokens(row: Row) -> tuple[float | None, float | None]:
    return number(row, "reported_prompt_tokens"), number(row, "token_hit_ratio")
