"""Asks the report's questions: the same way of a store and of an exporter."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Protocol

import pyarrow as pa

from dashboard.figures.rows import Row, Rows
from dashboard.report.weeks import Week
from queries.registry import questions


class Answers(Protocol):
    """Whoever answers questions: a store that is open, or an exporter."""

    def ask(self, name: str, params: Mapping[str, object]) -> pa.Table:
        """The answer; time stamps are UTC without a zone."""
        ...


class Asking:
    """Questions about one week. Each is asked once, however many sections need it."""

    def __init__(self, answers: Answers, week: Week) -> None:
        self.week = week
        self.names: set[str] = set()
        self._answers = answers
        self._kept: dict[tuple[str, tuple[tuple[str, object], ...]], Rows] = {}

    def rows(self, name: str, **params: object) -> Rows:
        """The question over the week, or over the window that is given."""
        window = {"since": self.week.since, "until": self.week.until}
        known = questions()[name].params
        given = {key: value for key, value in window.items() if key in known} | params
        told = tuple(sorted((k, _text(v)) for k, v in given.items() if v is not None))
        if (name, told) not in self._kept:
            self._kept[name, told] = self._answers.ask(name, dict(told)).to_pylist()
            self.names.add(name)
        return self._kept[name, told]

    def first(self, name: str, **params: object) -> Row:
        """The single row of a question; an empty row where there is none."""
        return next(iter(self.rows(name, **params)), {})


def _text(value: object) -> object:
    """As an address carries it: times as ISO text, numbers as they are."""
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value


def utc(value: object) -> datetime | None:
    """Time of a row, with its zone; None where it has none."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else None
