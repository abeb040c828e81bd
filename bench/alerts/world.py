"""What is sent, by whom and when: four months of one fleet, to judge alerts by.

Made before the alerts, and without them in mind. `faults` says what goes wrong, `fleet` sends it
all through the block pools of `replay`, `record` writes what a gateway and a scraper would have
seen. No ratio is drawn anywhere: every cached token is one that a pool reused.

A small fleet stands for a large one: few sessions, and memory and speed that fit them, so that the
evening peak presses on the caches as it does in earnest.

Times are Unix seconds. The fleet's days are those of `ZONE`, so that daylight saving moves the
peaks in UTC as it does for people.
"""

import math
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

ZONE = ZoneInfo("Europe/Berlin")
START = datetime(2026, 1, 5, tzinfo=UTC)  # a Monday; the clocks change on 29 March
DAYS = 120
BLOCK_TOKENS = 128
REPLICAS = 4
REPLICA_BLOCKS = 130
MODEL = "chat-70b"
TENANTS = tuple(f"tenant-{number:02}" for number in range(16))
SESSIONS_PER_HOUR = 55.0  # mean over the week, before growth

_OFFICE = (0.1, 0.08, 0.06, 0.06, 0.08, 0.2, 0.5, 0.9, 1.2, 1.4, 1.4, 1.3,
           1.1, 1.3, 1.4, 1.3, 1.2, 1.0, 0.8, 0.7, 0.6, 0.5, 0.3, 0.2)  # fmt: skip
_EVENING = (0.4, 0.2, 0.1, 0.1, 0.1, 0.1, 0.2, 0.3, 0.4, 0.4, 0.5, 0.5,
            0.6, 0.5, 0.5, 0.6, 0.9, 1.3, 2.0, 2.6, 3.0, 2.6, 1.6, 0.8)  # fmt: skip
_WEEKEND_OFFICE, _WEEKEND_EVENING = 0.25, 0.9
_HOLIDAYS = {(4, 3), (4, 5), (4, 6), (5, 1)}  # month and day: half the people are away
_GROWTH_PER_DAY = 0.002
_SEASON_RATIO = 0.06  # a slow swing over the months


@dataclass(frozen=True)
class Template:
    """One prompt template: a head all share, a document of the tenant, then the conversation."""

    name: str
    route: str
    share: float
    head_tokens: int
    user_tokens: int
    output_tokens: int
    document_tokens: int = 0
    documents: int = 1
    turns: float = 1.0
    think_seconds: float = 60.0
    evening: bool = False


TEMPLATES = (
    Template("assistant", "chat", 22, 1_300, 220, 320, turns=6, think_seconds=260, evening=True),
    Template("support", "chat", 20, 1_900, 110, 200, document_tokens=900, turns=4,
             think_seconds=90),
    Template("agent", "agent", 10, 3_000, 300, 220, turns=8, think_seconds=30, evening=True),
    Template("review", "agent", 8, 1_000, 700, 350, document_tokens=1_500, documents=4, turns=2,
             think_seconds=40),
    Template("search", "search", 22, 700, 130, 200, document_tokens=1_200, documents=25,
             evening=True),
    Template("extract", "documents", 18, 1_500, 500, 90),
)  # fmt: skip


@dataclass
class World:
    """The seeded circumstances of one run, faults apart."""

    seed: int
    campaigns: list[tuple[float, float]] = field(default_factory=list)
    releases: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        draw = random.Random(f"world {self.seed}")
        self._phase = draw.uniform(0, 2 * math.pi)
        # Days with half as much traffic again, of the usual kind: busy, but nothing is wrong.
        for _ in range(3):
            day = START + timedelta(days=draw.randrange(35, DAYS))
            self.campaigns.append((day.timestamp(), (day + timedelta(days=1)).timestamp()))
        # New versions that change the text and not the layout: warm again after minutes.
        for _ in range(4):
            moment = START + timedelta(days=draw.randrange(20, DAYS), hours=draw.randrange(8, 16))
            self.releases.append((moment.timestamp(), draw.choice(TEMPLATES).name))

    def weights(self, moment: float) -> list[float]:
        """Session starts per second of every template."""
        local = datetime.fromtimestamp(moment, ZONE)
        days = (moment - START.timestamp()) / 86_400
        scale = 1 + _GROWTH_PER_DAY * days
        scale *= 1 + _SEASON_RATIO * math.sin(2 * math.pi * days / 60 + self._phase)
        if (local.month, local.day) in _HOLIDAYS:
            scale *= 0.5
        if any(since <= moment < until for since, until in self.campaigns):
            scale *= 1.5
        weekend = local.weekday() >= 5
        hour = local.hour + local.minute / 60
        office = _at(_OFFICE, hour) * (_WEEKEND_OFFICE if weekend else 1)
        evening = _at(_EVENING, hour) * (_WEEKEND_EVENING if weekend else 1)
        per_second = scale * SESSIONS_PER_HOUR / 3_600 / sum(t.share for t in TEMPLATES)
        return [per_second * t.share * (evening if t.evening else office) for t in TEMPLATES]

    def version(self, template: str, moment: float) -> int:
        """Version of a template's text, by its releases so far."""
        return 1 + sum(name == template and since <= moment for since, name in self.releases)


def _at(hours: tuple[float, ...], hour: float) -> float:
    whole = int(hour)
    return hours[whole] + (hours[(whole + 1) % 24] - hours[whole]) * (hour - whole)
