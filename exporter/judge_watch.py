"""Judges in the background now and then, for what alerts ask of the store."""

import logging
import threading
from abc import ABC, abstractmethod
from datetime import UTC, datetime


class JudgeWatch(ABC):
    """Runs until stopped. A kind of judgement says what one is, and when the next is due."""

    def __init__(self, name: str) -> None:
        self._judged_at = datetime.now(UTC)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; the first judgement comes after the first pause."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the work in hand."""
        self._stopped.set()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether it is running."""
        return self._thread.is_alive()

    @property
    def judged_at(self) -> datetime:
        """When it last judged without an error; when it was made before the first time."""
        return self._judged_at

    @abstractmethod
    def pause_seconds(self) -> float:
        """How long until the next judgement."""

    @abstractmethod
    def judge_once(self) -> None:
        """One judgement, and keep it."""

    @abstractmethod
    def failed(self) -> None:
        """The store could not be asked: what becomes of the judgement before."""

    def _run(self) -> None:
        while not self._stopped.wait(self.pause_seconds()):
            try:
                self.judge_once()
                self._judged_at = datetime.now(UTC)
            except Exception:
                self.failed()
                logging.getLogger(type(self).__module__).exception(
                    "%s could not be judged; trying again", self._thread.name
                )
