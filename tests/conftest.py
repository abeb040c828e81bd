"""The same ground for every run: property tests without a clock, and Ctrl-C that works."""

import os
import signal

import pytest
from hypothesis import settings

# A shared machine may stop for a second: a slow example says nothing about the code.
settings.register_profile("explore", deadline=None)
settings.register_profile("repeatable", settings.get_profile("explore"), derandomize=True)
# Fixed examples where a run decides something, new ones everywhere else.
settings.load_profile("repeatable" if os.environ.get("CI") else "explore")

# A shell starts background jobs with SIGINT ignored, and programs inherit that. Tests that stop
# a program by Ctrl-C would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the expected samples of tests/unit_engines/pages anew; read the difference",
    )
