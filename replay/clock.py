"""How long things take in a replay: every assumption, so that it can be printed with the result."""

from dataclasses import dataclass

MICROSECOND = 1e-6


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Times of one replica.

    `prefill_tokens_per_second`: computed prompt tokens, one prompt after the other.
    `prefill_overhead_seconds`: of every prefill, whatever its length. `decode_seconds_per_token`:
    while it lasts, a request holds its memory. `most_running`: requests at once (vLLM's
    max_num_seqs). `summary_lag_seconds`: how late a router learns what a cache holds; None: it is
    never told, and takes for held whatever it sent there (an approximate tree).
    """

    prefill_tokens_per_second: float
    prefill_overhead_seconds: float = 0.0
    decode_seconds_per_token: float = 0.0
    most_running: int = 256
    summary_lag_seconds: float | None = 0.0

    def __post_init__(self) -> None:
        if self.prefill_tokens_per_second <= 0 or self.most_running < 1:
            raise ValueError("prefill speed must be above 0, and most_running at least 1")
        if self.prefill_overhead_seconds < 0 or self.decode_seconds_per_token < 0:
            raise ValueError("times must not be below 0")

    def words(self) -> list[str]:
        """What is assumed, a line each."""
        speed, overhead = self.prefill_tokens_per_second, self.prefill_overhead_seconds * 1e3
        decode = self.decode_seconds_per_token * 1e3
        return [
            (f"prefill of {speed:,.0f} tokens/s a replica, one prompt after the other, "
            f"{overhead:g} ms beside that for each"),
            f"decode of {decode:g} ms a token, which holds memory and does not slow prefill",
            f"at most {self.most_running} requests run at once",
            self._knowledge(),
        ]  # fmt: skip

    def _knowledge(self) -> str:
        if self.summary_lag_seconds is None:
            return "routers guess what is cached from what they sent there"
        if self.summary_lag_seconds:
            return f"routers know what is cached {self.summary_lag_seconds:g} s late"
        return "routers know what is cached"


@dataclass(frozen=True, kw_only=True)
class Tier:
    """Memory below the device's: what it cannot keep goes there and can come back.

    `capacity_blocks`: of each replica, or of all where `is_shared`. `tokens_per_second`: at which
    KV comes back, `latency_seconds` before the first. `writes_through`: every block is written as
    soon as it is computed, not only when the device loses it. `overlaps`: loading and computing go
    on at once.
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
        written = "when they are computed" if self.writes_through else "when the device loses them"
        loaded = "while the rest is computed" if self.overlaps else "before the rest is computed"
        return (
            f"{self.name} tier of {self.capacity_blocks:,} blocks for {whose}, written {written}, "
            f"loaded at {self.tokens_per_second:,.0f} tokens/s after "
            f"{self.latency_seconds * 1e3:g} ms, {loaded}"
        )
