"""Where a command writes: answers to standard output, everything else to standard error."""

import sys

from rich.console import Console

PIPE_WIDTH = 1000


def terminal() -> Console:
    """Standard output; as wide as it takes where the reader is a file or a program."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def messages() -> Console:
    """Where messages go: standard error, so that piped output stays clean."""
    return Console(stderr=True, highlight=False, soft_wrap=True)
