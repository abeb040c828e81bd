"""The figures of an arm, in the order in which pages and documents show them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from dashboard.figures.numbers import gib, percent, seconds, whole
from dashboard.figures.rows import Row, Rows, number
from dashboard.replayed.rows import gpu_seconds
from dashboard.replayed.words import number_of, unit
from replay.experiment import Experiment
from replay.gain_words import arm_row

Kind = Literal["bar", "seconds", "count", "rate", "factor", "gib"]

_LARGE = 100


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


_FIGURES = (
    Figure("token_hit_ratio", "token hit ratio", "bar", "Cached / prompt tokens."),
    Figure("ttft_p50_seconds", "TTFT p50", "seconds",
           "Half of the first tokens come within it, queue included."),
    Figure("ttft_p90_seconds", "p90", "seconds", "Nine in ten do."),
    Figure("ttft_p99_seconds", "p99", "seconds", "99 in a hundred do."),
    Figure("ttft_mean_seconds", "mean", "seconds",
           "TTFT on average; the router with the least is taken for the best."),
    Figure("prefill_gpu_seconds", "GPU-seconds", "rate",
           "That all replicas are kept by prefill, times GPUs of each; a day where the requests "
           "took an hour at least."),
    Figure("imbalance_ratio", "busiest ÷ mean", "factor",
           "Computed tokens of the busiest replica / their mean."),
    Figure("evicted_blocks", "evicted blocks", "count", "Lost by the device to make room."),
    Figure("refused_requests", "refused", "count",
           "Larger than a replica's memory: in no other figure."),
)  # fmt: skip


def arm_rows(found: Experiment, gpus: int) -> list[Row]:
    """A row an arm; GPU-seconds a day where that can be told, what moved by tier below."""
    rows: list[Row] = []
    for each in found.results:
        row = arm_row(each, gpus, found.setting.token_bytes)
        if each.prefill_seconds is not None:
            row["prefill_gpu_seconds"] = gpu_seconds(found, gpus, each.prefill_seconds)
        for tier, moved in each.moved.items():
            size = found.setting.token_bytes
            row[f"{tier}_loaded"] = moved.loaded_tokens * (size or 1)
            row[f"{tier}_stored"] = moved.stored_tokens * (size or 1)
        rows.append(row)
    return rows


def told(found: Experiment, rows: Rows) -> list[Figure]:
    """Those of which some arm has anything: of KV that moved bytes, where a token's are known."""
    figures = [*_FIGURES[:-1], *_moved(found), _FIGURES[-1]]
    known = [each for each in figures if any(number(row, each.source) for row in rows)]
    return [_of_amounts(found, each, rows) if each.kind == "rate" else each for each in known]


def _of_amounts(found: Experiment, figure: Figure, rows: Rows) -> Figure:
    kind = amount_kind([number(row, figure.source) for row in rows])
    return replace(figure, label=unit(found), kind=kind)


def amount_kind(values: Iterable[float | None]) -> Kind:
    """How a column of amounts is written: with digits behind the point where all are small."""
    return "count" if any(abs(value or 0.0) >= _LARGE for value in values) else "rate"


def _moved(found: Experiment) -> list[Figure]:
    tiers = dict.fromkeys(tier for each in found.results for tier in each.moved)
    kind: Kind = "count" if found.setting.token_bytes is None else "gib"
    what = "tokens of KV" if kind == "count" else "KV"
    return [
        figure
        for tier in tiers
        for figure in (
            Figure(f"{tier}_loaded", f"{tier} loaded", kind, f"{what} that came back from there."),
            Figure(f"{tier}_stored", f"{tier} stored", kind, f"{what} that was written there."),
        )
    ]
