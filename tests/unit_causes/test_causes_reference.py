"""Every cause of every request equals what a slow and obvious reference says."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.causes import CAUSES, attribute
from tests.unit_causes import reference
from tests.unit_causes.worlds import fleet_of, rule_of, traffic_of, world_of

# A world is cheap and its seed hard to shrink, so that each example looks at several.
_WORLDS = 20


@given(st.integers(0, 2**40))
@settings(max_examples=60, deadline=None)
def test_every_cause_of_every_request_equals_the_reference(seed: int) -> None:
    for number in range(seed, seed + _WORLDS):
        world = world_of(number)
        found = attribute(traffic_of(world), rule_of(world), fleet_of(world))
        ours = [
            {name: int(found.tokens[name][row]) for name in CAUSES}
            for row in range(len(world.calls))
        ]
        wanted = [
            {name: (expected or {}).get(name, 0) for name in reference.CAUSES}
            for expected in reference.causes(world)
        ]
        assert ours == wanted, f"world {number}"


@given(st.integers(0, 2**40))
@settings(max_examples=20, deadline=None)
def test_cached_and_causes_add_up_to_the_prompt(seed: int) -> None:
    for number in range(seed, seed + _WORLDS):
        world = world_of(number)
        found = attribute(traffic_of(world), rule_of(world), fleet_of(world))
        causes = np.array([found.tokens[name] for name in CAUSES])
        assert (causes >= 0).all()
        reported = found.reported
        total = causes.sum(axis=0) + found.cached_tokens
        assert (total[reported] == found.prompt_tokens[reported]).all()
        assert not causes[:, ~reported].any()
