"""Small random fleets, and the same fleet as columns."""

from random import Random

import numpy as np

from replay.columns import Fleet
from replay.hashes import chain_hashes, content_hashes
from replay.rules import CacheRule
from replay.traffic import NOT_REPORTED, Chains, Moments, Stays, Traffic
from tests.unit_causes.reference import Call, Held, World, named

GRAIN = 16


def tokens_of(blocks: list[int]) -> list[int]:
    return [content * GRAIN + place for content in blocks for place in range(GRAIN)]


def chain_of(blocks: list[int], scope: int) -> list[int]:
    return chain_hashes(tokens_of(blocks), GRAIN, str(scope))


def traffic_of(world: World) -> Traffic:
    """The calls as columns; block names as the tap makes them."""
    calls = world.calls
    contents = [content_hashes(tokens_of(call.blocks), GRAIN) for call in calls]
    return Traffic(
        prompt_tokens=np.array([call.prompt for call in calls]),
        cached_tokens=np.array(
            [NOT_REPORTED if call.cached is None else call.cached for call in calls]
        ),
        chains=Chains.of(
            [chain_of(call.blocks, call.scope) for call in calls],
            world.grain,
            contents if world.has_contents else None,
        ),
        looked_up=np.array([call.looked_up for call in calls]),
        ready=np.array([call.ready if call.is_timed else np.nan for call in calls]),
        ended=np.array([call.ended if call.is_timed else np.nan for call in calls]),
        replica=np.array([call.replica for call in calls]),
        deployment=np.array([call.deployment for call in calls]),
        scope=np.array([call.scope for call in calls]),
        ineligible=np.array([call.ineligible for call in calls]),
        kept=np.array([call.kept for call in calls]),
        output_tokens=np.array([call.output for call in calls]) if world.answers else None,
        eligible_tokens=np.array(
            [call.prompt if call.eligible is None else call.eligible for call in calls]
        ),
    )


def fleet_of(world: World) -> Fleet:
    held = world.held
    stays = None
    if held is not None:
        stays = Stays(
            np.array([chain_of(each.blocks, each.scope)[-1] for each in held], np.uint64),
            np.array([each.replica for each in held], np.int64),
            np.array([each.since for each in held], np.float64),
            np.array([each.until for each in held], np.float64),
            np.array([each.deployment for each in held], np.int64),
        )
    return Fleet(Moments.of(world.resets), Moments.of(world.gone), stays)


def rule_of(world: World) -> CacheRule:
    return CacheRule(
        "test",
        "test",
        ceiling="partial" if world.partial else "whole",
        block_tokens=world.block,
        held_back_blocks=world.held_back,
        minimum_tokens=world.minimum,
        lifetime_seconds=world.lifetime,
    )


def call_of(random: Random, before: list[Call], replicas: int, spaces: tuple[int, int]) -> Call:
    """A call whose beginning another is likely to share, at a whole second."""
    blocks = [random.choice([0, 0, 1]) for _ in range(random.randint(0, 5))]
    if before and random.random() < 0.6:
        other = random.choice(before).blocks
        blocks = other[: random.randint(0, len(other))] if random.random() < 0.3 else other
        blocks = blocks + [random.choice([0, 1]) for _ in range(random.randint(0, 3))]
    # The last block may be partial or not named at all; a chain may end early (an image).
    prompt = max(1, len(blocks) * GRAIN + random.choice([0, 0, 0, 1, 7, 15, -1, -9, 40]))
    looked_up = random.randint(0, 10)
    is_timed = random.random() < 0.9
    # Everything else happens at whole, half and quarter seconds.
    ready = looked_up + (random.choice([0, 0, 1, 2, 4]) if is_timed else 0.1)
    whole = random.randint(0, prompt // GRAIN) * GRAIN
    return Call(
        blocks=blocks,
        prompt=prompt,
        cached=random.choice([0, 0, whole, whole, random.randint(0, prompt), None]),
        looked_up=looked_up,
        ready=ready,
        ended=ready + (random.choice([0, 1, 2]) if is_timed else 0),
        replica=random.randrange(replicas),
        deployment=random.randrange(spaces[0]),
        scope=random.randrange(spaces[1]),
        output=random.choice([0, 1, 2, 16, 17, 33, 50]),
        ineligible=random.random() < 0.1,
        kept=random.random() > 0.1,
        eligible=random.choice([None, None, None, random.randint(0, prompt)]),
        is_timed=is_timed,
    )


def world_of(seed: int) -> World:
    """A fleet of up to three replicas with up to nine calls, the same for the same seed."""
    random = Random(seed)
    replicas = random.randint(1, 3)
    spaces = random.choice([(1, 1), (1, 1), (1, 2), (2, 1), (2, 2)])
    calls: list[Call] = []
    for _ in range(random.randint(1, 9)):
        calls.append(call_of(random, calls, replicas, spaces))
    calls.sort(key=lambda call: call.looked_up)
    partial = random.random() < 0.2
    resets = random.choice([0, 0, 1, 3])
    world = World(
        calls,
        grain=GRAIN,
        block=GRAIN if partial else random.choice([1, 8, GRAIN, GRAIN, 2 * GRAIN, 3 * GRAIN]),
        partial=partial,
        held_back=random.choice([0, 0, 0, 1]),
        minimum=random.choice([0, 0, 0, 40]),
        lifetime=random.choice([None, None, 3.0]),
        answers=random.random() < 0.5,
        # Between the whole seconds of calls: what happens first at one moment is not told.
        resets=[(random.randrange(replicas), random.randint(0, 9) + 0.5) for _ in range(resets)],
        gone=random.choice([[], [], [(random.randrange(replicas), random.randint(0, 9) + 0.5)]]),
        has_contents=random.random() < 0.7,
    )
    if random.random() < 0.25:
        world.held = [held_of(random, world) for _ in range(random.randint(0, 5))]
    return world


def held_of(random: Random, world: World) -> Held:
    """Something that one of the calls could have left behind."""
    call = random.choice(world.calls)
    blocks = named(world, call) or [0]
    since = random.randint(0, 8) + 0.25
    return Held(
        blocks[: random.randint(1, len(blocks))],
        call.scope,
        call.deployment,
        random.choice(world.calls).replica,
        since,
        random.choice([since + 2, float("inf")]),
    )
