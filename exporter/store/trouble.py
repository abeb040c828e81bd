"""What keeps a store from being written, for people: said once when it begins and when it ends.

Everything that writes tries again by itself, some of it several times a second; what each of them
logs would fill the disk that is full.
"""

import logging
import time

from exporter.store.database import is_of_disk

_log = logging.getLogger(__name__)

# How long the same words about the disk are not said again.
_QUIET_SECONDS = 300.0


class Trouble:
    """`now` is what the last try to write met; None while writing works."""

    def __init__(self) -> None:
        self.now: str | None = None
        self._told_at: float | None = None
        self._told = False

    def met(self, error: BaseException) -> None:
        """The disk did not take something."""
        began, at = self.now is None, time.monotonic()
        self.now = f"the store cannot be written: {error}"
        # Where little room is left, a small batch is taken between two large ones.
        if began and (self._told_at is None or at - self._told_at >= _QUIET_SECONDS):
            _log.warning("%s; everything is tried again", self.now)
            self._told_at, self._told = at, True

    def over(self) -> None:
        """Something was written."""
        self.now = None
        if self._told:
            _log.info("the store is written again")
            self._told = False


class SeldomAboutTheDisk(logging.Filter):
    """Lets through what is logged about an error of the disk as one line now and then; everything
    else as it is."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log it. Where the error came about does not matter, it is the disk's."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None or not is_of_disk(error):
            return True
        words, now = (record.name, str(record.msg)), time.monotonic()
        if now - self._said.get(words, -_QUIET_SECONDS) < _QUIET_SECONDS:
            return False
        self._said[words] = now
        record.msg, record.args = f"{record.getMessage()}: {error}", None
        record.exc_info = record.exc_text = None
        return True
