"""What if: the window's own traffic once more, caching off, on, and behind other routers."""

from datetime import timedelta
from typing import Any

import numpy as np
import streamlit as st

from dashboard import page, tables, what_if
from dashboard.answers import Answers, table
from dashboard.figures import what_if as figures
from dashboard.figures.numbers import percent
from dashboard.figures.rows import Row, number
from dashboard.figures.safe import code_span
from dashboard.tables import Column
from dashboard.words import purpose
from replay.calibration import Calibration
from replay.hashes import HASH_GRAIN_TOKENS
from replay.recorded_rows import recorded_rows
from replay.rules import RULES

_Window = tuple[tuple[str, str], ...]
# What caching saves, and the router with the soonest first tokens.
_IN_BOLD = 2
_ARMS = ("off", "round-robin", "least-loaded", "sticky", "bounded-load", "scored")
_STEP_HINT = ("Rows of this window carry no chains of block hashes. One step adds them: put the "
              "tap before the engine, or send token ids or prompts with the log.")  # fmt: skip
_COLUMNS = (
    Column("arm", "arm", "text", meaning="Who gets which request; off: caching is off."),
    Column("token_hit_ratio", "token hit ratio", "bar",
           meaning="Cached / prompt tokens of the requests replayed."),
    Column("ttft_p50_seconds", "TTFT p50, s", "seconds", meaning="Queue included."),
    Column("ttft_p90_seconds", "p90", "seconds", meaning="Queue included."),
    Column("ttft_p99_seconds", "p99", "seconds", meaning="Queue included."),
    Column("prefill_gpu_seconds", "GPU-seconds of prefill", "count",
           meaning="That all replicas were kept by prefill, times GPUs of each."),
    Column("imbalance_ratio", "busiest ÷ mean", "factor",
           meaning="Computed tokens of the busiest replica / their mean."),
    Column("evicted_blocks", "evicted blocks", "count", meaning="Lost to make room."),
    Column("refused_requests", "refused", "count",
           meaning="Larger than a replica's memory: in no other figure."),
)  # fmt: skip


def body(answers: Answers) -> None:
    """The setting with what the store says of it, a button, and what came out."""
    window = {"since": answers.window.since, "until": answers.window.until}
    found = what_if.replayed_model(window)
    model, count = found.get("model"), int(number(found, "hashes") or 0)
    st.caption(f"The requests of this window, replayed: of the model with most prompt tokens, "
               f"whatever is chosen above. {page.window_words(answers)} {count:,} hashes of "
               "blocks.")  # fmt: skip
    if not count:
        st.info(_STEP_HINT)
        return
    if count > what_if.MOST_HASHES:
        st.info(f"At most {what_if.MOST_HASHES:,} hashes are replayed here: choose a shorter "
                "window, or `prefixscope replay --since …`.")  # fmt: skip
        return
    known = what_if.measured(window, model)
    moments = tuple(sorted((name, str(moment)) for name, moment in window.items()))
    asked_for = _form(known, moments, model)
    if asked_for is None:
        return
    with st.spinner("Replaying … (the first time its code is compiled, which takes some seconds)"):
        answer = _replayed(*asked_for)
    if answer is None:
        st.info(_STEP_HINT)
        return
    _show(answer)


def _form(
    known: Calibration, window: _Window, model: str | None
) -> tuple[_Window, tuple[Any, ...]] | None:
    """The window and the setting of when the button was pressed: a live window moves on, and what
    was asked is not replayed again every few seconds."""
    with st.form("what-if", border=False):
        first, second, third, fourth, fifth, sixth = st.columns(6)
        most = what_if.MOST_REPLICAS
        replicas = first.number_input("Replicas", 1, most, min(int(known.replicas.value), most))
        room, size = known.capacity_tokens, known.block_tokens
        capacity = second.number_input(
            "KV tokens a replica", 1, None,
            int(room.value) if room else what_if.USUAL_CAPACITY_TOKENS, step=10_000,
        )  # fmt: skip
        speed = third.number_input(
            "Prefill tokens/s", 1, None, max(int(known.prefill_tokens_per_second.value), 1)
        )
        decode = fourth.number_input(
            "Decode ms a token", 0, None, round(known.decode_seconds_per_token.value * 1e3)
        )
        block = sixth.number_input(
            "Block, tokens", 1, None, int(size.value) if size else HASH_GRAIN_TOKENS
        )
        gpus = fifth.number_input("GPUs a replica", 1, 64, 1)
        arms = st.multiselect("Arms", _all_arms(), list(_ARMS))
        st.caption("; ".join(known.words()) + ".")
        pressed = st.form_submit_button("Replay this window", type="primary")
    if pressed:
        setting = (
            model, int(replicas), int(capacity), int(block), float(speed),
            known.prefill_overhead_seconds.value, float(decode), int(gpus), tuple(arms),
        )  # fmt: skip
        st.session_state["what-if-asked"] = (window, setting) if arms else None
    asked_for: tuple[_Window, tuple[Any, ...]] | None = st.session_state.get("what-if-asked")
    return asked_for


def _all_arms() -> list[str]:
    return [*_ARMS, "random", "longest-prefix"]


@st.cache_data(ttl=timedelta(hours=1), max_entries=20, show_spinner=False)
def _replayed(window: _Window, setting: tuple[Any, ...]) -> dict[str, Any] | None:
    """Figures as plain rows, shared by all who ask the same."""
    from replay.arms import arm_named  # noqa: PLC0415 - what follows is compiled code
    from replay.clock import Clock  # noqa: PLC0415
    from replay.curve import curve_of_replicas  # noqa: PLC0415
    from replay.experiment import experiment  # noqa: PLC0415
    from replay.gain_words import arm_row, gain_words  # noqa: PLC0415
    from replay.setting import Setting  # noqa: PLC0415

    model, replicas, capacity_tokens, block, speed, overhead, decode, gpus, arms = setting
    rows = recorded_rows(table("request_chains", {**dict(window), "model": model}), model)
    if rows is None:
        return None
    told = rows.recorded
    if block > told.prompts.block_tokens and block % told.prompts.block_tokens == 0:
        told = told.of_blocks(block)
    prompts = told.prompts
    rule = RULES["full"].of_blocks(prompts.block_tokens)
    clock = Clock(prefill_tokens_per_second=speed, prefill_overhead_seconds=overhead,
                  decode_seconds_per_token=decode / 1e3)  # fmt: skip
    found = experiment(
        told,
        Setting(arms=tuple(map(arm_named, arms)), rule=rule, replicas=replicas, clock=clock,
                capacity_blocks=max(capacity_tokens // prompts.block_tokens, 1)),
    )  # fmt: skip
    curve = curve_of_replicas(prompts, rule, replicas)
    blocks = np.unique(np.geomspace(1, max(curve.enough_blocks, 1) * 1.2, 120).astype(int)).tolist()
    return {
        "rows": [arm_row(each, gpus) for each in found.results],
        "gain": gain_words(found, gpus),
        "assumed": found.setting.words(),
        "bound": found.bound_ratio,
        "requests": len(prompts),
        "model": told.model,
        "observed": told.token_hit_ratio,
        "window": " to ".join(moment[:16] for _, moment in sorted(window)),
        "capacity_tokens": capacity_tokens,
        "curve": [{"capacity_tokens": size * prompts.block_tokens,
                   "token_hit_ratio": curve.ratio_at(size)} for size in blocks],
    }  # fmt: skip


def _show(found: Row) -> None:
    st.markdown(f"As it ran, **{percent(found['observed'])}** of these prompt tokens were cached. "
                "Below, every arm as the model has it: hold the one that is your router's against "
                "that first.")  # fmt: skip
    for place, line in enumerate(found["gain"]):
        st.markdown(f"**{line}**" if place < _IN_BOLD else line)
    page.chart(figures.arms(found["rows"]), "what-if-arms", "Arms side by side")
    tables.show(found["rows"], _COLUMNS, "what-if", alt="Figures of every arm")
    bound = "" if found["bound"] is None else f" No cache could exceed {found['bound']:.1%}."
    st.caption(f"{found['requests']:,} requests of {code_span(found['model'])}, {found['window']} "
               f"UTC. Assumed: {'; '.join(found['assumed'])}.{bound}")  # fmt: skip
    st.markdown("##### What more memory would win", help=purpose("memory_split"))
    page.chart(figures.capacity_curve(found["curve"], found["capacity_tokens"]), "what-if-curve",
               "Token hit ratio by capacity")  # fmt: skip
    st.caption("By order of the requests, round robin: an upper bound at every capacity.")


page.show("what_if", body)
