"""Sources of figures in words: rows of `figure_sources` and `source_pairs` as people read them.

Pages, doctor and the on-call view say the same. Names come from outside, so that each of them
gives its own way to quote them.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from queries.times import as_utc
from replay.counted import counted as in_words

Row = Mapping[str, Any]
Quoted = Callable[[object], str]

MOST_NAMED = 4
_OBSERVERS = {"kv_store": "KV stores", "router": "routers", "gateway": "gateways"}


def in_figures(row: Row) -> bool:
    """Whether figures are made of it: counters of other programs than engines enter none."""
    return row["observer"] in (None, "engine")


def summary(rows: Sequence[Row], quoted: Quoted = str) -> str:
    """ "request log gateway (litellm, 1,204 rows) and counters of engines polled from 4 targets";
    '' for none."""
    return listed([counted(row, quoted) for row in rows if in_figures(row)])


def listed(parts: Sequence[str]) -> str:
    """The first few parts as a sentence has them; '' for none."""
    shown = list(parts[:MOST_NAMED])
    if len(parts) > MOST_NAMED:
        shown.append(f"{len(parts) - MOST_NAMED} more")
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def name(row: Row, quoted: Quoted = str) -> str:
    """A source in a few words, with its basis."""
    match row["basis"]:
        case "roll-up":
            return "roll-ups of request logs"
        case "scrape":
            return f"{_whose(row)} polled from {_targets(row)}"
        case "prometheus":
            return f"{_whose(row)} read from the Prometheus {quoted(row['source'])}"
        case "backfill":
            return f"history of the Prometheus {quoted(row['source'])}"
        case "file":
            return f"recorded metric pages of {_targets(row)}"
        case "zmq":
            return f"KV-cache events of {quoted(row['source'])}"
        case basis:
            return f"request log {quoted(row['source'])} ({basis})"


def counted(row: Row, quoted: Quoted = str) -> str:
    """The same, of a log with its rows."""
    if row["kind"] != "log":
        return name(row, quoted)
    amount = in_words(row["rows"], "row")
    told = name(row, quoted)
    return f"{told[:-1]}, {amount})" if row["source"] else f"{told} ({amount})"


def _whose(row: Row) -> str:
    return f"counters of {_OBSERVERS.get(str(row['observer']), 'engines')}"


def _targets(row: Row) -> str:
    return in_words(row["targets"] or 0, "target")


def details(row: Row) -> str:
    """All that is known of a source beside its name; '' if nothing."""
    parts = []
    if row["joined_rows"]:
        parts.append(f"{row['joined_rows']:,} of its rows joined with another log's")
    if row["prompt_tokens"] is not None:
        parts.append(f"{row['prompt_tokens']:,} prompt tokens")
    if row["cached_tokens"] is not None:
        parts.append(f"{row['cached_tokens']:,} cached")
    if row["reported_ratio"] is not None:
        parts.append(f"{row['reported_ratio'] * 100:.1f} % report cached tokens")
    if row["first_ts"] is not None:
        first, last = (_time(row[column]) for column in ("first_ts", "last_ts"))
        parts.append(f"from {first} until {last} UTC")
    if not in_figures(row):
        parts.append("in no engine figure")
    return ", ".join(parts)


def _time(moment: datetime | str) -> str:
    """As Arrow or JSON brought it."""
    time = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return f"{as_utc(time):%Y-%m-%d %H:%M}"


_PAIRS = {
    "log_and_engine": "the log {first} and the engines' counters ({second}), model {model}",
    "joined_logs": "calls that both {first} and {second} wrote, joined: each counts once",
    "same_calls": "calls of the same id in the logs {first} and {second}",
    "two_readings": "counters of replica {replica}, {first} and {second}: the first counts",
    "one_process": "the replicas {first} and {second}, whose pages tell of one process",
}


def compared(pair: Row, quoted: Quoted = str) -> str:
    """Both values of one pair and their difference."""
    names = {"first": "first_source", "second": "second_source", "model": "model",
             "replica": "replica"}  # fmt: skip
    what = _PAIRS[pair["kind"]].format(**{word: quoted(pair[c]) for word, c in names.items()})
    first, second = (_whole(pair[f"{place}_prompt_tokens"]) for place in ("first", "second"))
    return f"{what}: {first} and {second} prompt tokens{_apart(pair)}"


def _apart(pair: Row) -> str:
    if pair["difference_tokens"] is None:
        return ""
    ratio = pair["difference_ratio"]
    relative = "" if ratio is None else f" ({ratio * 100:+.1f} %)"
    return f", difference {pair['difference_tokens']:+,}{relative}"


def _whole(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


_REMEDIES = {
    "same_calls": "say which side each log is of (side: gateway, side: engine), so that they are "
    "joined; a log that was loaded under two names belongs in a new store under one",
    "one_process": "take one of the two addresses out of the settings",
}


def remedy(pair: Row) -> str:
    """What to do about a pair that is added twice."""
    return _REMEDIES[pair["kind"]]
