"""Rows of the store as recorded traffic: an answer of `request_chains`, made ready to replay."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.answers import following_turns, with_answers
from replay.chain_rows import (
    OF_TEXT,
    chains_of,
    codes,
    deployments_of,
    grains_of,
    lengths_of,
    taken,
    whole_of,
)
from replay.counted import counted
from replay.known_blocks import mixed, numbered, within
from replay.prefix_groups import scope_free
from replay.prompts import Prompts
from replay.recorded import Labels, Recorded
from replay.traffic import NOT_REPORTED, Chains, Names, Numbers

# Why a request is in no replay: it never reached the cache of an engine.
NOT_SERVED = ("response_cache", "no_generation")


@dataclass(frozen=True, kw_only=True)
class RecordedRows:
    """Recorded traffic, the rows that it is of in its order, and what of all rows is not in it:
    prompts without a chain of blocks of tokens, requests of other models, and those whose hashes
    stand for other lengths."""

    recorded: Recorded
    table: pa.Table
    chainless_requests: int
    other_model_requests: int
    other_grain_requests: int

    def words(self) -> str:
        """What is replayed and what is not, in a sentence without its full stop."""
        told = f"{counted(len(self.recorded.prompts), 'request')}"
        if self.recorded.model:
            told += f" of {self.recorded.model}"
        left_out = [
            f"{count:,} {why}"
            for count, why in (
                (self.other_model_requests, "of other models"),
                (self.chainless_requests, "without a chain of blocks"),
                (self.other_grain_requests, "of blocks of another size"),
            )
            if count
        ]
        parts = [told, *([f"left out: {', '.join(left_out)}"] if left_out else [])]
        named = self.recorded.prompts.answer_blocks
        if named is not None:
            parts.append(f"the next turn can find the answers of {int((named > 0).sum()):,}, as "
                         "what was cached of their template proves")  # fmt: skip
        return "; ".join(parts)


def recorded_rows(table: pa.Table, model: str | None = None) -> RecordedRows | None:
    """Requests in order of time; None where none has a chain of blocks of tokens (chunks of text
    are no blocks of a cache).

    One model, as another one runs on replicas of its own: the one named, else that of most prompt
    tokens with a chain. Hashes of another grain than most rows' cannot be compared with them.
    """
    grains = grains_of(table)
    served = ~pc.is_in(table["ineligible_reason"], pa.array(NOT_SERVED)).to_numpy()
    chained = served & (grains != 0) & (grains != OF_TEXT)
    if model is None:
        model = _largest_model(table["model"], whole_of(table["prompt_tokens"], 0) * chained)
    own = served & pc.equal(table["model"], model).to_numpy()
    chained &= own
    if not chained.any():
        return None
    grain = int(np.bincount(grains[chained]).argmax())
    kept = _in_time(table, np.flatnonzero(chained & (grains == grain)))
    return RecordedRows(
        recorded=_recorded(kept, grain),
        table=kept,
        chainless_requests=int((own & ~chained).sum()),
        other_model_requests=int((served & ~own).sum()),
        other_grain_requests=int(chained.sum()) - len(kept),
    )


def _largest_model(model: pa.ChunkedArray, tokens: Numbers) -> str:
    """Of the most tokens; of several the first by name, '' of no rows."""
    sums = (
        pa.table({"model": model, "tokens": tokens})
        .group_by("model")
        .aggregate([("tokens", "sum")])
    )
    order = [("tokens_sum", "descending"), ("model", "ascending")]
    names: list[str] = sums.sort_by(order)["model"].to_pylist()
    return names[0] if names else ""


def _in_time(table: pa.Table, rows: Numbers) -> pa.Table:
    """These rows in order of time, of one moment as they were written."""
    keys = [table[name].cast(pa.int64()).to_numpy()[rows] for name in ("position", "batch", "ts")]
    return taken(table, rows[np.lexsort(keys)])


def _recorded(rows: pa.Table, grain_tokens: int) -> Recorded:
    """Of rows of one model and grain in order of time, each with a chain."""
    chains = chains_of(rows, grain_tokens)
    deployment, scope = deployments_of(rows), codes(rows, "scope")
    space = deployment * (int(scope.max()) + 1) + scope
    moments = rows["ts"].cast(pa.int64()).to_numpy() / 1e6
    prompts = Prompts(
        arrived=moments - moments[0],
        prompt_tokens=whole_of(rows["prompt_tokens"], 0),
        output_tokens=whole_of(rows["output_tokens"], 0),
        blocks=numbered(_apart(chains.names, chains, space))[0],
        starts=chains.starts,
        block_tokens=grain_tokens,
    )
    sessions, template = _sessions(rows), _labels(rows["template"])
    turns = turns_of(rows, prompts, sessions, template)
    merged = _merged(prompts, chains, lengths_of(rows["content_hashes"]), deployment)
    return Recorded(
        prompts=with_answers(prompts, turns),
        merged=None if merged is None else with_answers(merged, turns),
        sessions=sessions,
        template=template,
        tenant=_labels(rows["tenant"]),
        scope=_labels(rows["scope"]),
        replica=_labels(rows["replica"]),
        model=rows["model"][0].as_py(),
        token_hit_ratio=_observed(rows),
    )


def turns_of(
    rows: pa.Table, prompts: Prompts, sessions: Names | None, template: Labels | None
) -> Numbers:
    """Which request sends the answer of each again, by what of its rows was cached; as
    `following_turns` has it."""
    kind = np.zeros(len(rows), np.int64) if template is None else template.codes
    sizes = whole_of(rows["block_size"], 0)
    unit = int(np.bincount(sizes[sizes > 0]).argmax()) if sizes.any() else prompts.block_tokens
    cached = whole_of(rows["cached_tokens"], NOT_REPORTED)
    return following_turns(prompts, sessions, kind, cached, unit)


def _apart(names: Names, chains: Chains, space: Numbers) -> Names:
    """Names made different by a number of their request."""
    return within(names, np.repeat(space, chains.lengths)) if space.any() else names


def _merged(
    prompts: Prompts, chains: Chains, contents: Numbers, deployment: Numbers
) -> Prompts | None:
    """The same by their contents alone; None where some row does not tell them."""
    if chains.contents is None or (contents != chains.lengths).any():
        return None
    own = replace(chains, contents=_apart(chains.contents, chains, deployment))
    return replace(prompts, blocks=numbered(scope_free(own).names)[0])


def _sessions(rows: pa.Table) -> Names | None:
    """A scattered number for each conversation; a request of an unknown one is one by itself."""
    told = _labels(rows["session"])
    if told is None:
        return None
    own = len(told.names) + np.arange(len(rows))
    return mixed(np.where(told.codes >= 0, told.codes, own).astype(np.uint64))


def _labels(column: pa.ChunkedArray) -> Labels | None:
    """None where no row has one."""
    values = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
    encoded = pc.dictionary_encode(values).combine_chunks()
    names: list[str] = encoded.dictionary.to_pylist()
    if not names:
        return None
    numbers: Numbers = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return Labels(numbers.astype(np.int64), names)


def _observed(rows: pa.Table) -> float | None:
    """Of requests that a cache could serve and whose cached tokens are known."""
    cached, prompt = (
        whole_of(rows["cached_tokens"], NOT_REPORTED),
        whole_of(rows["prompt_tokens"], 0),
    )
    known = (cached != NOT_REPORTED) & pc.equal(rows["ineligible_reason"], "").to_numpy()
    whole = int(prompt[known].sum())
    return int(cached[known].sum()) / whole if whole else None
