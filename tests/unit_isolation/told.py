"""What the audit says of a recording of a real engine, checked against what is true by raw ids."""

import contextlib
import io
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefixscope.cli import main

GRAIN = 16


@dataclass(frozen=True)
class Told:
    """One answer as the client saw it. `own_tokens`: how much of the prompt its tenant had sent
    before, by the raw ids."""

    tenant: str
    prompt_tokens: int
    cached_tokens: int
    own_tokens: int


def recorded(folder: Path) -> list[Told]:
    lines = (folder / "told.jsonl").read_text().splitlines()
    return [Told(**json.loads(line)) for line in lines]


def attribute(*arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of the command."""
    out, err, status, before = io.StringIO(), io.StringIO(), 0, sys.argv
    sys.argv = ["prefixscope", "attribute", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as stopped:
        status = stopped.code if isinstance(stopped.code, int) else 1
    finally:
        sys.argv = before
    return status, out.getvalue(), err.getvalue()


def asked(*arguments: object) -> dict[str, Any]:
    """The answer for programs."""
    status, out, err = attribute(*arguments, "--output", "json")
    assert status == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def audited(log: Path, *options: str) -> dict[str, Any]:
    """What it says of scopes."""
    found: dict[str, Any] = asked(log, "--isolation", *options)["isolation"]
    return found


def check_told(found: dict[str, Any], told: Sequence[Told]) -> None:
    """The sums by tenant are the true ones where a tenant had sent nothing before, and bound them
    within a block of names where it had."""
    assert found["cannot_tell_tokens"] == 0
    pairs = {pair["tenants"]: pair for pair in found["pairs"]}
    for tenant in dict.fromkeys(one.tenant for one in told):
        own = [one for one in told if one.tenant == tenant]
        true = [max(one.cached_tokens - one.own_tokens, 0) for one in own]
        later = sum(tokens > 0 for tokens in true[1:])
        pair = pairs.get(tenant or "no salt")
        if pair is None:
            assert not any(true)
            continue
        least, most = pair["reused_at_least_tokens"], pair["reused_at_most_tokens"]
        assert sum(true) - later * (GRAIN - 1) <= least <= sum(true) <= most
        assert most - least <= later * (GRAIN - 1)
        assert pair["other_tenants"] == told[0].tenant
        assert pair["reused_requests"] == sum(tokens > 0 for tokens in true)
