"""Judges now and then what alerts ask of the store besides drops: whether offload pays, and whether
stale KV was reused.

Both are questions over many rows, so they are asked every ten minutes and no oftener. The
questions themselves judge; here they are only asked, bounded and kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import duckdb

from exporter.judge_watch import JudgeWatch
from exporter.metrics import Page
from exporter.metrics_text import label_text
from exporter.store.store import Store
from queries import registry

EVERY_SECONDS = 600.0
OFFLOAD_SPAN = timedelta(hours=24)
STALE_SPAN = timedelta(hours=1)
# Models are named by whoever sends rows: bound them like every other label.
MOST_SERIES = 100
PAYS = {"pays": 1, "does not pay": 0}  # what cannot be told has no series
TOLD_SEVERITIES = ("critical", "warning")


@dataclass(frozen=True)
class Verdicts:
    """`pays` by model and tier; `stale_tokens` by model and reason."""

    pays: dict[tuple[str, str], int] = field(default_factory=dict)
    stale_tokens: dict[tuple[str, str], int] = field(default_factory=dict)


NO_VERDICTS = Verdicts()


def judge(cursor: duckdb.DuckDBPyConnection, until: datetime) -> Verdicts:
    """Both questions on the time before `until`; without rows nothing is told."""

    def ask(name: str, span: timedelta, **params: object) -> list[dict[str, object]]:
        window = {"since": until - span, "until": until, **params}
        return registry.rows(registry.run(cursor, name, window))

    return Verdicts(
        _pays(ask("offload_verdict", OFFLOAD_SPAN, by="model")),
        _stale_tokens(ask("stale_reuse", STALE_SPAN)),
    )


def _pays(rows: Iterable[dict[str, object]]) -> dict[tuple[str, str], int]:
    told = [row for row in rows if row["verdict"] in PAYS][:MOST_SERIES]
    return {(str(row["model"]), str(row["tier"])): PAYS[str(row["verdict"])] for row in told}


def _stale_tokens(rows: Iterable[dict[str, object]]) -> dict[tuple[str, str], int]:
    """Of counters and requests, which tell of the same tokens, the larger."""
    found: dict[tuple[str, str, str], int] = {}
    for row in rows:
        if row["severity"] in TOLD_SEVERITIES and isinstance(row["tokens"], int):
            key = (str(row["model"]), str(row["reason"]), str(row["evidence"]))
            found[key] = found.get(key, 0) + row["tokens"]
    largest: dict[tuple[str, str], int] = {}
    for (model, reason, _), tokens in found.items():
        largest[model, reason] = max(tokens, largest.get((model, reason), 0))
    return dict(list(largest.items())[:MOST_SERIES])


def add_verdicts(page: Page, verdicts: Verdicts) -> None:
    """The families of these verdicts."""
    for key, pays in sorted(verdicts.pays.items()):
        page["prefixcache_offload_pays"].add(label_text(("model", "tier"), key), pays)
    for key, tokens in sorted(verdicts.stale_tokens.items()):
        labels = label_text(("model", "reason"), key)
        page["prefixcache_stale_reused_tokens"].add(labels, tokens)


class VerdictWatch(JudgeWatch):
    """Judges every ten minutes."""

    def __init__(self, store: Store, every_seconds: float = EVERY_SECONDS) -> None:
        super().__init__("offload and stale reuse")
        self._store = store
        self._every_seconds = every_seconds
        self._verdicts = NO_VERDICTS

    def current(self) -> Verdicts:
        """As last judged; nothing before the first time, or once judging has failed."""
        return self._verdicts

    def pause_seconds(self) -> float:
        """Always the same."""
        return self._every_seconds

    def judge_once(self) -> None:
        """Of the time up to now."""
        self._verdicts = judge(self._store.cursor(), datetime.now(UTC))

    def failed(self) -> None:
        """An old verdict is none."""
        self._verdicts = NO_VERDICTS
