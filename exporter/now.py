"""The on-call view: one verdict line, the headline ratio with its coverage, the replicas.

It is summed up here once and shown twice: as a page without any script (it works on a phone
when nothing else does) and in the terminal. Figures come from the questions, none is made here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Literal

from queries import source_words

Row = Mapping[str, object]
Ask = Callable[[str, Mapping[str, object]], Sequence[Row]]
Basis = Literal["request log", "engine counters"]

WINDOW = timedelta(hours=1)
FALL_RATIO = 0.05  # a fall of five points against the hour before is worth a sentence
STALE_AFTER = timedelta(minutes=10)

NO_DATA = (
    "No data yet. Name a metric page of an engine under scrape.targets in the configuration, "
    "or load a request log: prefixscope ingest FILE"
)


@dataclass(frozen=True)
class Now:
    """What the page says. `basis` None = nothing in the window tells a ratio."""

    verdict: str
    since: datetime
    until: datetime
    demo: bool
    basis: Basis | None
    current: Row
    before: Row
    ttft: Sequence[Row]
    replicas: Sequence[Row]
    sources: Sequence[Row]


def summarise(ask: Ask, moment: datetime) -> Now:
    """The last hour before `moment`; with older data only, the last hour that has data.

    `ask` runs one question and gives JSON rows, whether over HTTP or on the store.
    """
    state = ask("store_state", {})[0]
    until = _end_of_window(state, moment)
    since = until - WINDOW
    window = {"since": since, "until": until}
    basis, current = _headline(ask, window)
    question = "engine_hit_ratio" if basis == "engine counters" else "hit_ratio"
    before = ask(question, {"since": since - WINDOW, "until": since})[0]
    replicas = ask("replicas", window)
    verdict = NO_DATA if state["level"] is None else _verdict(basis, current, before, replicas)
    age = moment - until
    if age > STALE_AFTER and state["level"] is not None:
        verdict = f"Stale: the newest data is {_age_text(age)} old. At that time: {verdict}"
    return Now(
        verdict=verdict,
        since=since,
        until=until,
        demo=bool(state["demo"]),
        basis=basis,
        current=current,
        before=before,
        ttft=ask("ttft_by_outcome", window),
        replicas=replicas,
        sources=ask("figure_sources", window),
    )


def _end_of_window(state: Row, moment: datetime) -> datetime:
    """Just behind the newest data, but never ahead of the clock; the clock where data is fresh."""
    newest = [
        datetime.fromisoformat(str(state[name]))
        for name in ("last_ts", "engine_last_ts")
        if state[name] is not None
    ]
    end = max(newest, default=moment) + timedelta(microseconds=1)
    return moment if end > moment - STALE_AFTER else end


def _headline(ask: Ask, window: Mapping[str, object]) -> tuple[Basis | None, Row]:
    """The request log's ratio; the engines' own where no log reports. Never a blend."""
    log = ask("hit_ratio", window)[0]
    if log["token_hit_ratio"] is not None:
        return "request log", log
    engine = ask("engine_hit_ratio", window)[0]
    if engine["token_hit_ratio"] is not None:
        return "engine counters", engine
    return None, log


def _verdict(basis: Basis | None, current: Row, before: Row, replicas: Sequence[Row]) -> str:
    """One sentence for three in the morning, and one more for each replica that is down."""
    down = [str(row["replica"] or row["target"]) for row in replicas if row["up"] is False]
    trouble = f" Not answering: {', '.join(down)}." if down else ""
    if basis is None:
        return f"No token hit ratio: nothing reported cached tokens in this hour.{trouble}"
    ratio, earlier = _number(current["token_hit_ratio"]), _number(before["token_hit_ratio"])
    text = f"Token hit ratio {percent(ratio)} by {basis}"
    if ratio is None or earlier is None:
        return f"{text}; nothing to compare with in the hour before.{trouble}"
    change = ratio - earlier
    if abs(change) < FALL_RATIO:
        return f"{text}, steady against the hour before ({percent(earlier)}).{trouble}"
    direction = "fell" if change < 0 else "rose"
    points = f"{abs(change) * 100:.1f} points"
    return f"{text}: it {direction} by {points} from {percent(earlier)}.{trouble}"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _age_text(age: timedelta) -> str:
    """Days, hours or minutes, whichever is the largest that fits."""
    minutes = round(age.total_seconds() / 60)
    if minutes >= 2 * 24 * 60:
        return f"{minutes // (24 * 60)} days"
    return f"{minutes // 60} hours" if minutes >= 120 else f"{minutes} minutes"


def percent(value: object) -> str:
    """A ratio as people read it; unknown is a dash."""
    number = _number(value)
    return "–" if number is None else f"{number * 100:.1f} %"


def whole(value: object) -> str:
    """A count with thousands marks; unknown is a dash."""
    number = _number(value)
    return "–" if number is None else f"{number:,.0f}"


def seconds(value: object) -> str:
    """Seconds with three digits behind the point; unknown is a dash."""
    number = _number(value)
    return "–" if number is None else f"{number:.3f} s"


def yes_no(value: object) -> str:
    """A flag as a word; unknown is a dash."""
    return "–" if value is None else "yes" if value else "no"


def text(value: object) -> str:
    """A name; one not given says so."""
    return str(value) if value not in (None, "") else "(not given)"


# One place says what the tables show: heading, column of the question, how it is written.
Column = tuple[str, str, Callable[[object], str]]
REPLICA_COLUMNS: tuple[Column, ...] = (
    ("replica", "replica", text),
    ("model", "model", text),
    ("up", "up", yes_no),
    ("hit ratio", "token_hit_ratio", percent),
    ("prompt tokens", "prompt_tokens", whole),
    ("computed/s", "computed_tokens_per_second", whole),
    ("KV in use", "kv_usage_ratio", percent),
    ("running", "running_requests", whole),
    ("waiting", "waiting_requests", whole),
)
TTFT_COLUMNS: tuple[Column, ...] = (
    ("outcome", "outcome", text),
    ("measured at", "ttft_point", text),
    ("requests", "requests", whole),
    ("p50", "p50_seconds", seconds),
    ("p95", "p95_seconds", seconds),
)


def headline_facts(view: Now) -> list[tuple[str, str]]:
    """What stands beside the headline ratio, as (name, value)."""
    return [
        ("token hit ratio", percent(view.current["token_hit_ratio"])),
        ("the hour before", percent(view.before["token_hit_ratio"])),
        ("by", view.basis or "–"),
        # Engine counters see every request; coverage is a property of logs.
        ("coverage", percent(view.current.get("coverage_ratio"))),
        ("prompt tokens", whole(view.current["prompt_tokens"])),
        ("computed tokens", whole(view.current["computed_tokens"])),
        ("told by", source_words.summary(view.sources) or "–"),
    ]


_STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;margin:1rem;"
    "max-width:60rem}table{border-collapse:collapse;display:block;overflow-x:auto;margin:1rem 0}"
    "th,td{padding:.2rem .8rem .2rem 0;text-align:left;border-bottom:1px solid #8886}"
    ".verdict{font-size:1.3rem;font-weight:600}.demo{background:#fc06;padding:.2rem .6rem}"
)


def render(view: Now, version: str) -> str:
    """The page as HTML without a script; every value is escaped. It reloads twice a minute."""
    facts = "".join(f"<tr><th>{escape(k)}<td>{escape(v)}" for k, v in headline_facts(view))
    demo = '<p class="demo">Synthetic demo data.</p>' if view.demo else ""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><meta http-equiv="refresh" '
        f'content="30"><title>prefixscope now</title><style>{_STYLE}</style>'
        f'<h1>Now</h1>{demo}<p class="verdict">{escape(view.verdict)}</p>'
        f"<p>{_utc(view.since)} to {_utc(view.until)} UTC. Token hit ratio = cached tokens ÷ "
        f"reported prompt tokens.</p><table>{facts}</table>"
        f"<h2>Replicas</h2>{_table(REPLICA_COLUMNS, view.replicas)}"
        f"<h2>Time to first token</h2>{_table(TTFT_COLUMNS, view.ttft)}"
        f"<p>prefixscope {escape(version)}</p></html>"
    )


def _utc(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def _table(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    """Rows as a table; without rows a sentence."""
    if not rows:
        return "<p>Nothing in this hour.</p>"
    head = "".join(f"<th>{escape(heading)}" for heading, _, _ in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(show(row.get(name)))}" for _, name, show in columns)
        for row in rows
    )
    return f"<table><tr>{head}{body}</table>"
