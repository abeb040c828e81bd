"""Tiers below the device as a person writes them: `disk:200000,speed=50000,latency=2,shared`."""

from dataclasses import replace

from replay.clock import Tier

# What comes back in a second where nobody says: assumptions, printed with every result.
_USUAL_TOKENS_PER_SECOND = {"host": 200_000.0, "disk": 50_000.0, "remote": 50_000.0}
_FLAGS = {"shared": "is_shared", "write-through": "writes_through", "overlaps": "overlaps"}
_LIKE = "like host:20000,speed=200000,latency=2,shared,write-through,overlaps"


class NotATier(ValueError):
    """A text that says no tier."""


def tier_named(text: str) -> Tier:
    """One tier. Without a size it has no blocks: what arms like `host:2` add is like it."""
    head, *rest = (part.strip() for part in text.split(","))
    name, _, size = head.partition(":")
    if name not in _USUAL_TOKENS_PER_SECOND:
        known = ", ".join(_USUAL_TOKENS_PER_SECOND)
        raise NotATier(f"--tier {text!r}: unknown tier {name!r}; known: {known}; {_LIKE}")
    blocks = _number(size, text) if size else 0.0
    if blocks != int(blocks):
        raise NotATier(f"--tier {text!r}: its size is in whole blocks, {_LIKE}")
    tier = Tier(name=name, capacity_blocks=int(blocks),
                tokens_per_second=_USUAL_TOKENS_PER_SECOND[name])  # fmt: skip
    changes = [_change(part, text) for part in rest]
    if len(changes) != len({field for field, _ in changes}):
        raise NotATier(f"--tier {text!r} says something twice")
    try:
        return replace(tier, **dict(changes))  # type: ignore[arg-type]
    except ValueError as error:
        raise NotATier(f"--tier {text!r}: {error}") from error


def _change(part: str, text: str) -> tuple[str, object]:
    """The field that a part names, and its value."""
    word, equals, value = part.partition("=")
    if not equals and word in _FLAGS:
        return _FLAGS[word], True
    if equals and word == "speed":
        return "tokens_per_second", _number(value, text)
    if equals and word == "latency":
        return "latency_seconds", _number(value, text) / 1e3
    raise NotATier(f"--tier {text!r}: {part!r} says nothing of a tier; {_LIKE}")


def _number(value: str, text: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e15:
        raise NotATier(f"--tier {text!r}: {value!r} is no number from 0 on, {_LIKE}")
    return number
