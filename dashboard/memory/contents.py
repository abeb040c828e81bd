"""Memory, tab Contents: what is resident, for whom, and how often over the replicas."""

import streamlit as st

from dashboard import columns, page, tables
from dashboard.answers import Answers
from dashboard.controls import choose
from dashboard.figures.contents import MOST_REPLICAS, held_by, overlap
from dashboard.figures.numbers import gib, whole
from dashboard.figures.rows import Row, Rows, moment, number
from dashboard.figures.safe import code_span
from dashboard.memory import events_note
from dashboard.tiles import tile
from dashboard.words import hover, purpose
from replay.counted import counted

DIMENSIONS = {"template": "template", "tenant": "tenant", "model": "model"}


def body(answers: Answers) -> None:
    """Copies, contents by template or tenant, and the prefixes that hold most."""
    streams = answers.rows("block_streams")
    if not streams and answers.state.get("events_last_ts") is None:
        events_note.explain("what the cache holds", answers)
        return
    events_note.uncertain(streams)
    by = choose("Group by", "contents", DIMENSIONS, "template")
    held = [_named(row, by) for row in answers.rows("resident_contents", by=by)
            if row.get("tokens")]  # fmt: skip
    copies = answers.rows("block_copies")
    _tiles(held, copies)
    st.caption(_as_of(held, streams))
    if not held:
        st.info("Nothing is resident, or events tell of no block yet.")
    else:
        _contents(answers, held, by)
    _copies(copies)


def _named(row: Row, dimension: str) -> Row:
    """What no request told is not known; elsewhere '' stands for "not given"."""
    return row if row.get(dimension) else {**row, dimension: "(not known)"}


def _as_of(held: Rows, streams: Rows) -> str:
    taken = next((row["as_of"] for row in held if row.get("as_of") is not None), None)
    snapshot = "" if taken is None else f"Snapshot of {moment(taken):%Y-%m-%d %H:%M:%S} UTC. "
    return f"{snapshot}{events_note.health(streams)}"


def _tiles(held: Rows, copies: Rows) -> None:
    fleet: Row = next(
        (r for r in copies if r.get("replica_b") is None and r.get("tier") == "device"), {}
    )
    models = len({row.get("model") for row in copies})
    of_model = f" (model {code_span(fleet.get('model'))})" if models > 1 else ""
    tokens = sum(number(row, "tokens") or 0.0 for row in held)
    known = bool(held) and all(number(row, "bytes") is not None for row in held)
    size = gib(sum(number(row, "bytes") or 0.0 for row in held)) if known else "unknown"
    no_size = "" if known else "**Unknown:** name the model under geometry in prefixscope.yml."
    extra = number(fleet, "extra_tokens")
    for column, (label, value, told) in zip(st.columns(4), (
        ("Resident, tokens", whole(tokens) if held else whole(None),
         hover("resident_contents", "tokens")),
        ("The same in GiB", size, hover("resident_contents", "bytes", no_size)),
        ("Copies per block", _ratio(number(fleet, "copies_ratio")),
         hover("block_copies", "copies_ratio", of_model)),
        ("Held more than once, tokens", whole(extra), hover("block_copies", "extra_tokens")),
    ), strict=True):  # fmt: skip
        with column:
            tile(label, value, told)


def _ratio(value: float | None) -> str:
    return whole(None) if value is None else f"{value:.2f}"


def _contents(answers: Answers, held: Rows, by: str) -> None:
    left, right = st.columns([1, 1.6])
    with left:
        st.markdown(f"##### Resident by {by}", help=purpose("resident_contents"))
        page.chart(held_by(held, by), f"contents-{by}", f"Resident tokens by {by}")
    with right:
        st.markdown("##### Prefixes that hold most", help=purpose("resident_prefixes"))
        found = answers.rows("resident_prefixes")
        prefixes = [_named(_named(row, "template"), "tenant") for row in found]
        if prefixes:
            shown = columns.sized(columns.PREFIXES, prefixes)
            tables.show(prefixes, shown, "prefixes", alt="Resident prefixes")
        else:
            st.caption("No prefix with these filters. Names come from requests with block hashes "
                       "(tap, token ids) or from events with token ids.")  # fmt: skip


def _copies(copies: Rows) -> None:
    pairs = [row for row in copies if row.get("replica_b") is not None]
    st.markdown("##### The same blocks on several replicas", help=purpose("block_copies"))
    if not pairs:
        st.caption("Only one replica's blocks are known by a hash that replicas share.")
        return
    left, right = st.columns([1, 1.6])
    with left:
        device = [row for row in pairs if row.get("tier") == "device"] or pairs
        page.chart(overlap(device), "overlap", "Share of blocks that pairs of replicas both hold")
        names = {str(r[side]) for r in device for side in ("replica_a", "replica_b")}
        if len(names) > MOST_REPLICAS:
            st.caption(f"The first {MOST_REPLICAS} of {counted(len(names), 'replica')} are drawn.")
    with right:
        tables.show(pairs, columns.COPIES, "copies", alt="Pairs of replicas")
