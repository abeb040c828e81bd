"""Lets coverage steer the damage: atheris on one parser, for a bounded time.

    pip install atheris
    python -m tests.fuzz.with_atheris "exposition" -max_total_time=120

The name is that of a kind in the table `make fuzz` prints; what follows goes to libFuzzer.
atheris is no part of the locked environment: it has wheels for Linux on x86-64 only. It ends at
the first error that is not the parser's own and keeps the input beside it (`crash-…`).
"""

import logging
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import atheris  # type: ignore[import-not-found]

# What is imported here is watched: which lines an input reaches tells atheris where to go on.
with atheris.instrument_imports(include=["exporter", "replay", "prometheus_client", "json"]):
    from tests.fuzz.parsers import Parser, parsers

LARGEST_BYTES = 1 << 14


def main() -> None:
    """Begins with the seeds of the parser; does not come back."""
    logging.disable(logging.CRITICAL)
    name, *options = sys.argv[1:]
    folder = Path(tempfile.mkdtemp())
    (parser,) = (known for known in parsers(folder) if known.name == name)
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(parser.seeds):
        (corpus / str(number)).write_bytes(seed)
    arguments = [sys.argv[0], str(corpus), f"-max_len={LARGEST_BYTES}", *options]
    atheris.Setup(arguments, lambda data: once(parser, data))
    atheris.Fuzz()


def once(parser: Parser, data: bytes) -> None:
    """One input; any error but the parser's own ends the run."""
    with suppress(*parser.own):
        parser.read(data)


if __name__ == "__main__":
    main()
