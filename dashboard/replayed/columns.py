"""The figures of an arm, in the order in which pages and documents show them."""

from dataclasses import dataclass, replace
from typing import Literal

from dashboard.figures.numbers import gib, percent, seconds, whole
from dashboard.figures.rows import Row, Rows, number
from dashboard.replayed.rows import gpu_seconds
from dashboard.replayed.words import number_of, unit
from replay.experiment import Experiment
from replay.gain_words import arm_row

Kind = Literal["bar", "seconds", "count", "rate", "factor", "gib"]


@dataclass(frozen=True)
class Figure:
    """One column: where in a row, its heading, how it is written and what it means."""

    source: str
    label: str
    kind: Kind
    meaning: str

    def text(self, row: Row) -> str:
        """A cell; "–" where the figure is not known."""
        value = number(row, self.source)
        match self.kind:
            case "bar":
                return percent(value)
            case "seconds":
                return seconds(value)
            case "gib":
                return gib(value)
            case "rate":
                return number_of(value)
            case "factor":
                return "–" if value is None else f"{value:.2f}"
            case _:
                return whole(value)


FIGURES = (
    Figure("token_hit_ratio", "token hit ratio", "bar", "Cached / prompt tokens."),
    Figure("ttft_p50_seconds", "TTFT p50", "seconds", "Time to first token, queue included."),
    Figure("ttft_p90_seconds", "p90", "seconds", "Of nine in ten."),
    Figure("ttft_p99_seconds", "p99", "seconds", "Of 99 in a hundred."),
    Figure("prefill_gpu_seconds", "GPU-seconds", "rate",
           "That all replicas are kept by prefill, times GPUs of each; a day where the requests "
           "took an hour at least."),
    Figure("imbalance_ratio", "busiest ÷ mean", "factor",
           "Computed tokens of the busiest replica / their mean."),
    Figure("evicted_blocks", "evicted blocks", "count", "Lost by the device to make room."),
    Figure("loaded_tokens", "tokens loaded", "count", "KV that came back from a tier below."),
    Figure("stored_tokens", "tokens stored", "count", "KV that was written to a tier below."),
    Figure("loaded_bytes", "loaded", "gib", "KV that came back from a tier below."),
    Figure("stored_bytes", "stored", "gib", "KV that was written to a tier below."),
    Figure("refused_requests", "refused", "count",
           "Larger than a replica's memory: in no other figure."),
)  # fmt: skip


def arm_rows(found: Experiment, gpus: int) -> list[Row]:
    """A row an arm. What moved between tiers is in bytes where those of a token are known."""
    size = found.setting.token_bytes
    rows: list[Row] = []
    for each in found.results:
        row = arm_row(each, gpus)
        if each.prefill_seconds is not None:
            row["prefill_gpu_seconds"] = gpu_seconds(found, gpus, each.prefill_seconds)
        if size is not None:
            del row["loaded_tokens"], row["stored_tokens"]
            row["loaded_bytes"] = each.loaded_tokens * size
            row["stored_bytes"] = each.stored_tokens * size
        rows.append(row)
    return rows


def told(found: Experiment, rows: Rows) -> list[Figure]:
    """Those of which some arm has anything."""
    known = [each for each in FIGURES if any(number(row, each.source) for row in rows)]
    return [replace(each, label=unit(found)) if each.source == "prefill_gpu_seconds" else each
            for each in known]  # fmt: skip
