"""Traffic of one replica whose lower tier costs and saves what we say: the truth is known.

Nothing here is taken from the implementation: times are made, not estimated.
"""

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2026, 11, 30, 8, tzinfo=UTC).replace(tzinfo=None)
Row = dict[str, Any]
Chance = Callable[[bool], float]


@dataclass(frozen=True)
class Replica:
    """What its work takes, in seconds; `crowding` is the slowdown by each other running request."""

    base_seconds: float = 0.02
    prefill_seconds_per_token: float = 250e-6
    fixed_seconds_per_load: float = 0.0
    load_seconds_per_token: float = 50e-6
    crowding: float = 0.08
    noise: float = 0.08
    transfer_slowdown: float = 0.0

    def gain_seconds(self, tokens: int) -> float:
        """What a load of so many tokens saves on an idle replica; negative = it costs more."""
        computing = self.prefill_seconds_per_token * tokens
        return computing - self.fixed_seconds_per_load - self.load_seconds_per_token * tokens


@dataclass(frozen=True)
class Traffic:
    """`in_tier(busy)` is the chance that reusable KV left the device but is still below it; else
    it is gone and computed. A tenth is still on the device. `transfers` says at a moment whether
    the tier's transfers run."""

    count: int = 4000
    in_tier: Chance = lambda busy: 0.5
    tier: str = "host"
    shortest_tokens: int = 512
    longest_tokens: int = 8192
    transfers: Callable[[datetime], bool] = lambda moment: False


def simulate(replica: Replica, traffic: Traffic, seed: int = 1) -> list[Row]:
    """Rows of `requests`, in order of their start. Busy and idle times take turns."""
    chance = random.Random(seed)
    running: list[datetime] = []
    rows = []
    for started, busy in _starts(traffic.count, chance):
        while running and running[0] <= started:
            heapq.heappop(running)
        row, ended = _request(replica, traffic, chance, started, busy, len(running) + 1)
        heapq.heappush(running, ended)
        rows.append(row)
    return rows


def _starts(count: int, chance: random.Random) -> Iterator[tuple[datetime, bool]]:
    started = START
    for number in range(count):
        busy = number // 200 % 2 == 1
        started += timedelta(seconds=round(chance.expovariate(2.0 if busy else 0.25), 6))
        yield started, busy


def _request(
    replica: Replica,
    traffic: Traffic,
    chance: random.Random,
    started: datetime,
    busy: bool,
    running: int,
) -> tuple[Row, datetime]:
    spread = traffic.longest_tokens / traffic.shortest_tokens
    prompt = int(traffic.shortest_tokens * spread ** chance.random())
    reusable = int(prompt * chance.uniform(0.5, 0.95)) // 16 * 16
    device = reusable if chance.random() < 0.1 else 0
    lower = reusable if not device and chance.random() < traffic.in_tier(busy) else 0
    seconds = replica.base_seconds + replica.prefill_seconds_per_token * (prompt - device - lower)
    if lower:
        seconds += replica.fixed_seconds_per_load + replica.load_seconds_per_token * lower
    seconds *= 1 + replica.crowding * (running - 1)
    seconds *= chance.lognormvariate(0, replica.noise)
    if traffic.transfers(started) and not lower:
        seconds += replica.transfer_slowdown
    queue, decode = round(chance.expovariate(5), 6), chance.expovariate(0.5)
    ttft = round(queue + seconds, 6)
    tiers = {f"cached_{name}": 0 for name in ("host", "disk", "remote")}
    row = {
        "ts": started - timedelta(seconds=queue), "replica": "a", "model": "m",
        "prompt_tokens": prompt, "cached_tokens": device + lower, "cached_device": device,
        **tiers, f"cached_{traffic.tier}": lower,
        "queue_seconds": queue, "ttft_seconds": ttft, "ttft_point": "engine_arrival",
        "e2e_seconds": round(ttft + decode, 6),
    }  # fmt: skip
    return row, started + timedelta(seconds=row["e2e_seconds"] - queue)


def counters(
    rows: list[Row], load_seconds_per_token: float, store_seconds: float = 1.0
) -> list[Row]:
    """Engine samples of every minute the rows span: loads as the rows have them, evenly stored."""
    first, last = rows[0]["ts"], rows[-1]["ts"] + timedelta(seconds=60)
    minutes = int((last - first).total_seconds() // 60) + 1
    samples = []
    for number in range(minutes):
        since = first + timedelta(minutes=number)
        inside = [r for r in rows if since < r["ts"] <= since + timedelta(minutes=1)]
        tokens = sum(r["cached_host"] + r["cached_disk"] + r["cached_remote"] for r in inside)
        samples.append({
            "since": since, "ts": since + timedelta(minutes=1), "replica": "a", "model": "m",
            "offload_tokens": {"load/host": tokens, "store/host": 1000},
            "offload_seconds": {
                "load/host": tokens * load_seconds_per_token,
                "store/host": store_seconds / minutes,
            },
        })  # fmt: skip
    return samples
