"""How long things take in a replay: every assumption, so that it can be printed with the result."""

from dataclasses import dataclass

from replay.counted import counted

MICROSECOND = 1e-6


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Times of one replica.

    `prefill_tokens_per_second`: computed prompt tokens. `batched_tokens`: prompts that wait are
    computed in one step as long as they have no more tokens to be computed together (vLLM's
    max_num_batched_tokens), and all of them are ready at its end; a longer one takes a step of its
    own. None: one prompt after the other. `prefill_overhead_seconds`: of every step, whatever is
    computed in it. `decode_seconds_per_token`:
    while it lasts, a request holds its memory. `most_running`: requests at once (vLLM's
    max_num_seqs). `summary_lag_seconds`: how late a router learns what a cache holds; None: it is
    never told, and takes for held whatever it sent there (an approximate tree).
    """

    prefill_tokens_per_second: float
    prefill_overhead_seconds: float = 0.0
    batched_tokens: int | None = None
    decode_seconds_per_token: float = 0.0
    most_running: int = 256
    summary_lag_seconds: float | None = 0.0

    def __post_init__(self) -> None:
        if self.prefill_tokens_per_second <= 0 or self.most_running < 1:
            raise ValueError("prefill speed must be above 0, and most_running at least 1")
        if self.prefill_overhead_seconds < 0 or self.decode_seconds_per_token < 0:
            raise ValueError("times must not be below 0")
        if self.batched_tokens is not None and self.batched_tokens < 1:
            raise ValueError("batched_tokens must be at least 1")

    def words(self) -> list[str]:
        """What is assumed, a line each."""
        return [words for _, words in self.named_words()]

    def named_words(self) -> list[tuple[str, str]]:
        """The same, each behind the name of the field it is of."""
        speed = self.prefill_tokens_per_second
        # More digits would be those of a median or a fit.
        overhead = round(self.prefill_overhead_seconds * 1e3, 2)
        decode = round(self.decode_seconds_per_token * 1e3, 2)
        order, step = "one prompt after the other", "prompt"
        if self.batched_tokens is not None:
            order, step = f"up to {self.batched_tokens:,} tokens of prompts at once", "step"
        return [
            ("prefill_tokens_per_second", f"prefill of {speed:,.0f} tokens/s a replica"),
            ("batched_tokens", f"prefill takes {order}"),
            ("prefill_overhead_seconds", f"{overhead:g} ms of prefill beside that for each {step}"),
            ("decode_seconds_per_token",
             (f"decode of {decode:g} ms a token, which holds memory, is held up by prefill on the "
              "same replica, and does not slow it")),
            ("most_running",
             (f"at most {counted(self.most_running, 'request runs', 'requests run')} at once, "
              "each with memory for all of its prompt and answer")),
            ("summary_lag_seconds", self._knowledge()),
        ]  # fmt: skip

    def _knowledge(self) -> str:
        if self.summary_lag_seconds is None:
            return "routers guess what is cached from what they sent there"
        if self.summary_lag_seconds:
            return f"routers know what is cached {self.summary_lag_seconds:g} s late"
        return "routers know what is cached"


@dataclass(frozen=True, kw_only=True)
class Tier:
    """Memory below the device's or below another tier: what is lost above goes there and can come
    back to the device.

    `capacity_blocks`: of each replica, or of all where `is_shared`. `tokens_per_second`: at which
    KV comes back, `latency_seconds` before the first. `writes_through`: every block is written as
    soon as it is computed, and not when it is lost above. `overlaps`: loading and computing go on
    at once.
    """

    name: str
    capacity_blocks: int
    tokens_per_second: float
    latency_seconds: float = 0.0
    is_shared: bool = False
    writes_through: bool = False
    overlaps: bool = False

    def __post_init__(self) -> None:
        if self.capacity_blocks < 0 or self.tokens_per_second <= 0 or self.latency_seconds < 0:
            raise ValueError("a tier needs a speed above 0, and no size or latency below 0")

    def words(self) -> str:
        """What is assumed of it."""
        whose = "all replicas" if self.is_shared else "each replica"
        written = "when they are computed" if self.writes_through else "when they are lost above"
        loaded = "while the rest is computed" if self.overlaps else "before the rest is computed"
        return (
            f"{self.name} tier of {counted(self.capacity_blocks, 'block')} for {whose}, written "
            f"{written}, "
            f"loaded at {self.tokens_per_second:,.0f} tokens/s after "
            f"{self.latency_seconds * 1e3:g} ms, {loaded}"
        )


# What a host tier that an arm adds is like where nothing tells, but for its size.
USUAL_HOST = Tier(name="host", capacity_blocks=0, tokens_per_second=200_000.0)
