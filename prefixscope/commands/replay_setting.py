"""The setting of an experiment: what a person says, else what is measured, else what is assumed."""

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from exporter.errors import PrefixscopeError
from prefixscope.commands import replay_options as given
from prefixscope.commands.replay_request import Request
from prefixscope.consoles import messages
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
            f"{counted(len(prompts), 'request arrives', 'requests arrive')} within {span:,.1f} s "
            f"and {counted(replicas, 'replica')} need {needed:,.0f} s to compute them: is the unit "
            "of time another one (--unit s)? Else give more --replicas, a lower --speed, or "
            "--untimed"
        )
    if of_files and span > _LONG_SECONDS and needed < _IDLE_RATIO * span:
        messages().print(
            f"Replicas would be busy for {needed:,.0f} s of {span / 86_400:,.1f} days: if they were"
            " not, the unit of time is another one (--unit)",
            style="yellow", markup=False,
        )  # fmt: skip
