"""What moved against the week before, and why as far as the rows tell; what to change."""

from collections.abc import Sequence

from dashboard.explained import LEAST_RATIO
from dashboard.figures.numbers import percent
from dashboard.figures.rows import Row, Rows, count, number
from dashboard.figures.safe import plain
from dashboard.report.asking import Asking
from dashboard.report.text import told
from dashboard.report.week import Change, Headline, Mover
from replay.counted import counted

MOST_MOVERS, MOST_CHANGES = 3, 3
# The first of these that most of the tokens have a value of: the one people act on first.
DIMENSIONS = ("template", "route", "tenant", "model")
_NEW_VERSION_SHARE, _MOSTLY_SHARE = 0.2, 0.6


def split(ask: Asking, lead: Headline, by: str, **filters: object) -> Rows:
    """The change against the compared week along a dimension."""
    return ask.rows(
        "explain", by=by,
        baseline_since=lead.compared_since, baseline_until=lead.compared_until, **filters,
    )  # fmt: skip


def leading_dimension(ask: Asking, lead: Headline) -> str:
    """The dimension movers are told along; '' where rows name none."""
    for by in DIMENSIONS:
        rows = split(ask, lead, by)
        named = sum(count(row, "reported_prompt_tokens") or 0 for row in rows if row[by])
        if rows and 2 * named > (lead.reported_prompt_tokens or 0):
            return by
    return ""


def movers(
    ask: Asking, lead: Headline, drops: Sequence[Row]
) -> tuple[tuple[Mover, ...], tuple[Mover, ...]]:
    """Three up and three down by their own ratio, most tokens first."""
    if lead.token_hit_ratio is None or lead.token_hit_ratio_before is None:
        return (), ()
    if lead.basis == "engine":
        by, rows = _by_replica(ask, lead)
    else:
        by = leading_dimension(ask, lead)
        rows = split(ask, lead, by) if by else []
    least = LEAST_RATIO * (lead.reported_prompt_tokens or 0)
    ranked = sorted(rows, key=lambda row: (-(number(row, "within_tokens") or 0.0), str(row[by])))
    up = [row for row in ranked if (number(row, "within_tokens") or 0.0) > least]
    down = [row for row in reversed(ranked) if (number(row, "within_tokens") or 0.0) < -least]
    return (
        tuple(_mover(ask, lead, by, row, drops) for row in up[:MOST_MOVERS]),
        tuple(_mover(ask, lead, by, row, drops) for row in down[:MOST_MOVERS]),
    )


def _by_replica(ask: Asking, lead: Headline) -> tuple[str, Rows]:
    """Engine counters know replicas: their own ratio, in the columns of `explain`."""
    window = {"since": lead.compared_since, "until": lead.compared_until}
    before = {row["replica"]: row for row in ask.rows("engine_hit_ratio", by="replica", **window)}
    found: list[Row] = []
    for row in ask.rows("engine_hit_ratio", by="replica"):
        ratio, reported = number(row, "token_hit_ratio"), number(row, "reported_prompt_tokens")
        earlier = number(before.get(row["replica"], {}), "token_hit_ratio")
        if ratio is None or earlier is None or not reported:
            continue
        found.append({
            "replica": row["replica"], "within_tokens": round((ratio - earlier) * reported),
            "token_hit_ratio": ratio, "token_hit_ratio_before": earlier,
            "traffic_share_ratio": reported / (lead.reported_prompt_tokens or reported),
        })  # fmt: skip
    return "replica", found


def _mover(ask: Asking, lead: Headline, by: str, row: Row, drops: Sequence[Row]) -> Mover:
    within = count(row, "within_tokens") or 0
    reasons = [] if lead.basis == "engine" else _reasons(ask, lead, by, row)
    if within < 0 and by == "template":
        reasons += _drops_of(str(row[by]), drops)
    return Mover(
        by=by,
        name=plain(row[by]),
        within_tokens=within,
        token_hit_ratio=number(row, "token_hit_ratio"),
        token_hit_ratio_before=number(row, "token_hit_ratio_before"),
        traffic_share_ratio=number(row, "traffic_share_ratio"),
        why="; ".join(reasons) or "no single cause in the rows",
    )


def _reasons(ask: Asking, lead: Headline, by: str, row: Row) -> list[str]:
    """A new version, or the part of it that most of the change is in."""
    within, value = count(row, "within_tokens") or 0, row[by]
    reasons = []
    if by == "template":
        reasons += _new_versions(split(ask, lead, "template_version", template=value))
    for inner in ("tenant", "replica"):
        if inner != by and not reasons:
            reasons += _mostly(inner, split(ask, lead, inner, **{by: value}), within)
    return reasons


def _new_versions(rows: Rows) -> list[str]:
    """Versions that appeared and carry a fifth of the template's tokens or more."""
    if not any(row["template_version"] for row in rows):
        return []
    return [
        f"version {plain(row['template_version'])} is new: {percent(share)} of its tokens at "
        f"{percent(number(row, 'token_hit_ratio'))}"
        for row in rows
        if row["seen"] == "appeared"
        and row["template_version"]
        and (share := number(row, "traffic_share_ratio") or 0.0) >= _NEW_VERSION_SHARE
    ][:2]


def _mostly(by: str, rows: Rows, within: int) -> list[str]:
    """The one value of several that made most of the change."""
    if len(rows) < 2 or not within:
        return []
    worst = max(rows, key=lambda row: (count(row, "change_tokens") or 0) / within)
    part = (count(worst, "change_tokens") or 0) / within
    if part < _MOSTLY_SHARE or not worst[by]:
        return []
    before, now = (number(worst, f"token_hit_ratio{when}") for when in ("_before", ""))
    return [f"mostly {by} {plain(worst[by])} ({percent(before)} → {percent(now)})"]


def _drops_of(template: str, drops: Sequence[Row]) -> list[str]:
    """Hours of drops to which it contributed most, with their class."""
    mine = [row for row in drops if template and _names(row.get("contributor"), template)]
    if not mine:
        return []
    classes = sorted({str(row["class"]) for row in mine})
    return [f"contributed most in {counted(len(mine), 'hour')} of drops ({', '.join(classes)})"]


def _names(contributor: object, template: str) -> bool:
    """Is it the template, with or without a version behind it?"""
    return f"{contributor or ''} ".startswith(f"{template} ")


def changes(ask: Asking) -> tuple[Change, ...]:
    """At most three changes to make, ranked; fewer where fewer are worth it."""
    rows = ask.rows("changes", zone=ask.week.zone)
    return tuple(
        Change(
            kind=str(row["kind"]),
            subject=plain(row["subject"]) if row.get("subject") else "",
            sentence=told(row["sentence"]),
            tokens_per_day_lower=count(row, "tokens_per_day_lower"),
            tokens_per_day_upper=count(row, "tokens_per_day_upper"),
            basis=str(row["basis"]),
            evidence=told(row.get("evidence")),
            next_step=told(row.get("next_step")),
            overlaps=told(row.get("overlaps")),
        )
        for row in rows[:MOST_CHANGES]
    )
