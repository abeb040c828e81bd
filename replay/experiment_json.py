"""An experiment as programs read it, from the command or from the page."""

from collections.abc import Sequence
from dataclasses import asdict

from replay.experiment import Experiment
from replay.gain_words import arm_row, gain_words, group_row, split_words


def as_json(
    found: Experiment, gpus: int, traffic: str, sources: Sequence[str]
) -> dict[str, object]:
    """`arms` in the order asked for; figures that need a clock are left out without one.
    `traffic`: what was replayed, in words; `sources`: where measured figures are from."""
    setting = found.setting
    return {
        "traffic": traffic,
        "sources": list(sources),
        "assumptions": setting.words(),
        "replicas": setting.replicas,
        "gpus": gpus,
        "capacity_blocks": setting.capacity_blocks,
        "block_tokens": setting.rule.block_tokens,
        "observed": found.observed_ratio,
        "unlimited": found.bound_ratio,
        "arms": [arm_row(each, gpus, setting.token_bytes) for each in found.results],
        "by": {
            name: [group_row(each, gpus, setting.token_bytes) for each in rows]
            for name, rows in found.by.items()
        },
        "differences": [asdict(each) for each in found.differences],
        "gain": asdict(found.gain) if found.gain else None,
        "mended": found.mended_words,
        "words": all_words(found, gpus),
        "days": found.days,
    }


def all_words(found: Experiment, gpus: int) -> list[str]:
    """What each change saves, and whose the gain is."""
    split = split_words(found, gpus)
    return [*gain_words(found, gpus), *([split] if split else [])]
