"""Follows what can only be asked what is new: a bucket, a database. One pass now and then."""

import logging
import threading
from collections.abc import Callable
from typing import Protocol

import duckdb

from exporter.background import Background
from exporter.errors import PrefixscopeError
from exporter.sources.intake import IngestSummary
from exporter.sources.log_settings import LogSettings
from exporter.sources.tail import refused

logger = logging.getLogger(__name__)


class PassReader(Protocol):
    """Reads what is new, pass by pass."""

    def run(self) -> IngestSummary:
        """One pass: takes what is new."""

    def skip(self) -> bool:
        """Notes what is there as read; False where that is to be done again."""

    @property
    def problems(self) -> list[str]:
        """What could not be read in the last pass."""


class PassFollower(Background):
    """Makes passes until stopped. `read_by` makes the reader of a kind of source; the event that it
    gets ends a pass early. `poll_once` makes one pass, for tests.
    """

    def __init__(
        self,
        settings: LogSettings,
        kind: str,
        poll_seconds: float,
        read_by: Callable[[threading.Event], PassReader],
    ) -> None:
        super().__init__(f"{kind}-{settings.source}")
        self._settings, self._poll_seconds = settings, poll_seconds
        self._skips = settings.begin == "end"
        self._errors: list[str] = []
        self._reader = read_by(self._stopped)

    @property
    def errors(self) -> list[str]:
        """What could not be read in the last pass."""
        return list(self._errors)

    def poll_once(self) -> None:
        """One pass: takes what is new, and says what cannot be read."""
        if self._skips:
            self._skips = not self._reader.skip()
        if not self._skips:
            self._reader.run()
        self._say(self._reader.problems)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.poll_once()
            except duckdb.Error as error:
                self._say([refused(error)])
            except PrefixscopeError as error:
                self._say([str(error)])
            self._stopped.wait(self._poll_seconds)

    def _say(self, errors: list[str]) -> None:
        """Logs each problem once, and that all are over."""
        for error in errors:
            if error not in self._errors:
                logger.warning("source %s: %s", self._settings.source, error)
        if self._errors and not errors:
            logger.info("%s is followed again (source %s)",
                        self._settings.path, self._settings.source)  # fmt: skip
        self._errors = errors
