"""Property tests run without a clock; with fixed examples in CI, with new ones elsewhere."""

import os

from hypothesis import settings

# A shared machine may stop for a second: a slow example says nothing about the code.
settings.register_profile("explore", deadline=None)
settings.register_profile("repeatable", settings.get_profile("explore"), derandomize=True)
settings.load_profile("repeatable" if os.environ.get("CI") else "explore")
