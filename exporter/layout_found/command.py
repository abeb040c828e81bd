"""The command that shows the text a finding is about, on the user's own terminal."""

import shlex
from datetime import datetime, timedelta


def lint_command(template: str | None, since: datetime, until: datetime) -> str:
    """`prefixscope lint` for a log of prompts, narrowed to the requests that were looked at. FILE
    stands for the log, which the store does not know; times are whole seconds, UTC."""
    named = f" --template {shlex.quote(template)}" if template else ""
    span = f"--since {_second(since)} --until {_second(until + timedelta(seconds=1))}"
    return f"prefixscope lint FILE{named} {span}"


def _second(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
