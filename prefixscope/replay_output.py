"""What a replay found: for people, or for programs."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from prefixscope.tables import Column, formatter, print_rows, terminal
from replay.gain_words import arm_row, gain_words, group_row

if TYPE_CHECKING:
    from replay.experiment import Experiment

_DAY_SECONDS = 86_400


def as_json(found: "Experiment", gpus: int) -> dict[str, object]:
    """`arms` in the order asked for; figures that need a clock are left out without one."""
    setting = found.setting
    return {
        "assumptions": setting.words(),
        "replicas": setting.replicas,
        "capacity_blocks": setting.capacity_blocks,
        "block_tokens": setting.rule.block_tokens,
        "unlimited": found.bound_ratio,
        "arms": [arm_row(each, gpus) for each in found.results],
        "differences": [asdict(each) for each in found.differences],
        "gain": asdict(found.gain) if found.gain else None,
        "by": {name: [group_row(each, gpus) for each in rows] for name, rows in found.by.items()},
        "days": found.days,
    }


def _factor(value: object) -> str:
    return "–" if not isinstance(value, float) else f"{value:.2f}"


def _whole(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, float) else "–"


_COLUMNS: tuple[Column, ...] = (
    ("arm", "arm", formatter("arm")),
    ("token hit ratio", "token_hit_ratio", formatter("token_hit_ratio")),
    ("TTFT p50 s", "ttft_p50_seconds", formatter("seconds")),
    ("p90", "ttft_p90_seconds", formatter("seconds")),
    ("p99", "ttft_p99_seconds", formatter("seconds")),
    ("GPU-seconds of prefill", "prefill_gpu_seconds", _whole),
    ("busiest ÷ mean replica", "imbalance_ratio", _factor),
    ("evicted blocks", "evicted_blocks", formatter("blocks")),
    ("tokens from the tier below", "loaded_tokens", formatter("tokens")),
    ("refused", "refused_requests", formatter("requests")),
)  # fmt: skip


def print_experiment(found: "Experiment", gpus: int) -> None:
    """The assumptions, a line an arm, and what it comes to in a sentence."""
    console = terminal()
    for word in found.setting.words():
        console.print(f"Assumed: {word}", style="dim", markup=False)
    rows = [arm_row(each, gpus) for each in found.results]
    shown = [
        column for column in _COLUMNS
        if any(row.get(column[1]) not in (None, 0) for row in rows)
    ]  # fmt: skip
    print_rows(console, shown, rows)
    refused = max((each.refused_requests for each in found.results), default=0)
    if refused:
        whole = refused + max(each.requests for each in found.results)
        console.print(
            f"{refused:,} of {whole:,} requests are larger than a replica's memory: refused, and in"
            " no figure.",
            style="yellow",
        )
    if found.bound_ratio is not None:
        console.print(
            f"No cache could do better than {found.bound_ratio:.2%}: one for all replicas that"
            " never loses a block.",
            style="dim",
        )
    for line in gain_words(found, gpus):
        console.print(line, markup=False)
