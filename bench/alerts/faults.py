"""What goes wrong, when and for how long. The fleet obeys; the record says what was injected."""

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args

from bench.alerts.world import DAYS, START, TEMPLATES

Kind = Literal[
    "memory_pressure",  # a batch job holds memory with long answers at an unusual hour
    "layout",  # a template puts the time in front of everything
    "routing",  # the router no longer keeps sessions on their replica
    "reset",  # replicas restart again and again
    "deploy",  # all replicas come back with larger weights and less memory for KV, until taken back
    "mix",  # a campaign of single questions over a long tail of documents
    "isolation",  # every session gets a cache salt of its own
    "reuse_stopped",  # the engine looks up and finds nothing
    "telemetry",  # half of the gateway's rows lose their cached count
]
KINDS: tuple[Kind, ...] = get_args(Kind)
FIRST_DAY = 35  # before it there is no history of four weeks to judge by


@dataclass(frozen=True)
class Fault:
    """One injected fault; times are Unix seconds. `template` where it hits only one."""

    kind: Kind
    since: float
    until: float
    template: str | None = None

    def at(self, moment: float) -> bool:
        """Whether it is on."""
        return self.since <= moment < self.until


def schedule(seed: int) -> list[Fault]:
    """Each kind once and three of them twice, apart from each other by days, two to six hours
    long, in hours in which people are awake."""
    draw = random.Random(f"faults {seed}")
    kinds = [*KINDS, *draw.sample(KINDS, 3)]
    draw.shuffle(kinds)
    room = (DAYS - 1 - FIRST_DAY) / len(kinds)
    found = []
    for place, kind in enumerate(kinds):
        day = int(FIRST_DAY + room * place + draw.uniform(0, room - 2))
        since = START + timedelta(days=day, hours=draw.randrange(7, 20))
        until = since + timedelta(hours=draw.randrange(2, 7))
        hit = draw.choice([t.name for t in TEMPLATES if t.turns > 1])
        found.append(
            Fault(kind, since.timestamp(), until.timestamp(), hit if kind == "layout" else None)
        )
    return found
