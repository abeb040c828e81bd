"""What if: what is asked of the traffic, and the arms that its choices mean."""

from dataclasses import dataclass

from replay.calibration import Calibration

USUAL_ROUTERS = ("off", "round-robin", "least-loaded", "sticky", "bounded-load", "scored")
ROUTERS = (*USUAL_ROUTERS, "session", "random", "longest-prefix")
FACTORS = {0.5: "½ ×", 1.0: "1 ×", 2.0: "2 ×", 4.0: "4 ×"}
MEMORY = {factor: words for factor, words in FACTORS.items() if factor != 1}
HOST = {0.0: "none", **FACTORS}
# What routers count as load, and which of several replicas that are alike gets a request.
LOADS = {False: "tokens to be computed", True: "requests under way"}
TIES = {True: "they take turns", False: "the first is taken"}
Window = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Chosen arms. `behind`: the router that all but the routers have, so that each differs from
    its arm in one thing. `counts_requests`, `takes_turns`: of all routers."""

    routers: tuple[str, ...] = USUAL_ROUTERS
    memory: tuple[float, ...] = (2.0,)
    host: tuple[float, ...] = (1.0,)
    replicas: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    lifetimes: tuple[float, ...] = ()
    merged: bool = False
    mended: bool = False
    behind: str = "round-robin"
    counts_requests: bool = False
    takes_turns: bool = True

    def arms(self) -> tuple[str, ...]:
        """Their names: routers, then what else was chosen."""
        parts = [
            *(f"memory:{factor:g}" for factor in self.memory),
            *(f"host:{factor:g}" for factor in self.host),
            *(f"replicas:{count}" for count in self.replicas),
            *(f"block:{tokens}" for tokens in self.blocks),
            *(f"ttl:{seconds:g}" for seconds in self.lifetimes),
            *(["merged"] if self.merged else []),
            *(["mended"] if self.mended else []),
        ]
        beside = [] if not parts or self.behind in self.routers else [self.behind]
        return (*self.routers, *beside, *(f"{self.behind}+{part}" for part in parts))


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One question put to a window, as of when the button was pressed: a live window moves on, and
    what was asked is not replayed again every few seconds. `known`: what was measured, for what is
    not asked here; `sources`: where figures are from that were left as measured."""

    window: Window
    model: str | None
    known: Calibration
    replicas: int
    capacity_tokens: int
    block_tokens: int
    prefill_tokens_per_second: float
    decode_seconds_per_token: float
    gpus: int
    arms: tuple[str, ...]
    counts_requests: bool = False
    takes_turns: bool = True
    sources: tuple[str, ...] = ()
