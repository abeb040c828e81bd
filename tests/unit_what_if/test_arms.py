"""Arms by name: every one can be written and read, and each has something to be held against."""

from dataclasses import fields, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.arms import ROUTER_ARMS, Arm, NotAnArm, arm_named, base_of
from replay.routers import ROUTERS

factors = st.one_of(st.integers(1, 64).map(float), st.floats(1e-3, 1e3))


@st.composite
def any_arms(draw: st.DrawFn) -> Arm:
    """Whatever can be said of an arm."""
    caches = draw(st.booleans())
    below = draw(st.sampled_from(("none", "host", "ttl"))) if caches else "none"
    return Arm(
        router=draw(st.sampled_from(ROUTERS)) if caches else "round-robin",
        caches=caches,
        replicas=draw(st.none() | st.integers(1, 1024)),
        memory_factor=draw(factors),
        tier_factor=draw(st.just(0.0) | factors) if below == "host" else None,
        block_tokens=draw(st.none() | st.integers(1, 4096)),
        lifetime_seconds=draw(factors) if below == "ttl" else None,
        traffic=draw(st.sampled_from(("recorded", "merged", "mended"))),
    )


@given(any_arms(), st.randoms())
def test_a_name_says_its_arm_whatever_the_order_of_its_parts(arm: Arm, random: Random) -> None:
    parts = arm.name.split("+")
    random.shuffle(parts)
    assert arm_named("+".join(parts)) == arm
    assert arm_named(" + ".join(parts)).name == arm.name


@pytest.mark.parametrize(
    ("text", "arm"),
    [
        ("off", Arm(caches=False)),
        ("round-robin", Arm()),
        ("memory:1", Arm()),
        ("bounded-load+memory:2", Arm(router="bounded-load", memory_factor=2)),
        ("host:0.5", Arm(tier_factor=0.5)),
        ("host:0", Arm(tier_factor=0)),
        ("ttl:300", Arm(lifetime_seconds=300)),
        ("block:64+mended+sticky", Arm(router="sticky", block_tokens=64, traffic="mended")),
        ("off+replicas:8", Arm(caches=False, replicas=8)),
        ("merged", Arm(traffic="merged")),
    ],
)
def test_names_as_people_write_them(text: str, arm: Arm) -> None:
    assert arm_named(text) == arm


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fastest", "unknown arm 'fastest'; known: off, random, round-robin"),
        ("", "unknown arm ''"),
        ("memory", "unknown arm 'memory'"),
        ("memory:", "'memory:' takes a number, like memory:0.5"),
        ("replicas:2.5", "takes a number, like replicas:8"),
        ("memory:nan", "takes a number"),
        ("memory:0", "memory must be above 0"),
        ("replicas:0", "replicas must be from 1"),
        ("ttl:-1", "ttl must be above 0"),
        ("host:-1", "host must be 0 or more"),
        ("block:0", "block must be at least 1"),
        ("sticky+scored", "'scored' says again"),
        ("memory:2+memory:4", "'memory:4' says again"),
        ("merged+mended", "'mended' says again"),
        ("off+sticky", "off goes with no router"),
        ("off+ttl:9", "neither host: nor ttl:"),
        ("host:1+ttl:9", "not modelled together"),
        ("memory:1e300", "memory must be"),
    ],
)
def test_what_says_no_arm_is_told(text: str, said: str) -> None:
    with pytest.raises(NotAnArm, match=said):
        arm_named(text)


def test_two_arms_of_one_name_are_the_same() -> None:
    names = [arm_named(name).name for name in (*ROUTER_ARMS, "memory:2", "memory:0.5", "host:2")]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("text", "among", "base", "changed"),
    [
        ("off", "round-robin", "round-robin", "caches"),
        ("sticky", "off,round-robin", "round-robin", "router"),
        ("memory:2", "off,round-robin,sticky", "round-robin", "memory_factor"),
        ("sticky+memory:2", "round-robin,sticky,memory:2", "sticky", "memory_factor"),
        ("sticky+memory:2", "round-robin,memory:2", "memory:2", "router"),
        ("sticky+memory:2+mended", "sticky+memory:2,sticky", "sticky+memory:2", "traffic"),
        ("off+replicas:8", "off,replicas:8", "off", "replicas"),
        ("host:0", "round-robin", "round-robin", "tier_factor"),
    ],
)
def test_an_arm_is_held_against_the_one_that_differs_in_one_thing(
    text: str, among: str, base: str, changed: str
) -> None:
    others = [arm_named(name) for name in among.split(",")]
    assert base_of(arm_named(text), others) == (arm_named(base), changed)


def test_two_differences_at_once_have_no_base() -> None:
    assert base_of(arm_named("sticky+memory:2"), [Arm()]) is None
    assert base_of(Arm(), [Arm()]) is None


@given(any_arms())
def test_every_difference_can_be_taken_back(arm: Arm) -> None:
    """Step by step every arm becomes caching as it is; no field of an arm is forgotten."""
    steps = 0
    while arm != Arm():
        one_less = [
            replace(arm, **{field.name: getattr(Arm(), field.name)}) for field in fields(Arm)
        ]
        found = base_of(arm, [each for each in one_less if each != arm])
        assert found is not None
        arm = found[0]
        steps += 1
    assert steps <= len(fields(Arm))
