"""`replay`: recorded traffic once more, with caching off, on, and behind other routers."""

import json
from dataclasses import replace
from enum import StrEnum
from math import isfinite
from typing import TYPE_CHECKING, Annotated

import typer

from exporter.errors import PrefixscopeError
from prefixscope.commands import trace_options
from prefixscope.commands.options import messages
from replay.clock import Clock, Tier
from replay.rules import RULES

if TYPE_CHECKING:
    from replay.arms import Arm
    from replay.prompts import Prompts
    from replay.routers import Router
    from replay.setting import Setting

_USUAL_ARMS = "off,round-robin,least-loaded,sticky,bounded-load,scored"
# Prompts that arrive so many times faster than they could be computed: a wrong unit of time.
_ABSURD_LOAD = 50.0


class ReplayOutput(StrEnum):
    """How the arms are written."""

    TABLE = "table"
    JSON = "json"


Replicas = Annotated[int, typer.Option(min=1, help="How many serve the traffic.")]
CapacityBlocks = Annotated[
    int | None,
    typer.Option(min=1, help="Blocks each replica's memory holds.", show_default="never full"),
]
CapacityTokens = Annotated[
    int | None, typer.Option(min=1, help="The same in tokens.", show_default="never full")
]
Arms = Annotated[str, typer.Option(help="Which, as a list; all: every one.")]
Untimed = Annotated[
    bool, typer.Option("--untimed", help="By order of requests alone, without a clock.")
]
Speed = Annotated[
    float, typer.Option(min=0.001, help="Arrivals so many times as fast as recorded.")
]
PrefillSpeed = Annotated[
    float, typer.Option(min=1.0, help="Prompt tokens a replica computes in a second.")
]
PrefillOverhead = Annotated[
    float, typer.Option(min=0.0, help="Milliseconds of each prefill beside that.")
]
DecodeTime = Annotated[float, typer.Option(min=0.0, help="Milliseconds of each generated token.")]
MostRunning = Annotated[int, typer.Option(min=1, help="Requests at once a replica.")]
SummaryLag = Annotated[
    float, typer.Option(help="Seconds until routers know what is cached; -1: they guess.")
]
HostBlocks = Annotated[
    int, typer.Option(min=0, help="Blocks of host memory below each replica's own.")
]
HostSpeed = Annotated[
    float, typer.Option(min=1.0, help="Tokens of KV that come back from there in a second.")
]
PrefixBlocks = Annotated[
    int, typer.Option(min=1, help="Leading blocks that make the key of a sticky router.")
]
Slack = Annotated[
    float, typer.Option(min=1.0, help="Bounded load: times the mean load a replica may have.")
]
LoadWeight = Annotated[
    float, typer.Option(min=0.0, help="Scored: a token of load counts as so many uncached.")
]
Gpus = Annotated[int, typer.Option(min=1, help="GPUs of each replica.")]
Seed = Annotated[int, typer.Option(min=0, help="Of random routing and of intervals.")]


def replay(
    traces: trace_options.Traces = None,
    replicas: Replicas = 4,
    capacity_blocks: CapacityBlocks = None,
    capacity_tokens: CapacityTokens = None,
    arms: Arms = _USUAL_ARMS,
    rule: trace_options.Rule = "full",
    block_tokens: trace_options.BlockTokens = None,
    unit: trace_options.Unit = None,
    untimed: Untimed = False,
    speed: Speed = 1.0,
    prefill_speed: PrefillSpeed = 20_000.0,
    prefill_overhead: PrefillOverhead = 0.0,
    decode_time: DecodeTime = 20.0,
    most_running: MostRunning = 256,
    summary_lag: SummaryLag = 0.0,
    host_blocks: HostBlocks = 0,
    host_speed: HostSpeed = 200_000.0,
    prefix_blocks: PrefixBlocks = 2,
    slack: Slack = 1.25,
    load_weight: LoadWeight = 1.0,
    gpus: Gpus = 1,
    warm_up: trace_options.WarmUp = 0.0,
    seed: Seed = 1,
    as_: Annotated[
        ReplayOutput, typer.Option("--output", help="How to write it.")
    ] = ReplayOutput.TABLE,
) -> None:
    """Replay a trace with caching off, on, and on behind cache-aware routers: what would be won.

    Times follow from the speeds given here; every assumption stands above the figures.

    Example: prefixscope replay trace.jsonl.gz --replicas 4 --capacity-blocks 5000
    """
    trace_options.check_words(rule, unit)
    _check_together(capacity_blocks, capacity_tokens, untimed, host_blocks)
    wanted = _arms(arms)
    trace = trace_options.traffic(
        trace_options.Wanted(traces=traces, block_tokens=block_tokens, unit=unit)
    )
    messages().print(trace.words(), style="dim", markup=False)
    prompts = replace(trace.recorded.prompts, arrived=trace.recorded.prompts.arrived / speed)
    if capacity_tokens is not None:
        capacity_blocks = max(capacity_tokens // prompts.block_tokens, 1)
    clock = None
    if not untimed:
        clock = _clock(prefill_speed, prefill_overhead, decode_time, most_running, summary_lag)
        _check_load(prompts, clock, replicas, trace.name)
    from replay.setting import Setting  # noqa: PLC0415 - compiled code

    setting = Setting(
        arms=wanted,
        rule=RULES[rule].of_blocks(prompts.block_tokens),
        replicas=replicas,
        capacity_blocks=capacity_blocks,
        router=_router(prefix_blocks, slack, load_weight, seed),
        clock=clock,
        tiers=_tiers(host_blocks, host_speed),
        host=_host(host_blocks, host_speed),
        warm_up_requests=int(warm_up * len(prompts)),
    )
    _tell(prompts, setting, gpus, as_)


def _check_together(
    blocks: int | None, tokens: int | None, untimed: bool, host_blocks: int
) -> None:
    if blocks is not None and tokens is not None:
        raise typer.BadParameter("give --capacity-blocks or --capacity-tokens, not both")
    if untimed and host_blocks:
        raise typer.BadParameter("--host-blocks needs the clock that --untimed leaves out")


def _clock(
    speed: float, overhead: float, decode_time: float, most_running: int, lag: float
) -> Clock:
    """From what the options say: times in milliseconds, a lag of -1 for routers that guess."""
    if not all(map(isfinite, (speed, overhead, decode_time, lag))) or (lag < 0 and lag != -1):
        raise typer.BadParameter("times must be finite numbers, and --summary-lag -1 or from 0 on")
    return Clock(
        prefill_tokens_per_second=speed,
        prefill_overhead_seconds=overhead / 1e3,
        decode_seconds_per_token=decode_time / 1e3,
        most_running=most_running,
        summary_lag_seconds=lag if lag >= 0 else None,
    )


def _router(prefix_blocks: int, slack: float, load_weight: float, seed: int) -> "Router":
    """The settings of routers, whichever an arm names."""
    from replay.arms import PLAIN  # noqa: PLC0415 - compiled code
    from replay.routers import Router  # noqa: PLC0415

    return Router(
        name=PLAIN, prefix_blocks=prefix_blocks, slack=slack, load_weight=load_weight, seed=seed
    )


def _tell(prompts: "Prompts", setting: "Setting", gpus: int, as_: ReplayOutput) -> None:
    from prefixscope.replay_output import as_json, print_experiment  # noqa: PLC0415
    from replay.arms import NotAnArm  # noqa: PLC0415 - compiled code
    from replay.experiment import experiment  # noqa: PLC0415
    from replay.recorded import Recorded  # noqa: PLC0415

    try:
        found = experiment(Recorded(prompts=prompts), setting)
    except NotAnArm as error:
        raise typer.BadParameter(str(error)) from error
    if as_ is ReplayOutput.JSON:
        print(json.dumps(as_json(found, gpus), indent=2))
    else:
        print_experiment(found, gpus)


def _host(blocks: int, tokens_per_second: float) -> Tier:
    return Tier(name="host", capacity_blocks=blocks, tokens_per_second=tokens_per_second)


def _tiers(blocks: int, tokens_per_second: float) -> tuple[Tier, ...]:
    return (_host(blocks, tokens_per_second),) if blocks else ()


def _arms(text: str) -> "tuple[Arm, ...]":
    from replay.arms import ROUTER_ARMS, NotAnArm, arm_named  # noqa: PLC0415 - compiled code

    names = ROUTER_ARMS if text == "all" else text.split(",")
    try:
        return tuple(dict.fromkeys(arm_named(name) for name in names))
    except NotAnArm as error:
        raise typer.BadParameter(f"--arms: {error}") from error


def _check_load(prompts: "Prompts", clock: Clock, replicas: int, name: str) -> None:
    """Refuse times that can only be of another unit."""
    span = float(prompts.arrived[-1])
    needed = int(prompts.prompt_tokens.sum()) / clock.prefill_tokens_per_second / replicas
    if len(prompts) > 1 and needed > _ABSURD_LOAD * max(span, 1.0):
        raise PrefixscopeError(
            f"{name}: {len(prompts):,} requests arrive within {span:,.1f} s and {replicas} replicas"
            f" need {needed:,.0f} s to compute them: is the unit of time another one (--unit s)?"
            " Else give more --replicas, a lower --speed, or --untimed"
        )
