"""`replay`: recorded traffic once more, with caching off, on, behind other routers, in other
memory."""

import json
import sys
from typing import TYPE_CHECKING

import typer

from prefixscope.commands import trace_options
from prefixscope.commands.replay_options import ReplayOutput
from prefixscope.commands.replay_request import Request
from prefixscope.commands.replay_setting import (
    by_blocks_of_the_engine,
    fitting,
    setting_of,
    sped_up,
)
from prefixscope.commands.taking import taking
from prefixscope.consoles import messages
from prefixscope.tables import printable

if TYPE_CHECKING:
    from prefixscope.replay_output import Told


@taking(Request)
def replay(request: Request) -> None:
    """Replay traffic with caching off, on, behind cache-aware routers, in other memory.

    A trace, or the requests of a store and what it tells of speeds and memory. Every assumption
    stands above the figures.

    Example: prefixscope replay trace.jsonl.gz --capacity-blocks 5000 --sweep memory
    """
    request.check()
    told = _told(request)
    from prefixscope.replay_output import as_html, as_json, print_experiment  # noqa: PLC0415

    if request.output is ReplayOutput.JSON:
        print(json.dumps(as_json(told), indent=2))
    elif request.output is ReplayOutput.HTML:
        sys.stdout.buffer.write(as_html(told))
    else:
        print_experiment(told, request.by.value if request.by else None)


def _told(request: Request) -> "Told":
    """Read the traffic and run every arm."""
    traffic = trace_options.traffic(request.wanted)
    messages().print(printable(traffic.words()), style="dim", markup=False)
    measured = traffic.measured
    recorded = by_blocks_of_the_engine(
        sped_up(traffic.recorded, request.speed), measured, request.block_tokens
    )
    setting, left_out = fitting(setting_of(request, recorded, measured), recorded)
    for line in left_out:
        messages().print(printable(line), style="yellow", markup=False)
    from prefixscope.replay_output import Told  # noqa: PLC0415 - compiled code
    from replay.arms import NotAnArm  # noqa: PLC0415
    from replay.experiment import experiment  # noqa: PLC0415

    try:
        found = experiment(recorded, setting)
    except NotAnArm as error:
        raise typer.BadParameter(str(error)) from error
    sources = measured.words(request.said()) if measured else []
    words = ". ".join([traffic.words(), *left_out])
    return Told(found, recorded, traffic.name, words, sources, request.gpus)
