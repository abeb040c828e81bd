"""What a person asks of `replay`, and what is measured or assumed where nothing is said, as the
setting of an experiment."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING

import typer

from exporter.errors import PrefixscopeError
from prefixscope.commands import geometry_options, options, trace_options, traffic_options
from prefixscope.commands import replay_options as given
from prefixscope.tier_text import NotATier, tier_named
from replay.calibration import USUAL_CLOCK
from replay.clock import USUAL_HOST, Clock, Tier
from replay.counted import counted
from replay.rules import RULES

if TYPE_CHECKING:
    from replay.arms import Arm
    from replay.calibration import Calibration
    from replay.recorded import Recorded
    from replay.routers import Router
    from replay.setting import Setting

USUAL_ARMS = ("off", "round-robin", "least-loaded", "sticky", "bounded-load", "scored")
# Where sizes of one thing are asked for, they are what differs.
_ARMS_BESIDE_SWEEPS = ("off", "round-robin")
# Prompts that arrive so many times faster than they could be computed: a wrong unit of time.
_ABSURD_LOAD = 50.0
# A busy hour in units a thousand times as long; a fleet may also be as idle as that.
_IDLE_RATIO, _LONG_SECONDS = 1e-3, 2 * 86_400.0
_REPLICAS = 4
# What an option says, by the name that the words of a setting have for it.
_GIVEN = {
    "rule": "rule",
    "replicas": "replicas",
    "capacity_blocks": "capacity_blocks",
    "capacity_tokens": "capacity_blocks",
    "cache": "cache",
    "prefill_speed": "prefill_tokens_per_second",
    "prefill_overhead": "prefill_overhead_seconds",
    "batched_tokens": "batched_tokens",
    "decode_time": "decode_seconds_per_token",
    "most_running": "most_running",
    "summary_lag": "summary_lag_seconds",
    "tier_texts": "tiers",
    "lifetime": "lifetime_seconds",
    "clients": "clients",
    "warm_up": "warm_up_requests",
    "prefix_blocks": "prefix_blocks",
    "ties": "takes_turns",
    "slack": "slack",
    "load_weight": "load_weight",
}
# Options that need a clock, by the name of what they set.
_TIMED = {
    "tier_texts": "--tier",
    "lifetime": "--lifetime",
    "clients": "--clients",
    "speed": "--speed",
    "prefill_speed": "--prefill-speed",
    "prefill_overhead": "--prefill-overhead",
    "batched_tokens": "--batched-tokens",
    "decode_time": "--decode-time",
    "most_running": "--most-running",
    "summary_lag": "--summary-lag",
    "load": "--load",
    "gpus": "--gpus",
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """What can be said to `replay`; None: not said."""

    traces: trace_options.Traces = None
    arms: given.Arms = None
    sweeps: given.Sweeps = None
    by: given.By = None
    replicas: given.Replicas = None
    capacity_blocks: given.CapacityBlocks = None
    capacity_tokens: given.CapacityTokens = None
    rule: trace_options.Rule = "full"
    cache: given.CacheKind = given.Cache.BLOCKS
    block_tokens: trace_options.BlockTokens = None
    unit: trace_options.Unit = None
    labels: trace_options.TraceLabels = None
    untimed: given.Untimed = False
    speed: given.Speed = 1.0
    clients: given.Clients = None
    prefill_speed: given.PrefillSpeed = None
    prefill_overhead: given.PrefillOverhead = None
    batched_tokens: given.BatchedTokens = None
    decode_time: given.DecodeTime = None
    most_running: given.MostRunning = 256
    summary_lag: given.SummaryLag = 0.0
    tier_texts: given.Tiers = None
    lifetime: given.Lifetime = None
    prefix_blocks: given.PrefixBlocks = 2
    slack: given.Slack = 1.25
    load_weight: given.LoadWeight = 1.0
    load: given.LoadIn = given.Load.TOKENS
    ties: given.TiesBy = given.Ties.TURNS
    gpus: given.Gpus = 1
    config: geometry_options.Config = None
    kv_dtype: geometry_options.KvDtype = None
    warm_up: trace_options.WarmUp = 0.0
    seed: given.Seed = 1
    since: traffic_options.Since = None
    until: traffic_options.Until = None
    model: traffic_options.Model = None
    store: options.StoreFolder = None
    url: options.Url = None
    token: options.Token = None
    output: given.Output = given.ReplayOutput.TABLE

    @cached_property
    def tiers(self) -> tuple[Tier, ...]:
        """Nearest first. BadParameter for a text that says none."""
        try:
            return tuple(map(tier_named, self.tier_texts or ()))
        except NotATier as error:
            raise typer.BadParameter(str(error)) from error

    @cached_property
    def token_bytes(self) -> int | None:
        """What the KV of a token weighs; None where no model is named."""
        return geometry_options.token_bytes(self.config, self.kv_dtype)

    @property
    def wanted(self) -> trace_options.Wanted:
        """The traffic that is asked for."""
        names = (field.name for field in fields(trace_options.Wanted) if field.name != "mends")
        return trace_options.Wanted(
            **{name: getattr(self, name) for name in names}, mends=self.mends
        )

    @property
    def timed_options(self) -> list[str]:
        """Options that were said and mean something with a clock alone."""
        return [option for name, option in _TIMED.items() if name in self._said]

    @property
    def given(self) -> frozenset[str]:
        """What a setting has from the person: a value that nobody said may be the same."""
        return frozenset(name for option, name in _GIVEN.items() if option in self._said)

    @property
    def _said(self) -> set[str]:
        """The options that differ from what is taken where nothing is said."""
        return {each.name for each in fields(self) if getattr(self, each.name) != each.default}

    @property
    def mends(self) -> bool:
        """Whether to look for what layout findings would change, which takes time: where an arm
        asks for it, and for the gain of a store's requests where no arms are named."""
        if self.arms is not None:
            return "mended" in self.arms
        return not self.traces and not self.sweeps and not self.untimed

    def check(self) -> None:
        """BadParameter where a word is none of ours, or options exclude each other."""
        trace_options.check_words(self.rule, self.unit)
        if self.capacity_blocks is not None and self.capacity_tokens is not None:
            raise typer.BadParameter("give --capacity-blocks or --capacity-tokens, not both")
        if self.untimed and self.timed_options:
            needing = ", ".join(self.timed_options)
            raise typer.BadParameter(f"--untimed leaves out the clock, without which these say "
                                     f"nothing: {needing}")  # fmt: skip
        if self.cache is given.Cache.RADIX and not self.untimed:
            raise typer.BadParameter("--cache radix is modelled by order alone: add --untimed")
        has_tiers = any(tier.capacity_blocks for tier in self.tiers)
        if self.lifetime is not None and has_tiers:
            raise typer.BadParameter("give --lifetime or --tier: they are not modelled together")
        if self.traces and has_tiers and (self.capacity_blocks or self.capacity_tokens) is None:
            raise typer.BadParameter(
                "--tier needs --capacity-blocks: memory that is never full loses nothing to it"
            )
        times = (self.prefill_overhead, self.decode_time, self.prefill_speed, self.summary_lag)
        factors = (self.speed, self.slack, self.load_weight, self.lifetime)
        if not all(isfinite(each) for each in (*times, *factors) if each is not None):
            raise typer.BadParameter("times, speeds and factors must be finite numbers")
        if self.summary_lag < 0 and self.summary_lag != -1:
            raise typer.BadParameter("--summary-lag must be 0 or more, or -1")
        if len({tier.name for tier in self.tiers}) < len(self.tiers):
            raise typer.BadParameter("--tier: each of host, disk and remote once at most")

    def said(self) -> list[str]:
        """What needs no measuring, by its name in a calibration."""
        sizes = {
            "replicas": self.replicas,
            "capacity_tokens": self.capacity_tokens or self.capacity_blocks,
            "block_tokens": self.block_tokens,
        }
        timed = {
            "prefill_tokens_per_second": self.prefill_speed,
            "prefill_overhead_seconds": self.prefill_overhead,
            "decode_seconds_per_token": self.decode_time,
            "tiers": self.tier_texts or self.lifetime,
        }
        known = sizes | {name: value for name, value in timed.items() if not self.untimed}
        unasked = list(timed) if self.untimed else []
        return [*(name for name, value in known.items() if value is not None), *unasked]


def setting_of(request: Request, recorded: "Recorded", measured: "Calibration | None") -> "Setting":
    """What is said, else measured, else assumed. PrefixscopeError for times that can only be of
    another unit; BadParameter for arms that are none."""
    from replay.setting import Setting  # noqa: PLC0415 - compiled code

    prompts = recorded.prompts
    clock = None if request.untimed else _clock(request, measured)
    block = prompts.block_tokens
    tiers = _tiers(request, measured, block)
    setting = Setting(
        arms=_arms(request, block, any(tier.name == "host" for tier in tiers)),
        rule=RULES[request.rule].of_blocks(block),
        replicas=request.replicas or (int(measured.replicas.value) if measured else _REPLICAS),
        capacity_blocks=_capacity(request, measured, block),
        router=_router(request),
        clock=clock,
        tiers=tiers,
        host=_host(request, measured),
        lifetime_seconds=request.lifetime,
        warm_up_requests=int(request.warm_up * len(prompts)),
        token_bytes=_token_bytes(request, measured),
        cache=request.cache.value,
        clients=request.clients,
        has_sessions=recorded.sessions is not None,
        given=request.given,
    )
    if clock is not None and request.clients is None:
        _check_load(recorded, clock, setting.replicas, bool(request.traces))
    return setting


def fitting(setting: "Setting", recorded: "Recorded") -> "tuple[Setting, list[str]]":
    """Without the arms of mended prompts where these were looked for and there is nothing to mend,
    which is said; all of them where no other arm is left."""
    from replay.arms import MENDED  # noqa: PLC0415 - compiled code

    kept = tuple(arm for arm in setting.arms if arm.traffic != MENDED)
    nothing_to_mend = recorded.mended is None and recorded.mended_words
    if not nothing_to_mend or len(kept) in (0, len(setting.arms)):
        return setting, []
    why = "; ".join(recorded.mended_words)
    return replace(setting, arms=kept), [f"Left out: arms with {MENDED}: {why}"]


def sped_up(recorded: "Recorded", times: float) -> "Recorded":
    """All variants with arrivals so many times as fast."""
    if times == 1:
        return recorded
    variants = {
        name: replace(prompts, arrived=prompts.arrived / times)
        for name in ("prompts", "merged", "mended")
        if (prompts := getattr(recorded, name)) is not None
    }
    return replace(recorded, **variants)


def by_blocks_of_the_engine(
    recorded: "Recorded", measured: "Calibration | None", block_tokens: int | None
) -> "Recorded":
    """Recorded blocks put together to the engine's own, where nobody says a size and they fit."""
    if block_tokens is not None or measured is None or measured.block_tokens is None:
        return recorded
    return recorded.of_engine_blocks(int(measured.block_tokens.value))


def _arms(request: Request, block_tokens: int, has_host: bool) -> "tuple[Arm, ...]":
    from replay.arms import ROUTER_ARMS, NotAnArm, arm_named, swept  # noqa: PLC0415 - compiled code

    beside = _ARMS_BESIDE_SWEEPS if request.sweeps else USUAL_ARMS
    names = beside if request.arms is None else request.arms.split(",")
    try:
        arms = [arm_named(name) for name in (ROUTER_ARMS if request.arms == "all" else names)]
        for what in request.sweeps or ():
            arms += swept(what, block_tokens, has_host)
    except NotAnArm as error:
        raise typer.BadParameter(str(error)) from error
    return tuple(dict.fromkeys(arms))


def _router(request: Request) -> "Router":
    """The settings of routers, whichever an arm names."""
    from replay.arms import PLAIN  # noqa: PLC0415 - compiled code
    from replay.routers import Router  # noqa: PLC0415

    return Router(name=PLAIN, prefix_blocks=request.prefix_blocks, slack=request.slack,
                  load_weight=request.load_weight, seed=request.seed,
                  counts_requests=request.load is given.Load.REQUESTS,
                  takes_turns=request.ties is given.Ties.TURNS)  # fmt: skip


def _capacity(request: Request, measured: "Calibration | None", block_tokens: int) -> int | None:
    """Blocks of each replica's memory; None: never full."""
    if request.capacity_blocks is not None:
        return request.capacity_blocks
    tokens = request.capacity_tokens
    if tokens is None and measured is not None and measured.capacity_tokens is not None:
        tokens = int(measured.capacity_tokens.value)
    return None if tokens is None else max(tokens // block_tokens, 1)


def _tiers(request: Request, measured: "Calibration | None", block_tokens: int) -> tuple[Tier, ...]:
    """Those that are said, else those at work; none untimed or beside a lifetime."""
    if request.untimed or request.lifetime is not None:
        return ()
    if request.tiers or measured is None:
        return tuple(tier for tier in request.tiers if tier.capacity_blocks)
    return measured.known_tiers(block_tokens)


def _host(request: Request, measured: "Calibration | None") -> Tier:
    """What a host tier that an arm adds is like: as the one that is said, else as measured."""
    said = (tier for tier in request.tiers if tier.name == USUAL_HOST.name)
    return next(said, measured.added_host() if measured else USUAL_HOST)


def _token_bytes(request: Request, measured: "Calibration | None") -> int | None:
    if request.token_bytes is None and measured is not None:
        return measured.whole_token_bytes
    return request.token_bytes


def _clock(request: Request, measured: "Calibration | None") -> Clock:
    """Times said are in milliseconds; a lag of -1 is of routers that guess."""
    known = measured.clock() if measured else USUAL_CLOCK
    return replace(
        known,
        prefill_tokens_per_second=request.prefill_speed or known.prefill_tokens_per_second,
        prefill_overhead_seconds=_seconds(request.prefill_overhead, known.prefill_overhead_seconds),
        decode_seconds_per_token=_seconds(request.decode_time, known.decode_seconds_per_token),
        batched_tokens=request.batched_tokens,
        most_running=request.most_running,
        summary_lag_seconds=request.summary_lag if request.summary_lag >= 0 else None,
    )


def _seconds(said_milliseconds: float | None, known_seconds: float) -> float:
    return known_seconds if said_milliseconds is None else said_milliseconds / 1e3


def _check_load(recorded: "Recorded", clock: Clock, replicas: int, of_files: bool) -> None:
    """Refuse times that can only be of another unit; doubt those of files that hardly ask for
    work."""
    prompts = recorded.prompts
    span = float(prompts.arrived[-1])
    needed = int(prompts.prompt_tokens.sum()) / clock.prefill_tokens_per_second / replicas
    if len(prompts) > 1 and needed > _ABSURD_LOAD * max(span, 1.0):
        raise PrefixscopeError(
            f"{counted(len(prompts), 'request arrives', 'requests arrive')} within {span:,.1f} "
            f"s and {counted(replicas, 'replica')}"
            f" need {needed:,.0f} s to compute them: is the unit of time another one (--unit s)?"
            " Else give more --replicas, a lower --speed, or --untimed"
        )
    if of_files and span > _LONG_SECONDS and needed < _IDLE_RATIO * span:
        options.messages().print(
            f"Replicas would be busy for {needed:,.0f} s of {span / 86_400:,.1f} days: if they were"
            " not, the unit of time is another one (--unit)",
            style="yellow", markup=False,
        )  # fmt: skip
