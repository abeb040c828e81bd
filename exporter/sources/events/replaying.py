"""What is kept in memory while a replay is under way."""

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime

from exporter.sources.events.frames import Batch

# What may wait in memory while a replay is under way; beyond, batches are dropped and are a gap.
MAX_WAITING_BATCHES = 20_000
MAX_WAITING_BYTES = 64 * 2**20
# Replies that may come before their turn until what is between is taken for missing.
MAX_AHEAD_BATCHES = 256
MAX_AHEAD_BYTES = 8 * 2**20


class Pile:
    """Batches kept for later, oldest first, within bounds."""

    def __init__(self) -> None:
        self._batches: deque[tuple[Batch, datetime]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def first(self) -> int | None:
        """The number of the oldest; None where there is none."""
        return self._batches[0][0].sequence if self._batches else None

    def add(self, batch: Batch, at: datetime) -> bool:
        """Keep one; False where there is no room."""
        if len(self) >= MAX_WAITING_BATCHES or self._bytes + len(batch.payload) > MAX_WAITING_BYTES:
            return False
        self._batches.append((batch, at))
        self._bytes += len(batch.payload)
        return True

    def put_first(self, batch: Batch, at: datetime) -> None:
        """One that comes before all others, whatever room there is."""
        self._batches.appendleft((batch, at))
        self._bytes += len(batch.payload)

    def take(self) -> tuple[Batch, datetime]:
        """The oldest, which is kept no longer."""
        batch, at = self._batches.popleft()
        self._bytes -= len(batch.payload)
        return batch, at


@dataclass
class Replay:
    """One replay under way. `next` is the batch to be heard next; `checks`: it was heard before,
    and will prove that the publisher is the same. `ahead` came before its turn."""

    next: int
    checks: bool
    deadline: float
    quiet_until: float
    ahead: dict[int, Batch] = field(default_factory=dict)
    ahead_bytes: int = 0
    answered: bool = False
    advanced: bool = False

    def hold(self, batch: Batch) -> None:
        """Keep what came before its turn."""
        if batch.sequence not in self.ahead:
            self.ahead[batch.sequence] = batch
            self.ahead_bytes += len(batch.payload)

    @property
    def is_full(self) -> bool:
        """Whether no more can be kept."""
        return len(self.ahead) >= MAX_AHEAD_BATCHES or self.ahead_bytes >= MAX_AHEAD_BYTES

    def forget(self) -> None:
        """What came before its turn is of a publisher that is gone."""
        self.ahead.clear()
        self.ahead_bytes = 0

    def release(self, sequence: int) -> Batch | None:
        """One of those kept; None where it did not come."""
        batch = self.ahead.pop(sequence, None)
        self.ahead_bytes -= len(batch.payload) if batch else 0
        return batch
