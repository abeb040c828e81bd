"""Arms of an experiment: what may differ from caching as it is, how it is named, and what it is
compared with.

| part of a name | differs in |
| --- | --- |
| a router (`sticky`, …) | who gets a request |
| `off` | nothing is ever found; replicas by turns |
| `replicas:8` | how many serve |
| `memory:2` | the device's memory, so many times that of the setting |
| `host:0.5` | a host tier of so many times the device's memory of the setting; 0: none |
| `block:64` | tokens of a block, a multiple of the recorded one |
| `ttl:300` | seconds after which an idle block is not found any more |
| `merged`, `mended` | traffic as if all trust scopes were one, or layout findings were mended |

Parts are joined by `+`, in any order: `bounded-load+memory:2`.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from math import isfinite
from typing import Final, Literal

from replay.routers import ROUTERS

Variant = Literal["recorded", "merged", "mended"]

OFF = "off"
# Caching as it is without thought for routing: what the others are compared with.
PLAIN = "round-robin"
ROUTER_ARMS = (OFF, *ROUTERS)
MERGED: Final = "merged"
MENDED: Final = "mended"
# A table with an entry for each block and replica stands in memory.
MOST_REPLICAS = 1024
_MOST = 1e9


class NotAnArm(ValueError):
    """A name that says no arm, or an arm that traffic or setting do not allow."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """What differs from caching as it is (`Arm()`); None: as in the setting.

    `memory_factor` and `tier_factor`: of the setting's device memory. NotAnArm where a value is out
    of range, or two of them exclude each other.
    """

    router: str = PLAIN
    caches: bool = True
    replicas: int | None = None
    memory_factor: float = 1.0
    tier_factor: float | None = None
    block_tokens: int | None = None
    lifetime_seconds: float | None = None
    traffic: Variant = "recorded"

    def __post_init__(self) -> None:
        if self.router not in ROUTERS:
            raise NotAnArm(f"unknown router {self.router!r}; known: {', '.join(ROUTERS)}")
        self._check_sizes()
        if not self.caches and self.router != PLAIN:
            raise NotAnArm(f"{OFF} goes with no router: nothing is cached to be routed to")
        if not self.caches and (self.tier_factor is not None or self.lifetime_seconds is not None):
            raise NotAnArm(f"{OFF} goes with neither host: nor ttl:, as nothing is cached")
        if self.tier_factor and self.lifetime_seconds is not None:
            raise NotAnArm("blocks with a lifetime and a tier below are not modelled together")

    def _check_sizes(self) -> None:
        if self.replicas is not None and not 1 <= self.replicas <= MOST_REPLICAS:
            raise NotAnArm(f"replicas must be from 1 to {MOST_REPLICAS}")
        if self.block_tokens is not None and not 1 <= self.block_tokens <= _MOST:
            raise NotAnArm("block must be at least 1 token")
        for name, value in (("memory", self.memory_factor), ("ttl", self.lifetime_seconds)):
            if value is not None and not 0 < value <= _MOST:
                raise NotAnArm(f"{name} must be above 0")
        if self.tier_factor is not None and not 0 <= self.tier_factor <= _MOST:
            raise NotAnArm("host must be 0 or more")

    @property
    def name(self) -> str:
        """As a person writes it, and as `arm_named` reads it; the same for equal arms only."""
        parts = [
            self.router if self.caches else OFF,
            *(f"{word}:{_number(getattr(self, field))}"
              for word, (field, _) in _VALUES.items()
              if getattr(self, field) != getattr(_AS_IT_IS, field)),
            *([self.traffic] if self.traffic != _AS_IT_IS.traffic else []),
        ]  # fmt: skip
        return "+".join(parts[1:] if parts[0] == PLAIN and len(parts) > 1 else parts)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


# The word for each value in a name, in the order in which names have them.
_VALUES: dict[str, tuple[str, Callable[[str], float]]] = {
    "replicas": ("replicas", int),
    "memory": ("memory_factor", float),
    "host": ("tier_factor", float),
    "block": ("block_tokens", int),
    "ttl": ("lifetime_seconds", float),
}
_AS_IT_IS = Arm()
# What is taken back first, to see what an arm is to be compared with.
_DIFFERENCES = (
    "traffic", "lifetime_seconds", "block_tokens", "tier_factor", "memory_factor", "replicas",
    "router", "caches",
)  # fmt: skip


def arm_named(text: str) -> Arm:
    """The arm of a name, its parts in any order. NotAnArm says what is wrong with it."""
    said: dict[str, object] = {}
    for part in text.split("+"):
        for field, value in _told(part.strip()).items():
            if field in said:
                raise NotAnArm(f"arm {text!r}: {part.strip()!r} says again what it said before")
            said[field] = value
    try:
        return replace(_AS_IT_IS, **said)  # type: ignore[arg-type]
    except NotAnArm as error:
        raise NotAnArm(f"arm {text!r}: {error}") from None


def _told(part: str) -> dict[str, object]:
    """What one part of a name says."""
    word, colon, value = part.partition(":")
    if word in _VALUES and colon:
        field, kind = _VALUES[word]
        try:
            number = kind(value)
        except ValueError:
            number = float("nan")
        if not isfinite(number):
            example = f"{word}:{'0.5' if kind is float else '8'}"
            raise NotAnArm(f"{part!r} takes a number, like {example}")
        return {field: number}
    if part in (MERGED, MENDED):
        return {"traffic": part}
    if part == OFF:
        return {"caches": False}
    if part in ROUTERS:
        return {"router": part}
    words = ", ".join((*ROUTER_ARMS, *(f"{word}:N" for word in _VALUES), MERGED, MENDED))
    raise NotAnArm(f"unknown arm {part!r}; known: {words}, and these joined by +")


def swept(what: str, block_tokens: int, has_host: bool) -> tuple[Arm, ...]:
    """Arms of several sizes of one thing, the one as it is first. `block_tokens`: as recorded;
    `has_host`: whether there is a host tier to do without. NotAnArm for what has no sizes."""
    sweeps = {
        "memory": tuple(Arm(memory_factor=factor) for factor in (0.5, 2, 4)),
        "host": tuple(
            Arm(tier_factor=factor) for factor in (0, 0.5, 1, 2, 4) if factor or has_host
        ),
        "block": tuple(Arm(block_tokens=block_tokens * factor) for factor in (2, 4, 8)),
    }
    if what not in sweeps:
        raise NotAnArm(f"unknown sweep {what!r}; known: {', '.join(sweeps)}")
    return (Arm(), *sweeps[what])


def base_of(arm: Arm, among: Collection[Arm]) -> tuple[Arm, str] | None:
    """The arm that is the same but for one thing, and the name of that field; None where there is
    none among them."""
    for field in _DIFFERENCES:
        as_it_is = getattr(_AS_IT_IS, field)
        other = replace(arm, **{field: as_it_is})
        if other != arm and other in among:
            return other, field
    return None
