"""A replay as one HTML file: the answer, whose the gain is, every arm, what is assumed. It needs no
network and no script to be read, and prints."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from dashboard.figures.numbers import UNKNOWN, percent, seconds, whole
from dashboard.figures.rows import Row, Rows, number
from dashboard.figures.safe import plain
from dashboard.replayed import charts, words
from dashboard.replayed.columns import arm_rows, told
from dashboard.replayed.rows import (
    TTFT,
    Compared,
    GroupRow,
    at_capacity,
    compared,
    gain_steps,
    group_rows,
    ratios_by,
    thinned,
)
from dashboard.report.html_parts import Column, document, quiet, section, table
from dashboard.report.markup import Markup, bdi, joined, tag
from dashboard.report.text import told as told_plainly
from replay.differences import PREFILL
from replay.experiment import Experiment
from replay.experiment_json import all_words

_CURVE_LINES, _ARMS_ACROSS = 12, 8


@dataclass(frozen=True)
class Subject:
    """What was replayed: `name` in the title, `lines` that say more of it, `sources` of what is
    assumed. All of it may hold names from outside."""

    name: str
    lines: Sequence[str] = ()
    sources: Sequence[str] = ()


def render(found: Experiment, gpus: int, subject: Subject, curve: Rows = ()) -> bytes:
    """The whole file, UTF-8; the same experiment gives the same bytes. `gpus`: of a replica.
    `curve`: of `curve_rows`, or none."""
    return document(
        _title(subject),
        _answer(found, gpus, subject),
        _gain(found, gpus),
        _arms(found, gpus),
        _differences(found, gpus),
        *(_groups(found, gpus, by) for by in found.by),
        _curve(found, curve),
        _assumed(found, gpus, subject),
        _meanings(found, gpus),
    )


def _title(subject: Subject) -> str:
    return f"What if: {plain(subject.name)}"


def _answer(found: Experiment, gpus: int, subject: Subject) -> Markup:
    return section(
        tag("h1", bdi(_title(subject))),
        *(tag("p", bdi(told_plainly(line)), class_="quiet") for line in subject.lines),
        quiet(words.QUESTION),
        tag("p", words.answer(found, gpus), class_="lead"),
        *(tag("p", line) for line in words.beside(found)),
    )


def _gain(found: Experiment, gpus: int) -> Markup | None:
    lines = all_words(found, gpus)
    if not lines:
        return None
    steps = gain_steps(found, gpus)
    return section(
        tag("h2", "What each change saves"),
        charts.gain(steps) if steps else None,
        quiet(words.steps_words(found)) if steps else None,
        _list(lines),
        class_="wide",
    )


def _arms(found: Experiment, gpus: int) -> Markup:
    rows = arm_rows(found, gpus)
    columns: list[Column[Row]] = [Column("arm", lambda row: _arm(str(row["arm"])), is_number=False)]
    columns += [Column(figure.label, figure.text) for figure in told(found, rows)]
    return section(
        tag("h2", "Every arm"),
        charts.arms(rows),
        table("In figures", columns, rows),
        *(quiet(line) for line in words.limits(found)),
        class_="wide",
    )


def _differences(found: Experiment, gpus: int) -> Markup | None:
    rows = compared(found, gpus)
    if not rows:
        return None
    headings = (PREFILL, words.unit(found)), *((name, f"TTFT {name[5:8]}, s") for name in TTFT)
    columns: list[Column[Compared]] = [
        Column("arm", lambda row: _arm(row.arm), is_number=False),
        Column("beside", lambda row: _arm(row.base), is_number=False),
        *(Column(heading, _difference_of(figure)) for figure, heading in headings),
    ]
    return section(
        tag("h2", "Differences"),
        table("Arm less the one beside it", columns, rows),
        quiet(words.HOW_TOLD),
        class_="wide",
    )


def _arm(name: str) -> Markup:
    """A name of an arm in a cell, which its narrowness must not break."""
    return tag("span", name, class_="whole")


def _difference_of(figure: str) -> Callable[[Compared], Markup | str]:
    """A cell, in bold where the difference can be told."""

    def cell(row: Compared) -> Markup | str:
        known = row.figures.get(figure)
        if known is None:
            return UNKNOWN
        change, low, high = map(words.signed, (known.change, known.low, known.high))
        return joined(
            tag("strong", change) if row.is_told(figure) else change,
            tag("span", f"{low} to {high}", class_="between"),
        )

    return cell


def _groups(found: Experiment, gpus: int, by: str) -> Markup | None:
    """Each template or tenant in the base and in the best arm, and what it finds in every arm."""
    base, best = words.base_arm(found), words.best_arm(found)
    rows = [] if best is None else group_rows(found, by, best, base, gpus)
    if not rows:
        return None
    return section(
        tag("h2", f"By {by}"),
        table(f"{base} → {best}", _group_columns(found, by), rows),
        *_ratios(found, by),
        class_="wide",
    )


def _group_columns(found: Experiment, by: str) -> list[Column[GroupRow]]:
    columns: list[Column[GroupRow]] = [
        Column(by, lambda row: bdi(plain(row.group)), is_number=False),
        Column("requests", lambda row: whole(row.base.requests)),
        Column("prompt tokens", lambda row: whole(row.base.prompt_tokens)),
        Column("token hit ratio", lambda row: " → ".join(map(percent, row.token_hit_ratios))),
        Column("evicted blocks", lambda row: " → ".join(map(whole, row.evicted_blocks))),
    ]
    if found.setting.clock is not None:
        columns += [
            Column("TTFT p90", lambda row: " → ".join(map(seconds, row.ttft_p90_seconds))),
            Column(f"saved, {words.unit(found)}", lambda row: words.number_of(row.saved)),
        ]
    return columns


def _ratios(found: Experiment, by: str) -> list[Markup]:
    """What each group finds in every arm, some arms a table, so that each fits a page."""
    rows, arms = ratios_by(found, by), [each.arm for each in found.results]
    tables = -(-len(arms) // _ARMS_ACROSS)
    across = -(-len(arms) // tables)
    made = []
    for first in range(0, len(arms), across):
        columns: list[Column[Row]] = [
            Column(by, lambda row: bdi(plain(row["group"])), is_number=False),
            *(Column(arm, partial(_ratio, arm)) for arm in arms[first : first + across]),
        ]
        made.append(table(f"Token hit ratio by {by} and arm", columns, rows))
    return made


def _ratio(arm: str, row: Row) -> str:
    return percent(number(row, arm))


def _curve(found: Experiment, rows: Rows) -> Markup | None:
    if not rows:
        return None
    setting = found.setting
    capacity = (setting.capacity_blocks or 0) * (setting.rule.block_tokens or 1)
    columns: list[Column[Row]] = [
        Column("tokens of KV a replica", lambda row: whole(number(row, "capacity_tokens"))),
        Column("token hit ratio", lambda row: percent(number(row, "token_hit_ratio"))),
    ]
    return section(
        tag("h2", "What more memory would win"),
        charts.curve(rows, at_capacity(rows, capacity)),
        quiet(words.OF_CURVE),
        table("In figures", columns, thinned(rows, _CURVE_LINES)),
        class_="wide",
    )


def _assumed(found: Experiment, gpus: int, subject: Subject) -> Markup:
    """Every assumption, and where the figures in it are from."""
    parts = [_list([*found.setting.words(), words.gpus_words(gpus)])]
    if subject.sources:
        parts += [quiet("Where these are from:"), _list(subject.sources)]
    if found.mended_words:
        parts += [quiet("Of the layout of prompts:"), _list(found.mended_words)]
    return section(tag("h2", "Assumed"), *parts)


def _list(lines: Sequence[str]) -> Markup:
    """Lines that may hold names from outside."""
    return tag("ul", *(tag("li", bdi(told_plainly(line))) for line in lines))


def _meanings(found: Experiment, gpus: int) -> Markup:
    """Of the figures that stand above."""
    pairs = [
        part for each in told(found, arm_rows(found, gpus))
        for part in (tag("dt", each.label), tag("dd", each.meaning))
    ]  # fmt: skip
    return section(tag("h2", "What the figures mean"), tag("dl", *pairs))
