"""One stream without sockets: whatever a transport does, nothing is heard twice, out of order or
left out without a reason."""

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.blocks.order import StreamName
from exporter.sources.events import replaying
from exporter.sources.events.follower import QUIET_SECONDS, Follower, Moment
from exporter.sources.events.frames import Batch
from tests.unit_events.publishing import ToldTracker

STREAM = StreamName("events", "engine")
REPLAY_SECONDS = 100.0


@dataclass
class Asked:
    """The request under way; a new one takes the place of an old one."""

    start: int | None = None
    starts: list[int] = field(default_factory=list)

    def ask(self, start: int) -> None:
        self.start = start
        self.starts.append(start)

    def end(self) -> None:
        self.start = None


class World:
    """A publisher, a transport and a follower, one step at a time."""

    def __init__(self, chooser: random.Random | None = None, buffer_steps: int = 10**6) -> None:
        self.choose = chooser or random.Random(0)
        self.buffer_steps = buffer_steps
        self.tracker = ToldTracker()
        self.asked = Asked()
        self.follower = Follower(STREAM, self.tracker, self.asked, REPLAY_SECONDS)
        self.seconds = 0.0
        self.process = 0
        self.published: list[bytes] = []
        self.connected = False

    @property
    def now(self) -> Moment:
        return Moment(datetime.fromtimestamp(1e9 + self.seconds, UTC), self.seconds)

    @property
    def applied(self) -> list[bytes]:
        return self.tracker.applied.get(STREAM, [])

    @property
    def reasons(self) -> list[str]:
        """Why something is missing or may be, of the process heard now."""
        return self.tracker.doubts.get(STREAM, [])

    def connect(self) -> None:
        if not self.connected:
            self.connected = True
            self.follower.connected(True, self.now)

    def disconnect(self) -> None:
        if self.connected:
            self.connected = False
            self.follower.connected(False, self.now)

    def restart(self) -> None:
        self.disconnect()
        self.process += 1
        self.published = []

    def publish(self, *, lost: bool = False, times: int = 1) -> None:
        number = len(self.published)
        self.published.append(b"%d of %d" % (number, self.process))
        if self.connected and not lost:
            for _ in range(times):
                self.deliver(number)

    def deliver(self, number: int) -> None:
        self.follower.live(Batch(number, self.published[number]), self.now)

    def replies(self) -> list[Batch]:
        """What an honest publisher sends for the request under way."""
        assert self.asked.start is not None
        oldest = max(0, len(self.published) - self.buffer_steps)
        numbers = range(max(self.asked.start, oldest), len(self.published))
        return [Batch(number, self.published[number]) for number in numbers]

    def answer(self, replies: list[Batch] | None = None, *, ends: bool = True) -> None:
        """Send replies while they are wanted, then the end mark."""
        number = len(self.asked.starts)
        for batch in self.replies() if replies is None else replies:
            if self.asked.start is None or len(self.asked.starts) != number:
                return
            self.follower.replied(batch, self.now)
        if ends and self.asked.start is not None and len(self.asked.starts) == number:
            self.follower.replay_ended(self.now)

    def answer_all(self) -> None:
        """Answer honestly until nothing more is asked."""
        for _ in range(100_000):
            if self.asked.start is None:
                return
            self.answer()
        raise AssertionError("it asks for ever")

    def wait(self, seconds: float) -> None:
        self.seconds += seconds
        self.follower.tick(self.now)


def bodies(*numbers: int, process: int = 0) -> list[bytes]:
    return [b"%d of %d" % (number, process) for number in numbers]


@pytest.fixture
def world() -> World:
    made = World()
    made.connect()
    made.answer_all()
    return made


def test_the_first_connection_asks_for_the_whole_past() -> None:
    world = World()
    for _ in range(3):
        world.publish()
    world.connect()
    assert world.asked.starts == [0]
    world.answer_all()
    assert world.applied == bodies(0, 1, 2)


def test_a_replay_ends_when_it_reaches_what_came_live(world: World) -> None:
    """What is sent beyond is not waited for."""
    world.publish()
    world.publish(lost=True)
    world.publish()
    world.publish()
    assert world.applied == bodies(0)
    world.answer(world.replies()[:1], ends=False)
    assert world.asked.start is None
    assert world.applied == bodies(0, 1, 2, 3)


def test_a_hole_between_batches_that_waited(world: World) -> None:
    world.publish()
    world.publish(lost=True)
    world.publish()
    world.publish(lost=True)
    world.publish()
    world.answer_all()
    assert world.applied == bodies(0, 1, 2, 3, 4)
    assert world.reasons == []


def test_what_waited_when_the_connection_broke_is_not_lost(world: World) -> None:
    world.publish()
    world.publish(lost=True)
    world.publish()
    world.disconnect()
    world.publish()
    world.connect()
    assert world.asked.start == 0
    world.answer_all()
    assert world.applied == bodies(0, 1, 2, 3)
    assert world.tracker.restarts == []


def test_t26_what_waited_is_dropped_when_the_publisher_is_another(world: World) -> None:
    world.publish()
    world.publish(lost=True)
    world.publish()
    world.restart()
    world.publish()
    world.publish()
    world.connect()
    world.answer_all()
    assert world.applied == bodies(0, 1, process=1)
    assert len(world.tracker.restarts) == 1
    assert world.reasons == []


def test_t26_a_restart_that_published_nothing_yet(world: World) -> None:
    world.publish()
    world.restart()
    world.connect()
    world.answer_all()
    assert len(world.tracker.restarts) == 1
    world.publish()
    assert world.applied == bodies(0, process=1)


def test_what_a_publisher_keeps_no_more_is_given_up_once() -> None:
    world = World(buffer_steps=300)
    for _ in range(1_000):
        world.publish()
    world.connect()
    world.answer_all()
    assert world.applied == bodies(*range(700, 1_000))
    (reason,) = world.reasons
    assert reason.startswith("batches 0 to 699 are not in the replay")


def test_bounds_on_what_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond them batches are a gap like any other, and asked for when their turn comes."""
    monkeypatch.setattr(replaying, "MAX_WAITING_BATCHES", 3)
    world.publish()
    world.publish(lost=True)
    for _ in range(9):
        world.publish()
    world.answer_all()
    assert world.applied == bodies(0, 1, 2, 3, 4)
    world.publish()
    world.answer_all()
    assert world.applied == bodies(*range(12))
    assert world.reasons == []


def test_a_replay_that_goes_quiet_is_asked_for_again_from_there(world: World) -> None:
    for lost in (False, True, True, True, False):
        world.publish(lost=lost)
    world.answer(world.replies()[:1], ends=False)
    world.wait(QUIET_SECONDS - 1)
    assert world.asked.starts[-1] == 1
    world.wait(2)
    assert world.asked.starts[-1] == 2
    world.answer_all()
    assert world.applied == bodies(0, 1, 2, 3, 4)


def test_no_answer_at_all_is_given_up_in_time(world: World) -> None:
    world.publish()
    world.publish(lost=True)
    world.publish()
    world.wait(QUIET_SECONDS)
    assert world.applied == bodies(0, 2)
    assert world.reasons == [f"no answer to the replay request within {QUIET_SECONDS:g} s"]


def test_a_trickle_does_not_go_on_for_ever(world: World) -> None:
    """Something comes now and then, and never the end."""
    world.publish()
    for _ in range(200):
        world.publish(lost=True)
    world.publish()
    for number in range(1, 60):
        if world.asked.start is not None:
            world.answer([Batch(number, world.published[number])], ends=False)
        world.wait(3)
    assert world.asked.start is None
    assert world.reasons == [f"the replay did not end within {REPLAY_SECONDS:g} s"]
    assert world.applied[-1] == world.published[-1]


STEPS = (
    "publish",
    "lose",
    "twice",
    "disconnect",
    "connect",
    "restart",
    "answer",
    "bad answer",
    "wait",
)
WEIGHTS = (30, 8, 5, 4, 8, 1, 12, 6, 4)


def step(world: World, name: str) -> None:
    choose = world.choose
    if name == "publish":
        world.publish()
    elif name == "lose":
        world.publish(lost=True)
    elif name == "twice":
        world.publish(times=2)
    elif name == "disconnect":
        world.disconnect()
    elif name == "connect":
        world.connect()
    elif name == "restart":
        world.restart()
        for _ in range(choose.randrange(6)):
            world.publish()
        world.connect()
    elif name == "wait":
        world.wait(QUIET_SECONDS / 2)
    elif world.asked.start is not None and world.connected:
        world.answer(None if name == "answer" else damaged(world), ends=choose.random() < 0.7)


def damaged(world: World) -> list[Batch]:
    """Replies doubled, out of order or dropped; the first one always fits into the queue."""
    replies = world.replies()
    if not replies:
        return replies
    first, *rest = replies
    kept = [one for one in rest if world.choose.random() < 0.7]
    kept += [one for one in rest if world.choose.random() < 0.2]
    kept = [first, *kept]
    if world.choose.random() < 0.3:
        world.choose.shuffle(kept)
    return kept


@settings(max_examples=300)
@given(st.randoms(use_true_random=False), st.integers(1, 120), st.sampled_from([3, 20, 10**6]))
def test_any_faults_leave_all_or_a_reason(
    chooser: random.Random, steps: int, buffer_steps: int
) -> None:
    world = World(chooser, buffer_steps)
    for _ in range(steps):
        step(world, chooser.choices(STEPS, WEIGHTS)[0])
        assert_in_order(world)
    world.connect()
    world.answer_all()
    world.publish()  # shows what is missing before it
    world.answer_all()
    assert_in_order(world)
    assert world.applied[-1] == world.published[-1]
    if not world.reasons:
        assert world.applied == world.published


def assert_in_order(world: World) -> None:
    """Each once, ascending; of one process, or it is said that something is missing."""
    applied = [tuple(map(int, payload.split(b" of "))) for payload in world.applied]
    numbers = [number for number, _ in applied]
    assert numbers == sorted(set(numbers))
    assert len({process for _, process in applied}) <= 1 or world.reasons
