"""The command line shows the same sentence as the question, from a log by the ordinary path."""

import json
from pathlib import Path

from tests.unit_cli.conftest import RunCli
from tests.unit_offload.simulation import Replica, Traffic, simulate


def test_sentence_and_figures_of_the_verdict(cli: RunCli, tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    rows = simulate(Replica(load_seconds_per_token=400e-6), Traffic(count=1200))
    log.write_text("".join(
        json.dumps({**row, "ts": row["ts"].isoformat() + "Z", "request_id": f"r{number}"}) + "\n"
        for number, row in enumerate(rows)
    ))  # fmt: skip
    assert cli("ingest", log, "--store", tmp_path / "store").status == 0
    asked = ("query", "offload_verdict", "--store", tmp_path / "store")
    (row,) = json.loads(cli(*asked, "--output", "json").out)
    assert row["verdict"] == "does not pay"
    assert row["sentence"].startswith("does not pay: requests served from host memory had their")
    assert row["sentence"] in cli(*asked).out
    refused = cli(*asked, "--param", "ranks=0")
    assert (refused.status, "ranks" in refused.err) == (2, True)
