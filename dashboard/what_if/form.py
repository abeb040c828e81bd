"""What if: a button, the setting with what the store says of it, and the arms."""

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from dashboard.what_if import traffic as store_traffic
from dashboard.what_if.choices import (
    HOST,
    LOADS,
    MEMORY,
    ROUTERS,
    TIES,
    USUAL_ROUTERS,
    Asked,
    Choices,
    Window,
)
from replay.calibration import Calibration, Figure
from replay.hashes import HASH_GRAIN_TOKENS

ASKED = "what-if-asked"
_MOST_FINDINGS = 5
_LIFETIMES = {60: "1 min", 300: "5 min", 900: "15 min", 3600: "1 h"}


@dataclass(frozen=True)
class Traffic:
    """What is to be replayed, and what could be tried with it. `merged_tokens`: what one scope for
    all would share, by the last audit; `findings`: what in the layout of prompts breaks reuse."""

    window: Window
    model: str
    hashes: int
    merged_tokens: int
    findings: Sequence[str]


@dataclass(frozen=True)
class _Setting:
    replicas: int
    capacity_tokens: int
    prefill_tokens_per_second: int
    decode_milliseconds: float
    gpus: int
    block_tokens: int


def form(known: Calibration, traffic: Traffic) -> Asked | None:
    """What was asked last, of this window or an earlier one; None before the first time."""
    with st.form("what-if", border=False):
        pressed = st.form_submit_button("Replay this window", type="primary")
        setting = _setting(known)
        st.caption(f"{'; '.join(known.words())}. Change what you know better.")
        with st.expander("Arms: what is tried"):
            choices = _choices(_begun(known), traffic)
    if pressed:
        st.session_state[ASKED] = _asked(known, traffic, setting, choices)
    asked: Asked | None = st.session_state.get(ASKED)
    return asked


def _asked(
    known: Calibration, traffic: Traffic, setting: _Setting, choices: Choices
) -> Asked | None:
    """None where nothing is to be tried."""
    arms = choices.arms()
    if not arms:
        return None
    fitting = store_traffic.newest_that_fits(dict(traffic.window), traffic.model, traffic.hashes)
    return Asked(
        window=tuple(sorted(fitting.items())),
        model=traffic.model,
        known=known,
        replicas=setting.replicas,
        capacity_tokens=setting.capacity_tokens,
        block_tokens=setting.block_tokens,
        prefill_tokens_per_second=setting.prefill_tokens_per_second,
        decode_seconds_per_token=setting.decode_milliseconds / 1e3,
        gpus=setting.gpus,
        arms=arms,
        counts_requests=choices.counts_requests,
        takes_turns=choices.takes_turns,
        sources=_sources(known, setting),
    )


def _sources(known: Calibration, setting: _Setting) -> tuple[str, ...]:
    """Where what was not changed is from."""
    begun = _begun(known)
    fields = ("replicas", "capacity_tokens", "block_tokens", "prefill_tokens_per_second")
    given = [name for name in fields if getattr(setting, name) != getattr(begun, name)]
    if setting.decode_milliseconds != begun.decode_milliseconds:
        given.append("decode_seconds_per_token")
    return tuple(known.words(given))


def _begun(known: Calibration) -> _Setting:
    """The setting as measured, within what can be replayed."""
    return _Setting(
        replicas=min(max(int(known.replicas.value), 1), store_traffic.MOST_REPLICAS),
        capacity_tokens=_value(known.capacity_tokens, store_traffic.USUAL_CAPACITY_TOKENS),
        prefill_tokens_per_second=max(round(known.prefill_tokens_per_second.value), 1),
        decode_milliseconds=round(known.decode_seconds_per_token.value * 1e3, 2),
        gpus=1,
        block_tokens=_value(known.block_tokens, HASH_GRAIN_TOKENS),
    )


def _value(figure: Figure | None, usual: int) -> int:
    return usual if figure is None else max(round(figure.value), 1)


def _setting(known: Calibration) -> _Setting:
    begun, columns = _begun(known), st.columns(6)
    return _Setting(
        int(columns[0].number_input("Replicas", 1, store_traffic.MOST_REPLICAS, begun.replicas)),
        int(columns[1].number_input("KV tokens a replica", 1, None, begun.capacity_tokens,
                                    step=10_000)),
        int(columns[2].number_input("Prefill tokens/s", 1, None, begun.prefill_tokens_per_second,
                                    step=1_000)),
        columns[3].number_input("Decode ms a token", 0.0, None, begun.decode_milliseconds),
        int(columns[4].number_input("GPUs a replica", 1, 64, begun.gpus)),
        int(columns[5].number_input("Block, tokens", 1, None, begun.block_tokens)),
    )  # fmt: skip


def _choices(begun: _Setting, traffic: Traffic) -> Choices:
    """The arms in groups; what nothing tells of this traffic is not offered. What is offered goes
    by what was measured: were it to change with the setting, choices would be lost."""
    routers = st.pills("Routing, and caching off", ROUTERS, selection_mode="multi",
                       default=USUAL_ROUTERS)  # fmt: skip
    left, right = st.columns(2)
    memory = left.pills("Memory", list(MEMORY), selection_mode="multi", default=[2.0],
                        format_func=MEMORY.__getitem__)  # fmt: skip
    host = right.pills("Host tier, times the device's memory", list(HOST), selection_mode="multi",
                       default=[1.0], format_func=HOST.__getitem__)  # fmt: skip
    replicas = left.pills("Replicas", _other_counts(begun.replicas), selection_mode="multi")
    blocks = right.pills("Block, tokens", _larger_blocks(begun.block_tokens),
                         selection_mode="multi")  # fmt: skip
    lifetimes = left.pills("Idle blocks are lost after", list(_LIFETIMES), selection_mode="multi",
                           format_func=_LIFETIMES.__getitem__)  # fmt: skip
    behind = right.selectbox("All but routing is tried behind", ROUTERS[1:],
                             help="Each such arm differs from this one in that alone.")  # fmt: skip
    load = left.selectbox("Routers count as load", list(LOADS), format_func=LOADS.__getitem__,
                          help="Most gateways go by requests under way.")  # fmt: skip
    ties = right.selectbox("Of replicas that are alike", list(TIES), format_func=TIES.__getitem__,
                           help="vllm-router takes the first.")  # fmt: skip
    return Choices(
        routers=tuple(routers), memory=tuple(memory), host=tuple(host), replicas=tuple(replicas),
        blocks=tuple(blocks), lifetimes=tuple(lifetimes), behind=behind,
        merged=_merged(traffic), mended=_mended(traffic), counts_requests=load, takes_turns=ties,
    )  # fmt: skip


def _other_counts(replicas: int) -> list[int]:
    """Half as many, one more and twice as many."""
    wanted = {replicas // 2, replicas + 1, replicas * 2}
    return sorted(
        count for count in wanted if 1 <= count <= store_traffic.MOST_REPLICAS and count != replicas
    )


def _larger_blocks(block_tokens: int) -> list[int]:
    return [block_tokens * times for times in (2, 4, 8)]


def _merged(traffic: Traffic) -> bool:
    """Isolation off is offered only where scopes have something in common."""
    if not traffic.merged_tokens:
        return False
    return st.checkbox(f"Isolation off: by the last audit one scope for all would share "
                       f"{traffic.merged_tokens:,} tokens more", value=True,
                       help="What isolation costs; not that it may go.")  # fmt: skip


def _mended(traffic: Traffic) -> bool:
    """A mended layout is offered only where there are findings, and says them."""
    if not traffic.findings:
        return False
    chosen = st.checkbox("Layout of prompts mended, where these come always:", value=True,
                         help="What that wins at best: nothing but hashes is known.")  # fmt: skip
    for finding in traffic.findings[:_MOST_FINDINGS]:
        st.text(finding)
    if len(traffic.findings) > _MOST_FINDINGS:
        st.text(f"and {len(traffic.findings) - _MOST_FINDINGS} more: page Why, Prompts")
    return chosen
