"""What an experiment begins with: the figures that a store tells, each with where it is from.

Answers of questions as plain rows come in, so that pages and commands measure alike.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from replay.clock import USUAL_HOST, Clock, Tier
from replay.counted import counted

Row = Mapping[str, object]
# The questions whose answers are asked for, and by what; of the window that is replayed.
QUESTIONS: Mapping[str, Mapping[str, str]] = {
    "serving": {},
    "replicas": {},
    "memory_split": {"by": "replica"},
    "prefill_speed": {},
    "decode_speed": {},
    "offload_load": {"by": "model"},
    "tier_memory": {"by": "model"},
}
USUAL_PREFILL_TOKENS_PER_SECOND = 20_000.0
USUAL_DECODE_SECONDS_PER_TOKEN = 0.02
# Where there is nothing to measure, as with a trace.
USUAL_CLOCK = Clock(
    prefill_tokens_per_second=USUAL_PREFILL_TOKENS_PER_SECOND,
    decode_seconds_per_token=USUAL_DECODE_SECONDS_PER_TOKEN,
)
# Nearest first.
TIERS = ("host", "disk", "remote")
# Requests that name no replica might be of any other: so many must name theirs to count them.
_LEAST_NAMED_RATIO = 0.5


@dataclass(frozen=True)
class Figure:
    """A value, and in words where it is from."""

    value: float
    source: str


@dataclass(frozen=True, kw_only=True)
class LowerTier:
    """A tier at work below the device. `capacity_tokens`: of each replica, or of all where it
    `is_shared`; what is None nothing tells."""

    name: str
    capacity_tokens: Figure | None
    tokens_per_second: Figure | None
    is_shared: bool = False

    def words(self) -> str:
        """What is known of it."""
        whose = "for all replicas" if self.is_shared else "a replica"
        room = "nothing tells its size"
        if self.capacity_tokens is not None:
            size, source = self.capacity_tokens.value, self.capacity_tokens.source
            room = f"{size:,.0f} tokens {whose}, {source}"
        speed = "nothing tells how fast it loads"
        if self.tokens_per_second is not None:
            rate, source = self.tokens_per_second.value, self.tokens_per_second.source
            speed = f"loads {rate:,.0f} tokens/s, {source}"
        return f"{self.name} tier: {room}; {speed}"


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """`capacity_tokens` of a replica, `block_tokens`, `token_bytes` of KV: None where nothing
    tells. The others are assumed then, and say so."""

    replicas: Figure
    capacity_tokens: Figure | None
    block_tokens: Figure | None
    prefill_tokens_per_second: Figure
    prefill_overhead_seconds: Figure
    decode_seconds_per_token: Figure
    token_bytes: Figure | None = None
    tiers: tuple[LowerTier, ...] = ()

    def words(self, given: Collection[str] = ()) -> list[str]:
        """A line for each figure, with where it is from, but for those `given` by name."""
        figures = {
            "capacity_tokens": ("memory for {:,.0f} tokens a replica", self.capacity_tokens),
            "block_tokens": ("block of {:.0f} tokens", self.block_tokens),
            "prefill_tokens_per_second": ("prefill of {:,.0f} tokens/s",
                                          self.prefill_tokens_per_second),
            "prefill_overhead_seconds": ("{:.3g} s of each prefill beside that",
                                         self.prefill_overhead_seconds),
            "decode_seconds_per_token": ("{:.3g} s a generated token",
                                         self.decode_seconds_per_token),
        }  # fmt: skip
        lines = [f"{counted(self.replicas.value, 'replica')}: {self.replicas.source}"]
        lines = [] if "replicas" in given else lines
        lines += [
            f"{told.format(figure.value)}: {figure.source}"
            for name, (told, figure) in figures.items()
            if figure is not None and name not in given
        ]
        return [*lines, *(tier.words() for tier in self.tiers if "tiers" not in given)]

    def known_tiers(self, block_tokens: int) -> tuple[Tier, ...]:
        """The tiers at work of which both size and speed are known, by blocks of so many tokens."""
        return tuple(
            Tier(
                name=tier.name,
                capacity_blocks=int(tier.capacity_tokens.value) // block_tokens,
                tokens_per_second=tier.tokens_per_second.value,
                is_shared=tier.is_shared,
            )
            for tier in self.tiers
            if tier.capacity_tokens is not None and tier.tokens_per_second is not None
        )

    def added_host(self) -> Tier:
        """What a host tier that an arm adds is like: as the one at work loads, where that is known,
        whether its size is or not, as the arm says how large it is."""
        for tier in self.tiers:
            if tier.name == USUAL_HOST.name and tier.tokens_per_second is not None:
                speed = tier.tokens_per_second.value
                return replace(USUAL_HOST, tokens_per_second=speed, is_shared=tier.is_shared)
        return USUAL_HOST

    def clock(self) -> Clock:
        """With the speeds that are measured, or assumed."""
        return Clock(
            prefill_tokens_per_second=self.prefill_tokens_per_second.value,
            prefill_overhead_seconds=self.prefill_overhead_seconds.value,
            decode_seconds_per_token=self.decode_seconds_per_token.value,
        )

    @property
    def whole_token_bytes(self) -> int | None:
        """KV of a token; None where nothing tells."""
        return None if self.token_bytes is None else round(self.token_bytes.value)


def calibration(told: Mapping[str, Sequence[Row]], model: str | None) -> Calibration:
    """From the answers to QUESTIONS, of one model; of all where none is told of it, as gateways
    may call it by another name than its engines do."""
    of_model = {name: _of_model(rows, model) for name, rows in told.items()}
    engines = [row for row in of_model.get("replicas", ()) if row.get("role") != "decode"]
    engines = [row for row in engines if row.get("up") is not False] or engines
    names = {row.get("replica") for row in engines}
    memory = [row for row in told.get("memory_split", ()) if row.get("replica") in names]
    speeds = of_model.get("prefill_speed", ())
    serving = next(iter(of_model.get("serving", ())), {})
    token_bytes = _token_bytes(memory)
    return Calibration(
        replicas=_replicas(serving, engines),
        capacity_tokens=_capacity(memory),
        block_tokens=_block(memory, serving),
        prefill_tokens_per_second=_prefill(speeds),
        prefill_overhead_seconds=_overhead(speeds),
        decode_seconds_per_token=_decode(of_model.get("decode_speed", ())),
        token_bytes=token_bytes,
        tiers=_tiers(of_model.get("offload_load", ()), of_model.get("tier_memory", ()),
                     token_bytes),
    )  # fmt: skip


def _of_model(rows: Sequence[Row], model: str | None) -> Sequence[Row]:
    """Rows of the model and of what all models share, or all where none is of the model."""
    shared = [row for row in rows if row.get("observer") == "kv_store"]
    own = [row for row in rows if row.get("model") == model and row not in shared]
    return [*own, *shared] if own else rows


def _replicas(serving: Row, engines: Sequence[Row]) -> Figure:
    """Those at work at once as requests name them, else the engines that were heard."""
    count, whole = _number(serving, "replicas"), _number(serving, "requests") or 0.0
    if count and (_number(serving, "named_requests") or 0.0) >= _LEAST_NAMED_RATIO * whole:
        return Figure(count, "as the requests of the middle hour name them")
    if engines:
        return Figure(len(engines), "engines that were heard")
    return Figure(1, "assumed, as none is named or heard")


def _capacity(memory: Sequence[Row]) -> Figure | None:
    rooms = _numbers(memory, "capacity_tokens")
    if not rooms:
        return None
    return Figure(max(median(rooms), 1), f"as {_engines(rooms)}{_median(rooms)}")


def _block(memory: Sequence[Row], serving: Row) -> Figure | None:
    """What most engines have, else what most requests state."""
    both = [(_number(row, "capacity_tokens"), _number(row, "capacity_blocks")) for row in memory]
    blocks = [round(tokens / count) for tokens, count in both if tokens and count]
    if blocks:
        return Figure(Counter(blocks).most_common(1)[0][0], f"as {_engines(blocks)}")
    stated = _number(serving, "block_tokens")
    return Figure(stated, "as most requests state") if stated else None


def _token_bytes(memory: Sequence[Row]) -> Figure | None:
    both = [(_number(row, "capacity_bytes"), _number(row, "capacity_tokens")) for row in memory]
    sizes = [size / tokens for size, tokens in both if size and tokens]
    return Figure(median(sizes), "KV geometry of the model in the settings") if sizes else None


def _prefill(speeds: Sequence[Row]) -> Figure:
    rates = _numbers(speeds, "tokens_per_second")
    if not rates:
        usual = "assumed, as no replica has 100 requests of different lengths that tell it"
        return Figure(USUAL_PREFILL_TOKENS_PER_SECOND, usual)
    requests = sum(_numbers(speeds, "requests"))
    least = min(_numbers(speeds, "fit"), default=0.0)
    bases = " and ".join(sorted({str(row.get("basis")) for row in speeds}))
    said = f"estimated from {bases} of {counted(requests, 'request')}, fit from {least:.2f}"
    return Figure(median(rates), said + _median(rates))


def _overhead(speeds: Sequence[Row]) -> Figure:
    rests = _numbers(speeds, "overhead_seconds")
    if not rests:
        return Figure(0.0, "assumed, as nothing tells it apart from queue and network")
    return Figure(median(rests), f"intercept of the same{_median(rests)}")


def _decode(speeds: Sequence[Row]) -> Figure:
    rows = [row for row in speeds if _number(row, "seconds_per_token") is not None]
    if not rows:
        usual = "assumed, as too few requests tell their first and last token"
        return Figure(USUAL_DECODE_SECONDS_PER_TOKEN, usual)
    times = _numbers(rows, "seconds_per_token")
    told, requests = sum(_numbers(rows, "told_requests")), sum(_numbers(rows, "requests"))
    said = (
        f"from {counted(told, 'request')} ({told / requests:.0%} tell it) under the load there was"
    )
    return Figure(median(times), said + _median(times))


def _tiers(
    loads: Sequence[Row], memory: Sequence[Row], token_bytes: Figure | None
) -> tuple[LowerTier, ...]:
    """Tiers that some page tells of, nearest first."""
    told = {row.get("tier") for row in (*loads, *memory)}
    return tuple(
        _tier(
            name,
            [row for row in loads if row.get("tier") == name],
            [row for row in memory if row.get("tier") == name],
            token_bytes,
        )
        for name in TIERS
        if name in told
    )


def _tier(
    name: str, loads: Sequence[Row], memory: Sequence[Row], token_bytes: Figure | None
) -> LowerTier:
    engines = [row for row in memory if row.get("observer") == "engine"]
    own, is_shared = (engines, False) if engines or not memory else (memory, True)
    rooms, room = _numbers(own, "capacity_tokens"), None
    if rooms and len(rooms) == len(own):
        sharing = 1.0 if is_shared else sum(_numbers(own, "replicas"))
        room = Figure(sum(rooms) / sharing, "as its pages tell")
    speed = _load_speed(loads, token_bytes)
    return LowerTier(name=name, capacity_tokens=room, tokens_per_second=speed, is_shared=is_shared)


def _load_speed(loads: Sequence[Row], token_bytes: Figure | None) -> Figure | None:
    """Tokens a second that come back: at least, as side-by-side time is summed."""
    times = [seconds for seconds in _numbers(loads, "load_seconds_per_token") if seconds > 0]
    if times:
        return Figure(1 / median(times), "by counted load times, at least")
    rates = [rate for rate in _numbers(loads, "bytes_per_second") if rate > 0]
    if rates and token_bytes is not None:
        return Figure(median(rates) / token_bytes.value, "by counted bytes, at least")
    return None


def _median(values: Sequence[float]) -> str:
    return f", median of {len(values)}" if len(values) > 1 else ""


def _engines(values: Sequence[float]) -> str:
    return "its engine tells" if len(values) == 1 else "its engines tell"


def _numbers(rows: Iterable[Row], name: str) -> list[float]:
    """What rows tell of a column."""
    return [value for row in rows if (value := _number(row, name)) is not None]


def _number(row: Row, name: str) -> float | None:
    value = row.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
