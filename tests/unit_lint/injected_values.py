"""What injected defects say: times, ids, numbers, names and passages, for each request."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tests.unit_lint.injected_texts import NAMES

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Call:
    """One request of a log."""

    number: int
    session: int
    turn: int
    user: int
    at: datetime


def owner(frequency: str, call: Call) -> object:
    """Whom or when a value of such a frequency belongs to."""
    return {"session": call.session, "user": call.user, "day": call.at.date()}.get(
        frequency, call.number
    )


def _clock(
    shape: int, frequency: str, call: Call, rng: random.Random, passages: Sequence[str]
) -> str:
    at = call.at
    if frequency == "session":
        at = START + timedelta(hours=call.session, seconds=17 * call.session)
    if frequency == "day":
        return (f"{at:%Y-%m-%d}", f"{at:%A, %B %d, %Y}", f"{at:%d.%m.%Y}", f"{at:%d %b %Y}")[shape]
    return (
        f"{at:%H:%M:%S}", f"{at:%Y-%m-%d %H:%M:%S}", at.isoformat().replace("+00:00", "Z"),
        f"{at:%A, %d %B %Y at %I:%M:%S %p}",
    )[shape]  # fmt: skip


def _uuid(
    shape: int, frequency: str, call: Call, rng: random.Random, passages: Sequence[str]
) -> str:
    digits = "".join(rng.choice("0123456789abcdef") for _ in range(32))
    letters = "".join(rng.choice("0123456789ABCDEFGHJKMNPQRSTVWXYZabcdefghij") for _ in range(14))
    parted = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return (parted, digits, f"req_{letters}7x", f"trace-{digits[:16]}")[shape]


def _counter(
    shape: int, frequency: str, call: Call, rng: random.Random, passages: Sequence[str]
) -> str:
    return str((7, 1041, 99_840, 120_034)[shape] + call.number * (1, 1, 3, 2)[shape])


def _name(
    shape: int, frequency: str, call: Call, rng: random.Random, passages: Sequence[str]
) -> str:
    who = call.user if frequency == "user" else call.session
    return NAMES[(who * 3 + shape) % len(NAMES)]


def _retrieved(
    shape: int, frequency: str, call: Call, rng: random.Random, passages: Sequence[str]
) -> str:
    return "\n".join(rng.sample(passages, min(2, len(passages))))


VALUES = {
    "clock": _clock,
    "uuid": _uuid,
    "counter": _counter,
    "name": _name,
    "retrieved": _retrieved,
}
LABELS = {
    "clock": ("Current time is {}", "Now: {}", "timestamp={}", "Today is {}."),
    "uuid": ("Request {}", "trace id: {}", "Conversation [{}]", "nonce {}"),
    "counter": ("Request number {}", "call #{}", "sequence: {}", "You have served {} calls"),
    "name": ("You are talking to {}", "User: {}", "Customer: {}.", "the operator is {},"),
    "retrieved": ("Relevant passages:\n{}", "Context: {}", "<documents>\n{}\n</documents>", "{}"),
}
