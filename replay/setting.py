"""What all arms of an experiment have in common, and what each of them makes of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from replay.arms import MENDED, MERGED, PLAIN, Arm, NotAnArm
from replay.clock import USUAL_HOST, Clock, Tier
from replay.counted import counted
from replay.prompts import Prompts
from replay.recorded import Recorded
from replay.routers import Router
from replay.rules import CacheRule

Cache = Literal["blocks", "radix"]
ORDER_ALONE = "order of requests alone, every earlier request's blocks are there: an upper bound"
_NO_LAYOUT = "layout is told of requests of a store, and of a log with the text of prompts"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """`capacity_blocks`: of each replica, in blocks of `rule`, None: never full. `router`: its
    settings, whatever its name. `clock` None: by order of requests alone. `tiers`: below the
    device, nearest first. `host`: what a host tier that an arm adds is like, but for its size.
    `warm_up_requests`: the first ones, which are in no figure. `token_bytes`: of KV, where known.
    `cache`: blocks by least recent use (vLLM), or a radix tree that loses whole leaves (SGLang).
    `clients`: each sends its next request when its last one ends; None: as recorded.
    `has_sessions`: whether requests name any. `given`: what of it a person said, by the names that
    `named_words` has.
    """

    arms: tuple[Arm, ...]
    rule: CacheRule
    replicas: int
    capacity_blocks: int | None
    router: Router = field(default_factory=lambda: Router(name=PLAIN))
    clock: Clock | None = None
    tiers: tuple[Tier, ...] = ()
    host: Tier = USUAL_HOST
    lifetime_seconds: float | None = None
    warm_up_requests: int = 0
    token_bytes: int | None = None
    cache: Cache = "blocks"
    clients: int | None = None
    has_sessions: bool = True
    given: frozenset[str] = frozenset()

    def words(self) -> list[str]:
        """What is given or assumed, a line each."""
        return [words for _, words in self.named_words()]

    def named_words(self) -> list[tuple[str, str]]:
        """The same, each behind the name of the field it is of, here, of the clock or of the
        router; '' where it is of none."""
        memory = "never full"
        if self.capacity_blocks is not None:
            memory = f"of {counted(self.capacity_blocks, 'block')}"
            if self.rule.block_tokens:
                memory += f" of {counted(self.rule.block_tokens, 'token')}"
            memory += " a replica"
        fleet = counted(self.replicas, "replica", "replicas alike")
        words = [("rule", self.rule.words()), ("replicas", fleet),
                 ("capacity_blocks", f"memory {memory}")]  # fmt: skip
        if self.cache == "radix":
            tree = "each replica keeps a radix tree, of which whole leaves are lost at a time"
            words.append(("cache", tree))
        words += [("", ORDER_ALONE)] if self.clock is None else self.clock.named_words()
        words += [("tiers", tier.words()) for tier in self.tiers if self.clock]
        if self.lifetime_seconds is not None:
            kept = f"idle blocks are kept for {self.lifetime_seconds:g} s"
            words.append(("lifetime_seconds", kept))
        words += [*self._words_of_routers(), *(("", each) for each in self._words_of_arms())]
        if self.clients is not None and self.clock:
            each = (f"clients: {self.clients}, each of which sends its next request when its last "
                    "one ends, whatever the recorded times")  # fmt: skip
            words.append(("clients", each))
        if self.warm_up_requests:
            warm = counted(self.warm_up_requests, "request warms", "requests warm")
            words.append(("warm_up_requests", f"the first {warm} the caches only"))
        return words

    def _words_of_routers(self) -> list[tuple[str, str]]:
        """By what those of the arms go that have settings."""
        used, router = {arm.router for arm in self.arms if arm.caches}, self.router
        load = "requests under way" if router.counts_requests else "tokens to be computed"
        if self.clock is None:
            load = "tokens computed so far"
        words = []
        if used & {"sticky", "session", "bounded-load"}:
            keys = f"sticky keys are the first {counted(router.prefix_blocks, 'block')} of a prompt"
            words.append(("prefix_blocks", keys))
        if used & {"least-loaded", "scored", "longest-prefix"}:
            taken = "they take turns" if router.takes_turns else "the first one is taken"
            words.append(("takes_turns", f"where replicas are alike to a router, {taken}"))
        if "bounded-load" in used:
            passes = f"bounded-load passes replicas above {router.slack:g} × the mean load ({load})"
            words.append(("slack", passes))
        if "scored" in used:
            scored = f"scored goes by uncached tokens + {router.load_weight:g} × load ({load})"
            words.append(("load_weight", scored))
        return words

    def _words_of_arms(self) -> list[str]:
        words = []
        if not self.has_sessions and any(arm.router == "session" for arm in self.arms):
            words.append("no request names its session: session goes by the first blocks, as "
                         "sticky does")  # fmt: skip
        for factor in dict.fromkeys(arm.tier_factor for arm in self.arms if arm.tier_factor):
            tiers = self.tiers_of(Arm(tier_factor=factor), self.rule.block_tokens or 1)
            words += [f"host:{factor:g} adds a {tiers[0].words()}"] if tiers else []
        if any(arm.block_tokens for arm in self.arms):
            words.append("a larger block is there where all recorded blocks in it are; memory is "
                         "the same in tokens")  # fmt: skip
        return words

    def checked(self, recorded: Recorded) -> None:
        """NotAnArm where there is no arm, or one that traffic or setting do not allow; ValueError
        where the setting contradicts itself."""
        if self.cache == "radix" and self.clock is not None:
            raise ValueError("radix trees are modelled by order of requests alone, untimed")
        if not self.arms:
            raise NotAnArm("an experiment needs at least one arm")
        for arm in self.arms:
            said = _missing_traffic(arm, recorded) or self._missing(arm)
            if said:
                raise NotAnArm(f"arm {arm.name}: {said}")

    def _missing(self, arm: Arm) -> str | None:
        """What this setting lacks for an arm."""
        if self.clock is None and (arm.tier_factor or arm.lifetime_seconds is not None):
            return "host tiers and lifetimes need the clock, so they cannot go untimed"
        if self.capacity_blocks is None and (arm.tier_factor or arm.memory_factor != 1):
            return "so many times what memory? Give the capacity of a replica (--capacity-blocks)"
        lifetime = arm.lifetime_seconds or self.lifetime_seconds
        if lifetime is not None and arm.caches and self.tiers_of(arm, 1):
            return "blocks with a lifetime and a tier below are not modelled together"
        return None

    def rule_of(self, arm: Arm, recorded_block_tokens: int) -> CacheRule:
        """The rule by the blocks of an arm; one of a fixed block keeps that."""
        if arm.block_tokens is None or self.rule.block_tokens != recorded_block_tokens:
            return self.rule
        return replace(self.rule, block_tokens=arm.block_tokens)

    def capacity_of(self, arm: Arm, recorded_block_tokens: int) -> int | None:
        """The memory of an arm in its own blocks."""
        if self.capacity_blocks is None:
            return None
        blocks = int(self.capacity_blocks * arm.memory_factor)
        return max(_in_blocks_of(arm, blocks, recorded_block_tokens), 1)

    def tiers_of(self, arm: Arm, recorded_block_tokens: int) -> tuple[Tier, ...]:
        """The tiers of an arm in its own blocks: a host tier takes the place of the setting's."""
        tiers = list(self.tiers)
        if arm.tier_factor is not None:
            tiers = [tier for tier in tiers if tier.name != self.host.name]
        if arm.tier_factor and self.capacity_blocks is not None:
            sharing = (arm.replicas or self.replicas) if self.host.is_shared else 1
            blocks = int(self.capacity_blocks * arm.tier_factor * sharing)
            tiers.insert(0, replace(self.host, capacity_blocks=blocks))
        return tuple(
            replace(tier,
                    capacity_blocks=_in_blocks_of(arm, tier.capacity_blocks, recorded_block_tokens))
            for tier in tiers
        )  # fmt: skip


def _in_blocks_of(arm: Arm, blocks: int, recorded_block_tokens: int) -> int:
    return blocks * recorded_block_tokens // (arm.block_tokens or recorded_block_tokens)


def _missing_traffic(arm: Arm, recorded: Recorded) -> str | None:
    """What the traffic lacks for an arm."""
    if arm.traffic == MERGED and recorded.merged is None:
        return (
            "what trust scopes have in common is not known of this traffic: that takes content "
            "hashes of every request (docs/isolation.md)"
        )
    if arm.traffic == MENDED and recorded.mended is None:
        return "; ".join(recorded.mended_words) or _NO_LAYOUT
    block = recorded.prompts.block_tokens
    if arm.block_tokens is not None and arm.block_tokens % block:
        return f"only multiples of the recorded block of {block} tokens can be told"
    return None


def variant_of(arm: Arm, recorded: Recorded) -> Prompts:
    """The prompts that an arm serves. Only of an arm that was checked."""
    variants = {MERGED: recorded.merged, MENDED: recorded.mended}
    prompts = variants.get(arm.traffic) or recorded.prompts
    return prompts if arm.block_tokens is None else prompts.of_blocks(arm.block_tokens)


def distinct(arms: Sequence[Arm]) -> tuple[Arm, ...]:
    """Each once, in their order."""
    return tuple(dict.fromkeys(arms))
