"""`replay` of a log with the text of prompts, through the command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.unit_lint.test_lint_traffic import logged

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out


def test_replay_takes_the_log_as_it_is_and_mended(cli: Cli, tmp_path: Path) -> None:
    arms = ("--arms", "round-robin,mended", "--replicas", "1", "--untimed")
    done = cli("replay", logged(tmp_path), *arms)
    assert "12 requests with their text" in done.err
    assert "Mended: found 1: clock in system[0] at token " in done.out
    told = json.loads(cli("replay", logged(tmp_path), *arms, "--output", "json").out)
    recorded, mended = (each["token_hit_ratio"] for each in told["arms"])
    assert recorded == 0
    assert mended > 0.5
    assert len(told["mended"]) == 1


def test_options_of_traces_are_refused_for_a_log(cli: Cli, tmp_path: Path) -> None:
    done = cli("replay", logged(tmp_path), "--unit", "s")
    assert done.status == 2
    assert "--unit is for traces of hash ids" in done.err
