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


class SeldomWatch(JudgeWatch):
    """Judges for the first time when loads at the start are over, then every so often. What was
    found before stays where judging fails."""

    def __init__(self, name: str, first_seconds: float, every_seconds: float) -> None:
        super().__init__(name)
        self._pause_seconds, self._every_seconds = first_seconds, every_seconds

    def pause_seconds(self) -> float:
        return self._pause_seconds

    def do_once(self) -> None:
        super().do_once()
        self._pause_seconds = self._every_seconds

    def failed(self) -> None:
        """What was found before stays."""
