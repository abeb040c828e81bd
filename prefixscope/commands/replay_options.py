"""What can be said to `replay`, so that the command itself can be read."""

from enum import StrEnum
from typing import Annotated

import typer

_ARMS, _FLEET, _CLOCK, _ROUTERS = "What is tried", "Replicas", "Clock", "Routers"


class ReplayOutput(StrEnum):
    """How the arms are written."""

    TABLE = "table"
    JSON = "json"
    HTML = "html"


class Cache(StrEnum):
    """What a replica keeps its KV in."""

    BLOCKS = "blocks"
    RADIX = "radix"


class Load(StrEnum):
    """What routers count as the load of a replica."""

    TOKENS = "tokens"
    REQUESTS = "requests"


class Ties(StrEnum):
    """Which of several replicas that are alike to a router gets a request."""

    TURNS = "turns"
    FIRST = "first"


class GroupBy(StrEnum):
    """Whose requests the second table is of."""

    TEMPLATE = "template"
    TENANT = "tenant"


Replicas = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        help="How many serve.",
        show_default="as the store tells, else 4",
        rich_help_panel=_FLEET,
    ),
]
CapacityBlocks = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Blocks each replica's memory holds.",
        show_default="as the store tells, else never full",
        rich_help_panel=_FLEET,
    ),
]
CapacityTokens = Annotated[
    int | None,
    typer.Option(
        min=1, help="The same in tokens.", show_default="the same", rich_help_panel=_FLEET
    ),
]
Arms = Annotated[
    str | None,
    typer.Option(
        help="Which, as a list: routers, off, memory:2, host:0.5, replicas:8, block:64, ttl:300, "
        "merged, mended, joined by + as in sticky+memory:2; all: every router.",
        show_default="off and the usual routers",
        rich_help_panel=_ARMS,
    ),
]
Sweeps = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        metavar="WHAT",
        help="Several sizes of one thing: memory, host, block.",
        rich_help_panel=_ARMS,
    ),
]
CacheKind = Annotated[
    Cache,
    typer.Option(
        help="Blocks by least recent use, or (untimed) SGLang's radix tree.", rich_help_panel=_FLEET
    ),
]
Untimed = Annotated[
    bool,
    typer.Option(
        "--untimed", help="By order of requests alone, without a clock.", rich_help_panel=_CLOCK
    ),
]
Speed = Annotated[
    float,
    typer.Option(
        min=0.001, help="Arrivals so many times as fast as recorded.", rich_help_panel=_CLOCK
    ),
]
Clients = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="So many send one request after the other, whatever the recorded times.",
        show_default="as recorded",
        rich_help_panel=_CLOCK,
    ),
]
PrefillSpeed = Annotated[
    float | None,
    typer.Option(
        min=1.0,
        help="Prompt tokens a replica computes in a second.",
        show_default="as the store tells, else 20000",
        rich_help_panel=_CLOCK,
    ),
]
PrefillOverhead = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        help="Milliseconds of each prefill beside that.",
        show_default="as the store tells, else 0",
        rich_help_panel=_CLOCK,
    ),
]
BatchedTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Prompts that wait are computed together up to so many tokens.",
        show_default="one after the other",
        rich_help_panel=_CLOCK,
    ),
]
DecodeTime = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        help="Milliseconds of each generated token.",
        show_default="as the store tells, else 20",
        rich_help_panel=_CLOCK,
    ),
]
MostRunning = Annotated[
    int, typer.Option(min=1, help="Requests at once a replica.", rich_help_panel=_FLEET)
]
SummaryLag = Annotated[
    float,
    typer.Option(
        help="Seconds until routers know what is cached; -1: they guess.", rich_help_panel=_ROUTERS
    ),
]
Tiers = Annotated[
    list[str] | None,
    typer.Option(
        "--tier",
        metavar="TIER",
        help="Memory below, nearest first: host:BLOCKS, disk:BLOCKS or remote:BLOCKS, and behind "
        "it speed=TOKENS/S, latency=MS, shared, write-through, overlaps, with commas.",
        rich_help_panel=_FLEET,
    ),
]
Lifetime = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        help="Seconds idle blocks are kept.",
        show_default="until memory is needed",
        rich_help_panel=_FLEET,
    ),
]
PrefixBlocks = Annotated[
    int,
    typer.Option(
        min=1, help="Leading blocks that make the key of a sticky router.", rich_help_panel=_ROUTERS
    ),
]
Slack = Annotated[
    float,
    typer.Option(
        min=1.0,
        help="Bounded load: times the mean load a replica may have.",
        rich_help_panel=_ROUTERS,
    ),
]
LoadWeight = Annotated[
    float,
    typer.Option(
        min=0.0,
        help="Scored: a token of load counts as so many uncached.",
        rich_help_panel=_ROUTERS,
    ),
]
LoadIn = Annotated[
    Load,
    typer.Option(
        "--load",
        help="What the load of a replica is: tokens to be computed, or requests under way, by "
        "which most gateways go.",
        rich_help_panel=_ROUTERS,
    ),
]
TiesBy = Annotated[
    Ties,
    typer.Option(
        "--ties",
        help="Of replicas that are alike they take turns, or the first one is taken, as "
        "vllm-router does.",
        rich_help_panel=_ROUTERS,
    ),
]
Gpus = Annotated[int, typer.Option(min=1, help="GPUs of each replica.", rich_help_panel=_FLEET)]
Seed = Annotated[int, typer.Option(min=0, help="Of random routing and of intervals.")]
By = Annotated[GroupBy | None, typer.Option(help="Figures of each too.", rich_help_panel=_ARMS)]
Output = Annotated[ReplayOutput, typer.Option("--output", help="How to write it.")]
