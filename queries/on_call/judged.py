"""The hours as `peak_drop` judges them, and which model the screen speaks of."""

from dataclasses import replace
from datetime import datetime

from queries.on_call.asking import WINDOW, Asking
from queries.on_call.chart import LENGTH
from queries.on_call.words import Row, Rows, moment, number
from queries.registry import questions

MOST_MODELS = 8


def judged_hours(asking: Asking) -> Rows:
    """Every hour of the chart, judged; engines' own ratio without a judgement where no row is.

    A replica has no history of its own in the log: it is judged by engine counters.
    """
    replica = asking.filters.get("replica")
    if replica is None:
        rows = asking.rows("peak_drop", LENGTH)
    else:
        rows = [
            row
            for row in asking.rows("peak_drop", LENGTH, by="replica")
            if row["replica"] == replica
        ]
    return rows or _unjudged(asking)


def _unjudged(asking: Asking) -> Rows:
    """The engines' ratio of the last hour in the shape of `peak_drop`."""
    if any(name in asking.filters for name in ("route", "template", "tenant")):
        return []
    blank: dict[str, object] = dict.fromkeys(questions()["peak_drop"].columns)
    return [
        blank | {
            "ts": asking.until - WINDOW, "basis": "engine", "method": "none", "history_weeks": 0,
            **{name: row[name] for name in ("model", "reported_prompt_tokens", "token_hit_ratio")},
        }
        for row in asking.rows("engine_hit_ratio", by="model")
        if row["token_hit_ratio"] is not None
    ]  # fmt: skip


def _last(judged: Rows, until: datetime) -> list[Row]:
    return [row for row in judged if moment(row["ts"]) >= until - WINDOW]


def leading(judged: Rows, until: datetime) -> Row | None:
    """The model to speak of: what pages, what dropped (most lost tokens), what is largest."""

    def weight(row: Row) -> tuple[bool, bool, float, float]:
        tokens, drop = number(row, "reported_prompt_tokens") or 0.0, number(row, "drop_ratio")
        dropped = bool(row["is_drop"])
        return row["severity"] == "page", dropped, dropped * (drop or 0.0) * tokens, tokens

    return max(_last(judged, until), key=weight, default=None)


def all_models(judged: Rows, lead: Row | None, until: datetime) -> Rows:
    """All models of the last hour where there are several, the one spoken of first."""
    rows = _last(judged, until)
    if len(rows) < 2:
        return ()
    rest = sorted(
        (row for row in rows if row is not lead),
        key=lambda row: (not row["is_drop"], -(number(row, "reported_prompt_tokens") or 0.0)),
    )
    return tuple(filter(None, [lead, *rest]))[:MOST_MODELS]


def of_lead(asking: Asking, judged: Rows, lead: Row | None) -> Asking:
    """Further figures are the lead's own where there are several models.

    A single one is not filtered for: gateways and engines may know it by other names.
    """
    if lead is None or len({row["model"] for row in judged}) < 2:
        return asking
    return replace(asking, filters={**asking.filters, "model": str(lead["model"])})
