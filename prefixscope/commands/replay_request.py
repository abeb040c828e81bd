"""What a person asks of `replay`: every option by its name, and which of them go together."""

from dataclasses import dataclass, fields
from functools import cached_property
from math import isfinite

import typer

from prefixscope.commands import geometry_options, options, trace_options, traffic_options
from prefixscope.commands import replay_options as given
from prefixscope.tier_text import NotATier, tier_named
from replay.clock import Tier

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
