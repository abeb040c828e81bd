"""Traffic of one template as token ids, with a known defect in it or none.

Knows nothing of what finds defects. Prompts are a system part, tools, and the turns of
conversations; answers are cached as engines do (whole blocks of everything computed so far).
Token ids stand for words: texts of the same words have the same ids.
"""

import random
from dataclasses import dataclass, field

BLOCK_TOKENS = 16
DEFECTS = (
    "value_request", "value_session", "value_user", "value_day", "tool_order",
    "retrieved", "template_version", "thinking_removed", "tokenizer_join",
)  # fmt: skip
# What is in the traffic besides, defect or not, and is none: no session or tenant told; a tenth of
# requests of another template; the same text at the end of all; questions that others ask too;
# retrieved passages in the user's own turn; few requests.
SETTINGS = ("plain", "unnamed", "odd", "tail", "asked_again", "passages", "few")
_IN_TURNS = ("thinking_removed", "tokenizer_join")
_DAY, _FIRST_DAY = 86_400.0, 20_000
_NEWLINE, _NEWLINES, _ASSISTANT, _USER, _THINK, _END = range(1, 7)


@dataclass(frozen=True)
class Truth:
    """What was put in: the kind and frequency that can be told, tokens from `begin` to before
    `end` of most prompts (of turns: anywhere)."""

    kind: str
    frequency: str
    begin: int = -1
    end: int = -1


@dataclass
class Sent:
    """A request: token ids of prompt and answer, times, labels and what the cache served."""

    token_ids: list[int]
    answer_ids: list[int]
    started: float
    session: str
    tenant: str
    cached_tokens: int = 0


@dataclass
class Injected:
    """Requests in the order of their start, and the truth about them (None: no defect)."""

    requests: list[Sent]
    truth: Truth | None
    title: str


@dataclass
class _Author:
    """Writes prompts: every text it makes up is new unless said otherwise."""

    draw: random.Random
    words: int = 50_000
    _parts: dict[str, list[int]] = field(default_factory=dict)

    def text(self, tokens: int) -> list[int]:
        return [self.draw.randrange(100, self.words) for _ in range(tokens)]

    def same(self, name: str, tokens: int) -> list[int]:
        """The text of that name, made up when it is first asked for."""
        if name not in self._parts:
            self._parts[name] = self.text(tokens)
        return self._parts[name]


def inject(seed: int, defect: str | None, mended: bool = False) -> Injected:
    """The traffic of one template over some hours (days where the date is in it). `mended`: the
    same requests in every other respect, the defect really mended: values moved to the end of the
    prompt (of its fixed part, where turns share them), tools in one order, history as it was."""
    author = _Author(random.Random(f"{seed}/{defect}"))
    setting = author.draw.choice(SETTINGS)
    if setting == "unnamed" and defect in ("value_session", "value_user", *_IN_TURNS):
        setting = "plain"  # nothing tells of sessions or turns there
    template = _Template(author, defect, setting, mended)
    requests = _traffic(author, template, days=3 if defect == "value_day" else 1)
    _serve(requests)
    return Injected(requests, template.truth(), f"seed {seed}, {setting}, {defect or 'clean'}")


class _Template:
    """Renders prompts; the defect is in how it does."""

    def __init__(self, author: _Author, defect: str | None, setting: str, mended: bool) -> None:
        draw = author.draw
        self._author, self.defect, self.setting = author, defect, setting
        self._mended = mended
        self.moved: list[int] = []  # what stands at the end of the prompt, being mended
        self._system = author.text(draw.randrange(300, 2_500))
        self._tools = [author.text(draw.randrange(40, 160)) for _ in range(draw.randrange(6, 15))]
        self._depth = int(draw.uniform(0, 0.8) * len(self._system))
        # Clocks and ids of a fixed length, names and ids of a varying one.
        self._value_tokens = draw.choice([(6, 6), (3, 3), (12, 12), (18, 26), (2, 6), (20, 23)])
        self._new_words = author.text(draw.randrange(3, 40))
        self._passages = [author.text(draw.randrange(60, 200)) for _ in range(30)]
        self._tail = author.text(draw.randrange(10, 60)) if setting == "tail" else []
        self._marker = [_THINK, *author.text(draw.randrange(1, 4)), _NEWLINE]
        self._version_from = _FIRST_DAY * _DAY + draw.uniform(0.35, 0.65) * 10 * 3600 + 8 * 3600

    def truth(self) -> Truth | None:
        if self.defect is None:
            return None
        if self.defect.startswith("value_"):
            most = self._depth + self._value_tokens[1]
            return Truth("unknown", self.defect.removeprefix("value_"), self._depth, most)
        if self.defect == "tool_order":
            end = len(self._system) + sum(map(len, self._tools))
            return Truth("tool_order", "request", len(self._system), end)
        if self.defect == "retrieved":
            return Truth("unknown", "request", self._depth, self._depth + 500)
        if self.defect == "template_version":
            end = self._depth + len(self._new_words)
            return Truth("template_version", "once", self._depth, end)
        return Truth(self.defect, "request")

    def head(self, started: float, session: str, tenant: str, request: int) -> list[int]:
        """System part and tools, as this request has them."""
        draw = self._author.draw
        if self.setting == "odd" and draw.random() < 0.1:
            return self._author.same("another template", 700)
        system, tools = list(self._system), list(self._tools)
        if self.defect == "retrieved":
            self._put(system, self.passages())
        if self.defect == "template_version" and started >= self._version_from:
            # As many words less as there are new ones, or not: both happen.
            less = len(self._new_words) if len(self._new_words) % 2 else 0
            system[self._depth : self._depth + less] = self._new_words
        if self.defect == "tool_order":
            draw.shuffle(tools)
            tools = self._tools if self._mended else tools
        if self.defect is not None and self.defect.startswith("value_"):
            name = {
                "value_request": f"request {request}",
                "value_session": session,
                "value_user": tenant,
                "value_day": f"day {started // _DAY}",
            }[self.defect]
            tokens = draw.randint(*self._value_tokens)
            if self.defect == "value_day":
                tokens = self._value_tokens[0]
            self._put(system, self._author.same(f"value of {name}", tokens))
        head = system + [token for tool in tools for token in tool]
        if self.defect in ("value_session", "value_user", "value_day"):
            head, self.moved = head + self.moved, []
        return head

    def _put(self, system: list[int], value: list[int]) -> None:
        if self._mended:
            self.moved = value
        else:
            system[self._depth : self._depth] = value

    def passages(self) -> list[int]:
        """A few of those there are, in the order in which they were found."""
        draw = self._author.draw
        picked = draw.sample(self._passages, draw.randrange(2, 6))
        return [token for passage in picked for token in passage]

    def question(self) -> list[int]:
        """What a user writes."""
        draw = self._author.draw
        if self.setting == "asked_again" and draw.random() < 0.4:
            own = self._author.same(f"question {draw.randrange(6)}", 60)
        else:
            own = self._author.text(draw.randrange(15, 200))
        found = self.passages() if self.setting == "passages" else []
        return [_USER, *found, *own, *self._tail, _END]

    def opening(self) -> list[int]:
        """What ends every prompt: here the answer begins."""
        return [_ASSISTANT, *(self._marker if self.defect == "thinking_removed" else [_NEWLINE])]

    def history(self, answer: list[int]) -> list[int]:
        """A past answer as the next prompt has it, its opening included."""
        if self.defect == "tokenizer_join" and not self._mended:
            return [_ASSISTANT, _NEWLINE, _NEWLINES, *answer[2:]]
        if self.defect == "thinking_removed" and not self._mended:
            return [_ASSISTANT, _NEWLINE, *answer]
        return [*self.opening(), *answer]


def _traffic(author: _Author, template: _Template, days: int) -> list[Sent]:
    draw = author.draw
    tenants = [f"tenant {number}" for number in range(draw.randrange(4, 9))]
    sent: list[Sent] = []
    is_unnamed = template.setting == "unnamed"
    sessions = draw.randrange(12, 20) if template.setting == "few" else draw.randrange(30, 60)
    for session in range(sessions * (2 if days > 1 else 1)):
        tenant = draw.choice(tenants)
        day = _FIRST_DAY + draw.randrange(days)
        started = day * _DAY + 8 * 3600 + draw.uniform(0, 10 * 3600)
        turns: list[int] = []
        for _ in range(draw.choice([1, 2, 3, 4, 5])):
            turns += template.question()
            head = template.head(started, f"session {session}", tenant, len(sent))
            prompt = head + turns + template.moved + template.opening()
            answer = [_NEWLINE, _NEWLINE, *author.text(draw.randrange(80, 300)), _END]
            labels = ("", "") if is_unnamed else (f"session {session}", tenant)
            sent.append(Sent(prompt, answer, started, *labels))
            turns += template.history(answer)
            started += draw.uniform(20, 120)
    return sorted(sent, key=lambda each: each.started)


def _serve(requests: list[Sent]) -> None:
    """An engine that loses nothing: whole blocks of earlier prompts and answers, never the last
    token."""
    held: set[int] = set()
    for each in requests:
        every = each.token_ids + each.answer_ids[:-1]
        parent, cached, is_hit = 0, 0, True
        for end in range(BLOCK_TOKENS, len(every) + 1, BLOCK_TOKENS):
            parent = hash((parent, tuple(every[end - BLOCK_TOKENS : end])))
            is_hit = is_hit and parent in held and end < len(each.token_ids)
            cached = end if is_hit else cached
            held.add(parent)
        each.cached_tokens = cached
