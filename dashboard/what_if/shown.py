"""What if: what came out, the answer first."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from json import dumps

import streamlit as st

from dashboard import page, tables
from dashboard.figures import what_if as figures
from dashboard.figures.numbers import span
from dashboard.figures.rows import Row
from dashboard.figures.safe import code_span, plain
from dashboard.replayed import words
from dashboard.replayed.columns import amount_kind, arm_rows, told
from dashboard.replayed.document import Subject, render
from dashboard.replayed.rows import (
    TTFT,
    Compared,
    GroupRow,
    at_capacity,
    compared,
    gain_steps,
    group_rows,
)
from dashboard.tables import Column
from dashboard.what_if.choices import Asked
from dashboard.what_if.run import Replayed
from replay.counted import counted
from replay.differences import PREFILL
from replay.experiment import Experiment
from replay.experiment_json import all_words, as_json

_UNITS = {"seconds": ", s", "gib": ", GiB"}


def show(asked: Asked, found: Replayed) -> None:
    """The answer, whose the gain is, every arm, and the rest by tab."""
    experiment = found.experiment
    st.markdown(f"#### {words.answer(experiment, asked.gpus)}")
    for line in [_replayed(asked, found), *words.beside(experiment), *found.left_out]:
        st.caption(line)
    _downloads(asked, found)
    _gain(experiment, asked.gpus)
    st.markdown("##### Every arm")
    rows = arm_rows(experiment, asked.gpus)
    page.chart(figures.arms(rows), "what-if-arms", "Arms side by side")
    tables.show(rows, _arm_columns(experiment, rows), "what-if", alt="Figures of every arm")
    for line in words.limits(experiment):
        st.caption(line)
    bodies: dict[str, Callable[[Asked, Replayed], None]] = {
        "Differences": _differences,
        **{f"By {by}": _by(by) for by in experiment.by},
        "More memory": _memory,
        "Assumed": _assumed,
    }
    for tab, body in zip(st.tabs(list(bodies)), bodies.values(), strict=True):
        with tab:
            body(asked, found)


def _replayed(asked: Asked, found: Replayed) -> str:
    since, until = _ends(asked)
    requests = max(each.requests + each.refused_requests for each in found.experiment.results)
    days = found.experiment.days
    within = f" within {span(timedelta(days=days))}" if days else ""
    return (f"{counted(requests, 'request')} of {code_span(found.model)}{within}, of the window "
            f"{since} to {until} UTC.")  # fmt: skip


def _ends(asked: Asked) -> list[str]:
    """Of the window that was replayed, in minutes."""
    return [moment[:16].replace("T", " ") for _, moment in sorted(asked.window)]


def _downloads(asked: Asked, found: Replayed) -> None:
    """The same as a file to pass on."""
    subject = Subject(_title(asked, found), [found.words], asked.sources)

    def html() -> bytes:
        return render(found.experiment, asked.gpus, subject, found.curve)

    def json() -> str:
        return dumps(as_json(found.experiment, asked.gpus, found.words, asked.sources), indent=2)

    with st.container(horizontal=True):
        st.download_button("Download as HTML", html, "what-if.html", "text/html", on_click="ignore")
        st.download_button("as JSON", json, "what-if.json", "application/json", on_click="ignore")


def _title(asked: Asked, found: Replayed) -> str:
    since, until = _ends(asked)
    return f"{found.model or 'requests'} from {since} to {until} UTC"


def _gain(found: Experiment, gpus: int) -> None:
    """In words, and as bars from caching off to the best arm."""
    lines, steps = all_words(found, gpus), gain_steps(found, gpus)
    if steps:
        st.markdown("##### What each change saves")
        page.chart(figures.gain(steps), "what-if-gain", "GPU-seconds of prefill by what saves them")
        st.caption(words.steps_words(found))
    _text(lines)


def _arm_columns(found: Experiment, rows: list[Row]) -> list[Column]:
    return [
        Column("arm", "arm", "text", meaning="What is tried; docs/what-if.md has the names.",
               pinned=True),
        *(Column(each.source, each.label + _UNITS.get(each.kind, ""), each.kind,
                 meaning=each.meaning)
          for each in told(found, rows)),
    ]  # fmt: skip


def _differences(asked: Asked, found: Replayed) -> None:
    rows = [_difference_row(each) for each in compared(found.experiment, asked.gpus)]
    if not rows:
        st.caption("Too few requests, or arms, to hold them against each other.")
        return
    headings = {PREFILL: words.unit(found.experiment)}
    headings |= {name: f"TTFT {name[5:8]}, s" for name in TTFT}
    columns = [
        Column("arm", "arm", "text", meaning="The one arm.", pinned=True),
        Column("base", "beside", "text", meaning="The other, which is taken away from it."),
        *(Column(name, heading, "text", meaning="The difference, and where it lies in 95 of 100 "
                 "resamples; ≈ 0 where none can be told.")
          for name, heading in headings.items()),
    ]  # fmt: skip
    tables.show(rows, columns, "what-if-differences", alt="Differences between arms")


def _difference_row(each: Compared) -> Row:
    cells = {}
    for name in (PREFILL, *TTFT):
        known = each.figures.get(name)
        vague = known is not None and not each.is_told(name) and known.low != known.high
        cells[name] = f"{'≈ 0: ' if vague else ''}{words.difference(known)}"
    return {"arm": each.arm, "base": each.base} | cells


def _by(by: str) -> Callable[[Asked, Replayed], None]:
    """Each template or tenant in two arms, one of which is chosen."""

    def shown(asked: Asked, found: Replayed) -> None:
        experiment = found.experiment
        base, best = words.base_arm(experiment), words.best_arm(experiment)
        if best is None:
            st.caption("There is no other arm to hold it against.")
            return
        others = [each.arm for each in experiment.results if each.arm != base]
        arm = st.selectbox(f"Beside {base}", others, others.index(best), key=f"what-if-{by}")
        rows = group_rows(experiment, by, arm, base, asked.gpus)
        tables.show([_group_row(each) for each in rows],
                    _group_columns(by, base, arm, _saved(experiment, rows)),
                    f"what-if-by-{by}", alt=f"Figures by {by} in two arms")  # fmt: skip

    return shown


def _group_row(each: GroupRow) -> Row:
    ratios, times, evicted = each.token_hit_ratios, each.ttft_p90_seconds, each.evicted_blocks
    return {
        "group": plain(each.group),
        "requests": each.base.requests,
        "prompt_tokens": each.base.prompt_tokens,
        "base_ratio": ratios[0], "arm_ratio": ratios[1],
        "base_seconds": times[0], "arm_seconds": times[1],
        "base_evicted": evicted[0], "arm_evicted": evicted[1],
        "saved": each.saved,
    }  # fmt: skip


def _saved(found: Experiment, rows: Sequence[GroupRow]) -> Column:
    kind = amount_kind(each.saved for each in rows)
    return Column("saved", f"saved, {words.unit(found)}", kind, meaning="Of prefill, by that arm.")


def _group_columns(by: str, base: str, arm: str, saved: Column) -> list[Column]:
    ratio, ttft = "Cached / prompt tokens in that arm.", "TTFT, queue included, of nine in ten."
    evicted = "Blocks that its requests had computed, lost to make room."
    return [
        Column(
            "group",
            by,
            "name",
            meaning="Those of most prompt tokens; the rest together.",
            pinned=True,
        ),
        Column("requests", "requests", "count", meaning="That were served."),
        Column("prompt_tokens", "prompt tokens", "count", meaning="Of these requests."),
        saved,
        Column("base_ratio", f"hit ratio, {base}", "bar", meaning=ratio),
        Column("arm_ratio", f"hit ratio, {arm}", "bar", meaning=ratio),
        Column("base_seconds", f"TTFT p90, {base}", "seconds", meaning=ttft),
        Column("arm_seconds", f"TTFT p90, {arm}", "seconds", meaning=ttft),
        Column("base_evicted", f"evicted, {base}", "count", meaning=evicted),
        Column("arm_evicted", f"evicted, {arm}", "count", meaning=evicted),
    ]


def _memory(_asked: Asked, found: Replayed) -> None:
    setting = found.experiment.setting
    size = (setting.capacity_blocks or 0) * (setting.rule.block_tokens or 1)
    figure = figures.capacity_curve(found.curve, at_capacity(found.curve, size))
    page.chart(figure, "what-if-curve", "Token hit ratio by capacity")
    st.caption(words.OF_CURVE)


def _assumed(asked: Asked, found: Replayed) -> None:
    """Every assumption, and where what was measured is from."""
    lines = [found.words, *found.experiment.setting.words(), words.gpus_words(asked.gpus)]
    _text(lines)
    if asked.sources:
        st.caption("Where these are from:")
        _text(asked.sources)
    if found.experiment.mended_words:
        st.caption("Of the layout:")
        _text(found.experiment.mended_words)


def _text(lines: Sequence[str]) -> None:
    """Lines that may hold names from outside, which Markdown would obey."""
    if lines:
        st.text("\n".join(f"• {line}" for line in lines))
