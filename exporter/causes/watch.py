"""Seals minutes in the background, a little after each is over for two."""

from datetime import UTC, datetime, timedelta

from exporter.causes.sealing import HeldSince, Sealer
from exporter.causes.settings import CauseSettings
from exporter.judge_watch import JudgeWatch
from exporter.store.store import Store


class CauseWatch(JudgeWatch):
    """Names the causes of missed tokens on the minute until stopped."""

    def __init__(self, store: Store, settings: CauseSettings, held_since: HeldSince) -> None:
        super().__init__("causes")
        self._sealer = Sealer(store, settings, held_since)
        self.crossed = self._sealer.crossed.snapshot

    def pause_seconds(self) -> float:
        """To a moment of the minute at which the others do not judge."""
        now = datetime.now(UTC)
        due = now.replace(second=30, microsecond=0)
        return ((due if due > now else due + timedelta(minutes=1)) - now).total_seconds()

    def judge_once(self) -> None:
        """Seal what is due. What a full disk or too little memory keeps from it is tried again."""
        self._sealer.seal(datetime.now(UTC), is_stopped=self._stopped.is_set)

    def failed(self) -> None:
        """Nothing of it was kept: the next time begins where the last good one ended."""
