"""Recorded traffic of a store, or of the exporter that holds it, ready to be replayed."""

from dataclasses import dataclass, replace

from exporter.errors import PrefixscopeError
from prefixscope.chain_window import CHAINS_COME, Room, Window, ask_chains, free_bytes
from prefixscope.client import Answers
from replay.calibration import QUESTIONS, Calibration, calibration
from replay.mended import with_mended
from replay.recorded import Recorded
from replay.recorded_rows import RecordedRows, recorded_rows


@dataclass(frozen=True)
class StoreTraffic:
    """`name`: how to name where the requests are; `rows`: what was taken of them; `measured`: what
    the same window tells of speeds and memory."""

    name: str
    rows: RecordedRows
    measured: Calibration

    @property
    def recorded(self) -> Recorded:
        """The requests themselves."""
        return self.rows.recorded

    def with_mended(self) -> "StoreTraffic":
        """The same, and its prompts as if what layout findings name had been mended."""
        recorded = with_mended(self.rows.recorded, self.rows.table)
        return replace(self, rows=replace(self.rows, recorded=recorded))

    def words(self) -> str:
        """What is replayed, in one line."""
        prompts, cached = self.recorded.prompts, self.recorded.token_hit_ratio
        hours = float(prompts.arrived[-1]) / 3600
        told = "" if cached is None else f"; of their prompt tokens {cached:.1%} were cached"
        return f"{self.name}: {self.rows.words()}; within {hours:,.1f} h{told}"


def store_traffic(answers: Answers, window: Window, model: str | None = None) -> StoreTraffic:
    """The requests of a window that have chains, of one model: the one named, else that of most
    prompt tokens. PrefixscopeError where there are none, or no memory for them."""
    by_model = answers.ask("request_chain_counts", window.params() | {"by": "model"}).to_pylist()
    models = [row["model"] for row in by_model]
    if model is not None and models and model not in models:
        known = ", ".join(repr(name) for name in models)
        said = f"no request of this window is of the model {model!r}; known: {known}"
        raise PrefixscopeError(said)
    chosen = model if model is not None else next(iter(models), None)
    room = Room.of(answers, free_bytes())
    found = recorded_rows(ask_chains(answers, window, room, history=False, model=chosen).table)
    if found is None:
        raise PrefixscopeError(
            f"no request has a chain of blocks of tokens to replay; {CHAINS_COME}"
        )
    others = sum(row["prompt_requests"] for row in by_model if row["model"] != chosen)
    rows = replace(found, other_model_requests=others)
    return StoreTraffic(answers.where, rows, measured(answers, window, rows.recorded.model))


def measured(answers: Answers, window: Window, model: str | None) -> Calibration:
    """What a window tells of speeds and memory, of one model."""
    told = {
        name: answers.ask(name, window.params() | dict(params)).to_pylist()
        for name, params in QUESTIONS.items()
    }
    return calibration(told, model)
