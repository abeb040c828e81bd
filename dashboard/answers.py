"""Questions with the page's window and filters filled in, and a bounded cache of their answers."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pyarrow as pa
import streamlit as st

from dashboard.client import ask, exporter_url
from dashboard.figures.rows import Row, Rows
from dashboard.filters import Filters, Window, iso
from queries.registry import questions

REFRESH_SECONDS = 15
_Params = tuple[tuple[str, str], ...]


@st.cache_data(ttl=120, max_entries=300, show_spinner=False)
def _answer(url: str, name: str, params: _Params, version: int) -> pa.Table:  # noqa: ARG001
    """Cached by question, parameters and data version: `version` is part of the key.

    Nothing else is: no connection and no session, so that all readers share one answer.
    Failures are not kept.
    """
    return ask(url, name, dict(params))


def data_version(now: float | None = None) -> int:
    """Counts up every REFRESH_SECONDS: answers of one version are asked for once."""
    return int((time.time() if now is None else now) // REFRESH_SECONDS)


def asked(name: str, params: Mapping[str, object] | None = None, *, versions: int = 1) -> Rows:
    """Rows of a question, as `table` gives it."""
    rows: Rows = table(name, params, versions=versions).to_pylist()
    return rows


def table(name: str, params: Mapping[str, object] | None = None, *, versions: int = 1) -> pa.Table:
    """Answer of a question; parameters that are None are left to their default.

    An answer that may be older is kept for so many data versions.
    """
    texts = {
        key: iso(value) if isinstance(value, datetime) else str(value)
        for key, value in (params or {}).items()
        if value is not None
    }
    key = tuple(sorted(texts.items()))
    answer: pa.Table = _answer(exporter_url(), name, key, data_version() // versions)
    return answer


def version_time() -> datetime:
    """End of the current data version: the same for all readers, so that answers are shared."""
    return datetime.fromtimestamp((data_version() + 1) * REFRESH_SECONDS, UTC)


@dataclass(frozen=True)
class Answers:
    """Asks on behalf of one page in one state. Filters a question does not know are left out."""

    filters: Filters
    state: Row
    window: Window

    @property
    def before(self) -> Window | None:
        """The window compared with."""
        return self.filters.comparison(self.window)

    @property
    def step_seconds(self) -> int:
        """Step of charts: coarse enough to show the course and not the noise."""
        return self.step(150)

    def step(self, points: int) -> int:
        """Step for so many points: whole hours where the window reaches behind the rows."""
        hot_since = self.state.get("hot_since")
        step = self.window.step_seconds(points)
        rolled_up = hot_since is not None and self.window.since < hot_since.replace(tzinfo=UTC)
        return max(step, 3600) if rolled_up else step

    @property
    def view(self) -> str:
        """A short name of the view: what belongs to one view is new in another."""
        address = repr(sorted(self.filters.to_address().items()))
        return sha256(address.encode()).hexdigest()[:16]

    def rows(self, name: str, **extra: object) -> Rows:
        """The question over the page's window and filters."""
        return self._rows(name, self.window, extra)

    def rows_before(self, name: str, **extra: object) -> Rows:
        """The same over the comparison window; no rows where nothing is compared."""
        return [] if self.before is None else self._rows(name, self.before, extra)

    def first(self, name: str, **extra: object) -> Row:
        """The single row of a question without `by`; an empty row where there is none."""
        return next(iter(self.rows(name, **extra)), {})

    def first_before(self, name: str, **extra: object) -> Row:
        """The single row over the comparison window; an empty row where there is none."""
        return next(iter(self.rows_before(name, **extra)), {})

    def over_time(self, name: str, **extra: object) -> Rows:
        """A question over time in this page's steps."""
        return self.rows(name, step_seconds=self.step_seconds, **extra)

    def over_time_before(self, name: str, **extra: object) -> Rows:
        """The comparison window in the same steps."""
        return self.rows_before(name, step_seconds=self.step_seconds, **extra)

    def _rows(self, name: str, window: Window, extra: dict[str, object]) -> Rows:
        known = questions()[name].params
        given: dict[str, object] = {"since": window.since, "until": window.until}
        given |= self.filters.dimension_filters()
        return asked(name, {k: v for k, v in given.items() if k in known} | extra)


def last_data(state: Row) -> datetime | None:
    """Time of the newest fact in the store, in UTC; None when it is empty."""
    times = [state.get(column) for column in ("last_ts", "engine_last_ts")]
    known = [moment.replace(tzinfo=UTC) for moment in times if isinstance(moment, datetime)]
    return max(known, default=None)


def age(state: Row, now: datetime) -> timedelta | None:
    """How old the newest fact is; None when the store is empty."""
    last = last_data(state)
    return None if last is None else now - last
