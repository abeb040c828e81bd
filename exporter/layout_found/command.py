"""The command that shows the text a finding is about, on the user's own terminal."""

from datetime import datetime, timedelta


def lint_command(template: str | None, since: datetime, until: datetime) -> str:
    """`prefixscope lint` for a log that holds the text. FILE stands for the log, which the store
    does not know; which of its requests were looked at stands behind it as a comment of the shell.
    """
    named = f"template {' '.join(template.split())}, " if template else ""
    end = until + timedelta(seconds=1)
    return (
        f"prefixscope lint FILE  # {named}{since:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC"
    )
