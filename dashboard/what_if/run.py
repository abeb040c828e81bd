"""What if: the question put to the traffic, once for all who ask the same."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import streamlit as st

from dashboard.answers import table
from dashboard.figures.rows import Row
from dashboard.what_if.choices import Asked
from replay.rules import RULES

if TYPE_CHECKING:
    from replay.arms import Arm
    from replay.experiment import Experiment
    from replay.recorded import Recorded
    from replay.recorded_rows import RecordedRows
    from replay.setting import Setting


@dataclass(frozen=True)
class Replayed:
    """What came out. `words`: what was replayed; `left_out`: arms that could not be, and why."""

    experiment: "Experiment"
    model: str | None
    curve: list[Row]
    words: str
    left_out: list[str]


@st.cache_data(ttl=timedelta(hours=1), max_entries=20, show_spinner=False)
def replayed(asked: Asked) -> Replayed | None:
    """Replay a window; None where none of its requests has a chain of blocks of tokens."""
    # Compiled code, which a page that only asks does not need.
    from dashboard.replayed.rows import curve_rows  # noqa: PLC0415
    from replay.curve import curve_of_replicas  # noqa: PLC0415
    from replay.experiment import experiment  # noqa: PLC0415
    from replay.recorded_rows import recorded_rows  # noqa: PLC0415

    params = {**dict(asked.window), "model": asked.model}
    found = recorded_rows(table("request_chains", params), asked.model)
    if found is None:
        return None
    recorded = _with_mended(found, asked.arms).of_engine_blocks(asked.block_tokens)
    setting, left_out = _allowed(_setting(asked, recorded), asked.arms, recorded)
    curve = curve_of_replicas(recorded.prompts, setting.rule, asked.replicas)
    return Replayed(
        experiment(recorded, setting),
        recorded.model,
        curve_rows(curve, recorded.prompts.block_tokens, setting.capacity_blocks),
        found.words(),
        left_out,
    )


def _with_mended(found: "RecordedRows", arms: tuple[str, ...]) -> "Recorded":
    """With the layout mended only where it was asked for, as findings take some seconds."""
    from replay.mended import with_mended  # noqa: PLC0415 - compiled code

    wanted = any("mended" in arm.split("+") for arm in arms)
    return with_mended(found.recorded, found.table) if wanted else found.recorded


def _setting(asked: Asked, recorded: "Recorded") -> "Setting":
    from replay.arms import PLAIN  # noqa: PLC0415 - compiled code
    from replay.routers import Router  # noqa: PLC0415
    from replay.setting import Setting  # noqa: PLC0415

    block, known = recorded.prompts.block_tokens, asked.known
    return Setting(
        arms=(),
        rule=RULES["full"].of_blocks(block),
        replicas=asked.replicas,
        capacity_blocks=max(asked.capacity_tokens // block, 1),
        router=Router(name=PLAIN, counts_requests=asked.counts_requests,
                      takes_turns=asked.takes_turns),
        clock=replace(
            known.clock(),
            prefill_tokens_per_second=asked.prefill_tokens_per_second,
            decode_seconds_per_token=asked.decode_seconds_per_token,
        ),
        tiers=known.known_tiers(block),
        host=known.added_host(),
        token_bytes=known.whole_token_bytes,
        has_sessions=recorded.sessions is not None,
    )  # fmt: skip


def _allowed(
    setting: "Setting", names: tuple[str, ...], recorded: "Recorded"
) -> tuple["Setting", list[str]]:
    """The setting with the arms that traffic and setting allow, and why others are left out."""
    from replay.arms import NotAnArm, arm_named  # noqa: PLC0415 - compiled code

    kept: list[Arm] = []
    left_out = []
    for name in names:
        try:
            arm = arm_named(name)
            replace(setting, arms=(arm,)).checked(recorded)
            kept.append(arm)
        except NotAnArm as error:
            left_out.append(str(error))
    return replace(setting, arms=tuple(kept)), left_out
