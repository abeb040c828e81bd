"""What a replay found: for people, or for programs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console

from prefixscope.consoles import terminal
from prefixscope.tables import Column, formatter, print_rows, printable
from replay import experiment_json
from replay.arms import MENDED
from replay.counted import counted
from replay.experiment_json import all_words
from replay.gain_words import a_day, amount, arm_row, days_told, group_row

if TYPE_CHECKING:
    from replay.experiment import Experiment
    from replay.recorded import Recorded

_GIB = 1 << 30


@dataclass(frozen=True)
class Told:
    """An experiment and what it is of: `name` and `words` of the traffic, `sources` of figures that
    a store told, `gpus` of a replica."""

    found: "Experiment"
    recorded: "Recorded"
    name: str
    words: str
    sources: list[str]
    gpus: int


def as_json(told: Told) -> dict[str, object]:
    """As programs read it."""
    return experiment_json.as_json(told.found, told.gpus, told.words, told.sources)


def as_html(told: Told) -> bytes:
    """One file that needs nothing else."""
    from dashboard.replayed.document import Subject, render  # noqa: PLC0415
    from dashboard.replayed.rows import curve_rows  # noqa: PLC0415
    from replay.curve import curve_of_replicas  # noqa: PLC0415

    setting, prompts = told.found.setting, told.recorded.prompts
    curve = curve_of_replicas(
        prompts, setting.rule, setting.replicas, min(setting.warm_up_requests, len(prompts))
    )
    rows = curve_rows(curve, prompts.block_tokens, setting.capacity_blocks)
    subject = Subject(_short(told.name), [told.words], told.sources)
    return render(told.found, told.gpus, subject, rows)


def _short(name: str) -> str:
    """A file without its folders; an address as it is."""
    return name if "://" in name else name.rsplit("/", 1)[-1]


def _factor(value: object) -> str:
    return "–" if not isinstance(value, float) else f"{value:.2f}"


def _amount(value: object) -> str:
    return amount(value) if isinstance(value, float) else "–"


def _gib(value: object) -> str:
    return f"{value / _GIB:,.2f}" if isinstance(value, int) else "–"


_PREFILL = "prefill_gpu_seconds"
_TIMES: tuple[Column, ...] = (
    ("TTFT p50 s", "ttft_p50_seconds", formatter("seconds")),
    ("p90", "ttft_p90_seconds", formatter("seconds")),
    ("p99", "ttft_p99_seconds", formatter("seconds")),
    ("mean", "ttft_mean_seconds", formatter("seconds")),
    ("GPU-seconds of prefill", _PREFILL, _amount),
)
_COLUMNS: tuple[Column, ...] = (
    ("arm", "arm", formatter("arm")),
    ("token hit ratio", "token_hit_ratio", formatter("token_hit_ratio")),
    *_TIMES,
    ("busiest ÷ mean replica", "imbalance_ratio", _factor),
    ("evicted blocks", "evicted_blocks", formatter("blocks")),
    ("tokens from tiers below", "loaded_tokens", formatter("tokens")),
    ("tokens to tiers below", "stored_tokens", formatter("tokens")),
    ("GiB from tiers", "loaded_bytes", _gib),
    ("GiB to tiers", "stored_bytes", _gib),
    ("refused", "refused_requests", formatter("requests")),
)
_GROUP_COLUMNS: tuple[Column, ...] = (
    ("arm", "arm", formatter("arm")),
    ("requests", "requests", formatter("requests")),
    ("prompt tokens", "prompt_tokens", formatter("tokens")),
    ("token hit ratio", "token_hit_ratio", formatter("token_hit_ratio")),
    *_TIMES,
    ("evicted blocks", "evicted_blocks", formatter("blocks")),
)


def print_experiment(told: Told, by: str | None) -> None:
    """The assumptions, a line an arm, those of each group, and what it comes to in sentences."""
    console, found = terminal(), told.found
    for source in told.sources:
        console.print(f"Begins with: {source}", style="dim", markup=False)
    for name, word in found.setting.named_words():
        how = "Given" if name in found.setting.given else "Assumed"
        console.print(f"{how}: {word}", style="dim", markup=False)
    if any(arm.traffic == MENDED for arm in found.arms):
        for word in found.mended_words:
            console.print(f"Mended: {printable(word)}", style="dim", markup=False)
    rows = [arm_row(each, told.gpus, found.setting.token_bytes) for each in found.results]
    _print_by_day(console, found, _shown(_COLUMNS, rows), rows)
    _print_limits(console, found)
    if by is not None:
        _print_groups(console, told, by)
    for line in all_words(found, told.gpus):
        console.print(line, markup=False)


def _shown(columns: tuple[Column, ...], rows: list[dict[str, object]]) -> list[Column]:
    """Those that tell something of any row, and the headline where it is 0 in all of them too."""
    return [
        each
        for each in columns
        if each[1] == "token_hit_ratio" or any(row.get(each[1]) not in (None, 0) for row in rows)
    ]


def _print_by_day(
    console: Console,
    found: "Experiment",
    columns: Sequence[Column],
    rows: Sequence[dict[str, object]],
) -> None:
    """Amounts in what the sentences beneath have them in: by the day where that can be told."""
    days = days_told(found) or 1.0
    told = [
        row | {_PREFILL: value / days} if isinstance(value := row.get(_PREFILL), float) else row
        for row in rows
    ]
    headed = [
        (f"{heading}{a_day(found)}" if name == _PREFILL else heading, name, show)
        for heading, name, show in columns
    ]
    print_rows(console, headed, told)


def _print_limits(console: Console, found: "Experiment") -> None:
    """What is in no figure, and what no figure could exceed."""
    worst = max(found.results, key=lambda each: each.refused_requests)
    if refused := worst.refused_requests:
        is_same = all(each.refused_requests == refused for each in found.results)
        where = "" if is_same else f" in {worst.arm}, fewer in others"
        console.print(
            f"{refused:,} of {counted(refused + worst.requests, 'request')} "
            f"{'is' if refused == 1 else 'are'} larger than a replica's memory{where}: refused, "
            "and in no figure.",
            style="yellow",
        )
    if found.observed_ratio is not None:
        console.print(f"As it ran {found.observed_ratio:.2%} were cached.", style="dim")
    if found.bound_ratio is not None:
        console.print(
            f"No cache could do better than {found.bound_ratio:.2%} with requests as they were: one"
            " for all replicas that never loses a block.",
            style="dim",
        )


def _print_groups(console: Console, told: Told, by: str) -> None:
    groups = told.found.by.get(by)
    if groups is None:
        console.print(f"No request has a {by}.", style="yellow")
        return
    rows = [{by: each.group, **group_row(each, told.gpus)} for each in groups]
    columns: list[Column] = [(by, by, formatter(by)), *_shown(_GROUP_COLUMNS, rows)]
    console.print()
    _print_by_day(console, told.found, columns, rows)
    console.print()
