"""What one stream of event batches needs between message and state: gaps filled, restarts noticed.

No socket and no clock of its own: the worker hands in messages, replies and the time. While a
replay is under way, live batches wait and are heard after it, in order. After every connection the
replay is asked for from the batch heard last on: if the publisher has another one under that
number, or none, it was started anew while nobody listened.
"""

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from exporter.blocks.order import Heard, StreamName
from exporter.blocks.tracker import Tracker
from exporter.sources.events.frames import Batch
from exporter.sources.events.replaying import Pile, Replay

logger = logging.getLogger(__name__)

# Publishers look for requests about ten times a second. Their queue of replies holds 1,000 and
# drops what is more, so a replay that breaks off is asked for again from there.
QUIET_SECONDS = 10.0
NO_REPLAY = (
    "batches were lost and no replay is configured: start the engine with replay_endpoint in its "
    "--kv-events-config, and set replay_endpoint under events"
)
NOT_PROVEN = (
    "the connection was lost, and the replay does not have the batch heard before: the engine may "
    "have been restarted meanwhile"
)


@dataclass(frozen=True)
class Moment:
    """Now: as people read it, and in seconds that never go back."""

    at: datetime
    seconds: float


class Replays(Protocol):
    """Where a stream's past can be asked for."""

    def ask(self, start: int) -> None:
        """Ask for every batch from `start` on; replies to earlier requests come no more."""

    def end(self) -> None:
        """No more replies are wanted."""


class Follower:
    """One stream. `replays` None: none are configured."""

    def __init__(
        self,
        stream: StreamName,
        tracker: Tracker,
        replays: Replays | None,
        replay_seconds: float,
    ) -> None:
        self.stream = stream
        self._tracker = tracker
        self._replays = replays
        self._replay_seconds = replay_seconds
        self._newest: int | None = None
        self._replay: Replay | None = None
        self._waiting = Pile()
        self._crowded = False

    @property
    def replaying(self) -> bool:
        """Whether live batches wait for a replay."""
        return self._replay is not None

    # ---------------------------------------------------------------- from the worker

    def connected(self, is_connected: bool, now: Moment) -> None:
        """The publisher came or went. Whoever comes is asked what was missed meanwhile."""
        self._tracker.connected(self.stream, is_connected)
        if self._replays is None:
            return
        if not is_connected:
            self._replays.end()
            self._replay = None
            return
        replay = self._begin(self._newest or 0, now, checks=self._newest is not None)
        # What waited when the connection broke is as good as a reply, if the publisher is the same.
        while self._waiting:
            batch, _ = self._waiting.take()
            if replay.checks and batch.sequence > replay.next and not replay.is_full:
                replay.hold(batch)

    def live(self, batch: Batch, now: Moment) -> None:
        """A batch as it was published."""
        if self._replay is None and not self._waiting:
            self._hear(batch, now.at, now)
        elif not self._waiting.add(batch, now.at) and not self._crowded:
            self._crowded = True
            logger.warning("%s: too many batches came during a replay", self.stream.replica)

    def replied(self, batch: Batch, now: Moment) -> None:
        """A batch of a replay."""
        replay = self._replay
        if replay is None:
            return
        replay.quiet_until = now.seconds + QUIET_SECONDS
        first = self._waiting.first
        if batch.sequence < replay.next or (
            first is not None and replay.next <= first <= batch.sequence
        ):
            return
        replay.answered = True
        if batch.sequence == replay.next:
            self._take(batch, replay, now)
            return
        replay.hold(batch)
        if replay.is_full:
            self._go_on(replay, now)

    def replay_ended(self, now: Moment) -> None:
        """The publisher has sent all it has."""
        replay = self._replay
        if replay is None:
            return
        first = self._waiting.first
        if replay.checks and not replay.answered and (first is None or first < replay.next):
            self._tracker.restarted(self.stream, now.at)
            self._newest = None
            self._finish(None, now)
        elif replay.ahead or (first is not None and first > replay.next):
            self._go_on(replay, now)
        else:
            self._finish(None, now)

    def tick(self, now: Moment) -> None:
        """Time has passed: a replay that does not come is not waited for for ever."""
        replay = self._replay
        if replay is None:
            return
        if now.seconds >= replay.deadline:
            self._settle(f"the replay did not end within {self._replay_seconds:g} s", now)
        elif now.seconds < replay.quiet_until:
            return
        elif replay.advanced:
            self._ask_again(replay, now)
        else:
            self._settle(f"no answer to the replay request within {QUIET_SECONDS:g} s", now)

    # ---------------------------------------------------------------- replays

    def _begin(self, start: int, now: Moment, *, checks: bool = False) -> Replay:
        assert self._replays is not None
        deadline, quiet_until = now.seconds + self._replay_seconds, now.seconds + QUIET_SECONDS
        self._replay = Replay(start, checks, deadline, quiet_until)
        self._replays.ask(start)
        return self._replay

    def _ask_again(self, replay: Replay, now: Moment) -> None:
        assert self._replays is not None
        replay.advanced = False
        replay.quiet_until = now.seconds + QUIET_SECONDS
        self._replays.ask(replay.next)

    def _go_on(self, replay: Replay, now: Moment) -> None:
        """Something is missing in what was replied. Ask for it again; if that has brought
        nothing, it is gone."""
        if replay.advanced:
            self._ask_again(replay, now)
            return
        reason = self._what_is_gone(replay)
        if not replay.ahead:
            self._settle(reason, now)
            return
        self._doubt_who_it_is(replay)
        replay.next = min(replay.ahead)
        batch = replay.release(replay.next)
        assert batch is not None
        self._hear_despite(batch, now.at, reason, replayed=True)
        self._take(batch, replay, now)
        if self._replay is replay:
            self._ask_again(replay, now)

    def _take(self, batch: Batch, replay: Replay, now: Moment) -> None:
        """Hear replies as far as they follow each other; end once they reach what came live."""
        reply: Batch | None = batch
        while reply is not None:
            if self._tell(reply, now.at, replayed=True):
                # Of another process than the one heard before: all of its past is wanted.
                self._begin(0, now)
                return
            replay.next, replay.advanced, replay.checks = reply.sequence + 1, True, False
            reply = replay.release(replay.next)
        first = self._waiting.first
        if first is not None and first <= replay.next:
            self._finish(None, now)

    def _what_is_gone(self, replay: Replay) -> str:
        first = self._waiting.first
        known = [*replay.ahead, *([] if first is None else [first])]
        until = min(sequence for sequence in known if sequence > replay.next)
        return (
            f"batches {replay.next} to {until - 1} are not in the replay: the publisher keeps "
            "only the last ones (buffer_steps in its --kv-events-config)"
        )

    def _settle(self, reason: str, now: Moment) -> None:
        """Go on with what there is; what is missing stays missing for that reason."""
        replay = self._replay
        assert replay is not None
        self._doubt_who_it_is(replay)
        for sequence in sorted(replay.ahead):
            self._hear_despite(replay.ahead[sequence], now.at, reason, replayed=True)
        self._finish(reason, now)

    def _doubt_who_it_is(self, replay: Replay) -> None:
        """Without the batch heard last nothing tells whether the publisher is still the same."""
        if replay.checks:
            self._tracker.lost(self.stream, NOT_PROVEN)

    def _finish(self, reason: str | None, now: Moment) -> None:
        """End the replay and hear what has come live meanwhile.

        `reason` is why something may be missing before the first of it.
        """
        assert self._replays is not None
        self._replays.end()
        self._replay, self._crowded = None, False
        while self._waiting and self._replay is None:
            batch, at = self._waiting.take()
            if reason is not None:
                self._hear_despite(batch, at, reason)
            else:
                self._hear(batch, at, now)
            reason = None

    # ---------------------------------------------------------------- the tracker

    def _hear(self, batch: Batch, at: datetime, now: Moment) -> None:
        """Hear a live batch; where others are missing before it, ask for them first."""
        if self._replays is None:
            self._hear_despite(batch, at, NO_REPLAY)
        elif self._tell(batch, at):
            self._waiting.put_first(batch, at)
            self._begin(self._tracker.missing(self.stream).start, now)

    def _hear_despite(
        self, batch: Batch, at: datetime, reason: str, replayed: bool = False
    ) -> None:
        """Hear a batch although others may be missing before it."""
        if self._tell(batch, at, replayed):
            logger.warning("%s: %s", self.stream.replica, reason)
            self._tracker.give_up(self.stream, reason)
            self._tell(batch, at, replayed)

    def _tell(self, batch: Batch, at: datetime, replayed: bool = False) -> bool:
        """Hand a batch to the tracker. True where it was not taken, for others are missing."""
        heard = self._tracker.hear(self.stream, batch.sequence, batch.payload, at, replayed)
        if heard is Heard.RESTARTED:
            logger.info("%s: the publisher of events was restarted", self.stream.replica)
            self._newest = None
            if self._replay is not None:
                self._replay.forget()
        waits = heard in (Heard.GAP, Heard.RESTARTED) and bool(self._tracker.missing(self.stream))
        if not waits and heard is not Heard.REPEATED:
            self._newest = batch.sequence
        return waits
