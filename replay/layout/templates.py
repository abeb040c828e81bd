"""Which prompts are of one template, and which of one conversation, where no log says so."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from replay.layout.atoms import Atoms
from replay.layout.prompt import Prompt

_SHINGLE_ATOMS = 4
_SHARED_RATIO = 0.3
_SHARED_SHINGLES = 120
_HEAD_ATOMS = 4_000
# The end of a prompt, as much of it as the next turn has: a short end may be any conversation's.
_TAIL_ATOMS = (256, 64, 16)
# Of a conversation its latest turns: the one a request goes on from was not long ago.
_OPEN_CONVERSATIONS = 200


def templates_of(prompts: Sequence[Prompt], atoms: Sequence[Atoms]) -> dict[str, list[int]]:
    """Numbers of the prompts of each template, named by the log or by what they share.

    Prompts without a label are of one template where a good part of what stands before the
    conversation is the same text, wherever in it that stands.
    """
    groups: dict[str, list[int]] = {}
    leaders: list[tuple[set[tuple[int, ...]], str]] = []
    for number, prompt in enumerate(prompts):
        name = prompt.label
        if not name:
            shingles = _shingles(prompt, atoms[number])
            name = next((n for known, n in leaders if _alike(known, shingles)), "")
            if not name:
                name = f"found {len(leaders) + 1}"
                leaders.append((shingles, name))
        groups.setdefault(name, []).append(number)
    return groups


def _shingles(prompt: Prompt, atoms: Atoms) -> set[tuple[int, ...]]:
    """Runs of atoms of what stands before the conversation, or of all where nothing does."""
    head = [n for n, each in enumerate(prompt.segments) if each.role in ("tools", "system")]
    keys = atoms.keys
    if head:
        own = keys[atoms.segment <= head[-1]]
        keys = own if len(own) > _HEAD_ATOMS // 100 else keys
    given = keys[:_HEAD_ATOMS].tolist()
    return set(zip(*(given[n:] for n in range(_SHINGLE_ATOMS)), strict=False))


def _alike(left: set[tuple[int, ...]], right: set[tuple[int, ...]]) -> bool:
    common = len(left & right)
    return common >= _SHARED_SHINGLES or common > _SHARED_RATIO * min(len(left), len(right))


def with_sessions(prompts: Sequence[Prompt], atoms: Sequence[Atoms]) -> list[Prompt]:
    """The prompts with conversations found where the log names none: a prompt goes on from an
    earlier one whose end it has in its middle."""
    if any(prompt.session for prompt in prompts):
        return list(prompts)
    found: list[Prompt] = []
    open_: dict[str, tuple[bytes, int]] = {}
    for number, (prompt, each) in enumerate(zip(prompts, atoms, strict=True)):
        keys = each.keys.astype("<u4").tobytes()
        session = _going_on(open_, keys, len(each)) or f"conversation {number + 1}"
        open_.pop(session, None)
        open_[session] = (keys[-4 * _TAIL_ATOMS[0] :], len(each))
        if len(open_) > _OPEN_CONVERSATIONS:
            del open_[next(iter(open_))]
        found.append(replace(prompt, session=session))
    return found


def _going_on(open_: Mapping[str, tuple[bytes, int]], keys: bytes, length: int) -> str | None:
    for atoms in _TAIL_ATOMS:
        for session in reversed(list(open_)):
            tail, before = open_[session]
            if before < length and keys.find(tail[-4 * atoms :]) >= 0:
                return session
    return None
