"""Work in a thread of its own, from the start of the exporter to its end."""

import logging
import threading
from abc import ABC, abstractmethod


class Background(ABC):
    """A thread that works until it is stopped. A kind of work says what it does."""

    def __init__(self, name: str) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin in the background."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the work in hand."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether it is running."""
        return self._thread.is_alive()

    @abstractmethod
    def _run(self) -> None:
        """Work until `_stopped` is set."""


class Repeated(Background):
    """Work that is done now and then, whatever goes wrong with it: what one round is, and when the
    next is due. `trouble`: what is logged when a round fails, before the next one is tried."""

    def __init__(self, name: str, trouble: str) -> None:
        super().__init__(name)
        self._trouble = trouble

    @abstractmethod
    def pause_seconds(self) -> float:
        """How long until the next round, the first one too."""

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
