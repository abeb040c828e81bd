"""Judges in the background now and then, for what alerts ask of the store."""

from abc import abstractmethod
from datetime import UTC, datetime

from exporter.background import Repeated


class JudgeWatch(Repeated):
    """A kind of judgement says what one is, and when the next is due."""

    def __init__(self, name: str) -> None:
        super().__init__(name, f"{name} could not be judged")
        self._judged_at = datetime.now(UTC)

    @property
    def judged_at(self) -> datetime:
        """When it last judged without an error; when it was made before the first time."""
        return self._judged_at

    @abstractmethod
    def judge_once(self) -> None:
        """One judgement, and keep it."""

    def do_once(self) -> None:
        """Judge, and remember when."""
        self.judge_once()
        self._judged_at = datetime.now(UTC)
