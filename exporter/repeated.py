"""Work that is done now and then in the background, whatever goes wrong with it."""

import logging
import threading
from abc import ABC, abstractmethod


class Repeated(ABC):
    """Runs until stopped. A kind of work says what one round is, and when the next is due.
    `trouble`: what is logged when a round fails, before the next one is tried."""

    def __init__(self, name: str, trouble: str) -> None:
        self._trouble = trouble
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; the first round comes after the first pause."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the work in hand."""
        self._stopped.set()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether it is running."""
        return self._thread.is_alive()

    @abstractmethod
    def pause_seconds(self) -> float:
        """How long until the next round."""

    @abstractmethod
    def do_once(self) -> None:
        """One round."""

    @abstractmethod
    def failed(self) -> None:
        """A round ended with an error: what becomes of what was there before."""

    def _run(self) -> None:
        while not self._stopped.wait(self.pause_seconds()):
            try:
                self.do_once()
            except Exception:
                self.failed()
                logger = logging.getLogger(type(self).__module__)
                logger.exception("%s; trying again", self._trouble)
