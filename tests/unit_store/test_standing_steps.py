"""What brings rows out of a standing reading costs steps: a few a batch, never thousands."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from exporter.sources.formats import format_named
from exporter.sources.lines import SCHEMA, LineBatch
from exporter.store.append import Stream, append
from exporter.store.standing import StandingReading
from exporter.store.store import Store
from tests.log_path import SMALL

ROWS = 50
LINES = {
    "ndjson": '{{"request_id": "{0}", "ts": "2026-03-02T12:00:00Z", "prompt_tokens": 9}}',
    "litellm": '{{"id": "{0}", "call_type": "acompletion", "startTime": 1772452800, '
    '"prompt_tokens": 9, "hidden_params": {{}}, "model_parameters": {{}}}}',
    "litellm_spend_logs": '{{"request_id": "{0}", "spend": 0.1, "call_type": "acompletion", '
    '"startTime": "2026-03-02T12:00:00Z", "prompt_tokens": 9}}',
}


@pytest.mark.parametrize("name", LINES)
def test_a_batch_comes_out_after_a_few_steps(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB holds small chunks back until it has a whole vector, but none that has lists."""
    steps = 0
    handed_on = StandingReading._lines

    def counted(self: StandingReading) -> Iterator[pa.RecordBatch]:
        nonlocal steps
        for lines in handed_on(self):
            steps += 1
            yield lines

    monkeypatch.setattr(StandingReading, "_lines", counted)
    store = Store.open(tmp_path / "store", SMALL)
    stream = Stream("log", format_named(name), "file")
    try:
        for number in range(4):
            texts = [LINES[name].format(f"{number}-{n}") for n in range(ROWS)]
            table = pa.table([range(ROWS), range(ROWS), texts], schema=SCHEMA)
            before = steps
            assert append(store, LineBatch(table, 0, 0), stream).accepted == ROWS
            if number > 1:  # it stands since the second batch
                assert 0 < steps - before < 10
    finally:
        store.close()
