"""Logs of real prompts with layout defects put into them, and what was put where.

Nothing here knows how defects are found: it imports neither the detector nor its words for places.
The text is that of recorded agent sessions (instructions, task, commands and their output); tool
definitions, which those sessions have none of, are written here. One log in five has no defect.
"""

import gzip
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

from tests.unit_lint.injected_ids import generated_ids, ids_of
from tests.unit_lint.injected_texts import PROFILE, SENTENCES, THOUGHTS, TOOLS
from tests.unit_lint.injected_values import LABELS, START, VALUES, Call, owner

SAMPLE = Path(__file__).parents[3] / "shared/traces/lmcache-agent/raw_text_sample"
KINDS = (
    "clock", "uuid", "counter", "name", "tool_order", "key_order", "white_space", "retrieved",
    "thinking_removed", "template_version", "tokenizer_join",
)  # fmt: skip
# What of a log shares must stand behind a defect: less is nothing to win.
_BEHIND_CHARACTERS = 400
_APART_CHARACTERS = 150
_HEADER_SPACE = 24
_HEADER = "<|system|>\n"
_TAG = re.compile(r"</?output>|<returncode>\d+</returncode>")

Row = dict[str, object]
Value = Callable[["Call"], str]


@dataclass(frozen=True)
class Session:
    """A recorded session: standing instructions, one task, then answers and what they led to."""

    instructions: str
    task: str
    steps: tuple[tuple[str, str], ...]


@dataclass
class Defect:
    """What was put in. `offsets`: of each row, where in the text of `segment` the volatile part
    begins; rows it does not concern are absent. `segments` are the places that are right. `tokens`:
    of rows with ids, how many stand before it."""

    kind: str
    frequency: str
    segments: set[str] = field(default_factory=set)
    offsets: dict[int, int] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)
    mark: str = ""
    value: Value = lambda call: ""


@dataclass
class Log:
    """Rows as a client logs them, and the defects in them."""

    rows: list[Row]
    defects: list[Defect]
    form: str


def sessions() -> list[Session]:
    """The recorded sessions, each in the order of its calls."""
    found: list[Session] = []
    for path in sorted(SAMPLE.glob("*.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            calls = sorted(map(json.loads, lines), key=lambda call: float(call["timestamp"]))
        session = _session(calls)
        # Of two recordings of one task nothing but a name tells the sessions apart.
        if all(session.task != other.task for other in found):
            found.append(session)
    return found


def _session(calls: Sequence[Mapping[str, str]]) -> Session:
    first = calls[0]["input"]
    task, _, rest = first.partition("<instructions>")
    instructions = rest.partition("</instructions>")[0].strip()
    steps = []
    for before, after in pairwise(calls):
        steps.append((before["output"], after["input"][len(before["input"]) :].strip()))
    return Session(instructions, task.strip(), tuple(steps))


def make_log(
    seed: int,
    recorded: Sequence[Session],
    kinds: Sequence[str] | None = None,
    form: str | None = None,
    repaired: bool = False,
    turns: int = 7,
) -> Log:
    """A log of several sessions. The same seed gives the same log; `repaired`: with what is
    volatile behind what is shared, or in one order, as whoever mends the source would do it."""
    return _Maker(seed, recorded, kinds, form, repaired, turns).log()


class _Maker:
    def __init__(
        self,
        seed: int,
        recorded: Sequence[Session],
        kinds: Sequence[str] | None,
        form: str | None,
        repaired: bool,
        turns: int,
    ) -> None:
        self.random = random.Random(seed)
        self.turns = turns
        self.repaired = repaired
        clean = self.random.random() < 0.2
        count = self.random.choice((1, 1, 2, 3))
        chosen = self.random.sample(KINDS, count)
        self.kinds = tuple(kinds) if kinds is not None else () if clean else tuple(chosen)
        drawn = self.random.choice(("chat", "chat", "plain"))
        self.form = form or ("ids" if "tokenizer_join" in self.kinds else drawn)
        if "tool_order" in self.kinds and self.form != "ids":
            self.form = "chat"
        if self.form == "ids":  # its rows hold ids: other kinds are for the other forms
            self.kinds = tuple(kind for kind in self.kinds if kind == "tokenizer_join")
        self.picked = self.random.sample(range(len(recorded)), self.random.randint(4, 6))
        self.recorded = recorded
        self.named_sessions = self.random.random() < 0.6
        self.named_users = self.random.random() < 0.6
        self.calls = self._calls()
        self.passages = self._passages()
        self.texts = self._texts()
        self.defects = [self._put(kind) for kind in self.kinds]

    def _calls(self) -> list[Call]:
        """Sessions run side by side, two a day; each user has several."""
        users = {number: number % 3 for number in range(len(self.picked))}
        due = []
        for number, which in enumerate(self.picked):
            begin = START + timedelta(days=number // 2, minutes=self.random.randint(0, 40))
            for turn in range(min(len(self.recorded[which].steps), self.turns) + 1):
                begin += timedelta(seconds=self.random.randint(61, 300))
                due.append((begin, number, turn))
        return [
            Call(number, session, turn, users[session], at)
            for number, (at, session, turn) in enumerate(sorted(due))
        ]

    def _passages(self) -> list[str]:
        # What is looked up is not what the users of this log say.
        others = [each for n, each in enumerate(self.recorded) if n not in self.picked]
        texts = [each.task.partition("PR description:\n")[2] for each in others]
        texts += [_TAG.sub("", output) for each in others for _, output in each.steps]
        lines = [line for text in texts for line in text.splitlines() if line.strip()]
        passages = ["\n".join(lines[n : n + 6]) for n in range(0, len(lines), 6)]
        return sorted({passage for passage in passages if 150 < len(passage) < 900})

    def _texts(self) -> dict[str, str]:
        """Shared text of the log that a defect may be put into."""
        texts = {"system": self.recorded[self.picked[0]].instructions}
        if self.form == "chat":
            texts |= {f"tool {n}": str(tool["description"]) for n, tool in enumerate(TOOLS)}
        return texts

    def _put(self, kind: str) -> Defect:
        put: dict[str, Callable[[], Defect]] = {
            "tool_order": self._tool_order,
            "key_order": self._key_order,
            "white_space": self._white_space,
            "thinking_removed": lambda: Defect("thinking_removed", "request"),
            "template_version": self._version,
            "tokenizer_join": lambda: Defect("tokenizer_join", "request"),
        }
        return put[kind]() if kind in put else self._value(kind)

    # Values that stand in the shared text.

    def _value(self, kind: str) -> Defect:
        frequency = self.random.choice(self._frequencies(kind))
        shape = self.random.randrange(4)
        salt = self.random.random()
        defect = Defect(kind, frequency)
        defect.value = lambda call: VALUES[kind](
            shape, frequency, call, random.Random(f"{salt} {owner(frequency, call)}"), self.passages
        )
        self._mark(defect, LABELS[kind][shape])
        return defect

    def _frequencies(self, kind: str) -> list[str]:
        known = {
            "clock": ["request", "request", "day", "session"],
            "uuid": ["request", "session", "user"],
            "counter": ["request"],
            "name": ["user", "session"],
            "retrieved": ["request", "session"],
        }[kind]
        return [each for each in known if each != "user" or self.named_users]

    def _mark(self, defect: Defect, label: str) -> None:
        """Put a labelled mark for a value into the shared text, at any depth, at the end of a line
        or in the middle of one."""
        defect.mark = f"\x00{len(self.texts)}-{defect.kind}\x00"
        place = "system"
        small = defect.kind != "retrieved"
        if self.form == "chat" and small and self.random.random() < 0.25:
            place = f"tool {self.random.randrange(len(TOOLS) // 2)}"
        text = self.texts[place]
        at = self._free(text, place)
        before, after = text[:at], text[at:]
        if place == "system" and self.random.random() < 0.5:
            lead = "" if not before or before.endswith("\n") else "\n"
            put = f"{lead}{label.format(defect.mark)}\n"
        else:
            put = f" ({label.format(defect.mark)})"
        self.texts[place] = before + put + after

    def _free(self, text: str, place: str) -> int:
        """A place between words, away from other defects, with enough text behind it."""
        last = len(text) - (_BEHIND_CHARACTERS if place == "system" else 0)
        ends = [n for n, sign in enumerate(text) if sign in " \n" and n < last]
        taken = [n for n, sign in enumerate(text) if sign == "\x00"]
        ends = [n for n in [0, *ends]
                if all(abs(n - other) >= _APART_CHARACTERS for other in taken)]  # fmt: skip
        if not ends:
            return len(text)
        return self.random.choice(ends)

    def _version(self) -> Defect:
        old, new = self.random.sample(SENTENCES, 2)
        change = self.random.randint(len(self.calls) // 4, 3 * len(self.calls) // 4)
        defect = Defect("template_version", "once")
        defect.value = lambda call: new if call.number >= change else old
        self._mark(defect, "{}")
        return defect

    def _white_space(self) -> Defect:
        salt = self.random.random()
        variants = self.random.sample(["\n", "\n\n", " \n", "\r\n", "\n "], 3)
        defect = Defect("white_space", "request")
        defect.value = lambda call: random.Random(f"{salt} {call.number}").choice(variants)
        defect.mark = f"\x00{len(self.texts)}-ws\x00"
        text = self.texts["system"]
        last = len(text) - _BEHIND_CHARACTERS
        lines = [n for n, sign in enumerate(text[:last]) if sign == "\n" and n > _HEADER_SPACE
                 and text[n - 1] not in " \n\r\x00" and text[n + 1] not in " \n\r\x00"
                 and "\x00" not in text[max(n - 150, 0) : n + 150]]  # fmt: skip
        at = self.random.choice(lines)
        self.texts["system"] = text[:at] + defect.mark + text[at + 1 :]
        return defect

    # Orders.

    def _tool_order(self) -> Defect:
        frequency = self.random.choice(["request", "session"])
        defect, salt = Defect("tool_order", frequency), self.random.random()
        defect.mark = f"{salt}"
        return defect

    def _key_order(self) -> Defect:
        frequency = self.random.choice(["request", "session"])
        defect, salt = Defect("key_order", frequency), self.random.random()
        in_text = self.form == "plain" or self.random.random() < 0.5
        if not in_text:
            defect.mark = f"tool {self.random.randrange(len(TOOLS) // 2)} {salt}"
            return defect
        indent = self.random.choice([None, 2])
        keys = self.random.sample(list(PROFILE), 6)
        profile = {key: PROFILE[key] for key in keys}

        def shown(call: Call) -> str:
            order = list(profile)
            if self.repaired:
                order.sort()
            else:
                random.Random(f"{salt} {owner(frequency, call)}").shuffle(order)
            return json.dumps({key: profile[key] for key in order}, indent=indent)

        defect.value = shown
        self._mark(defect, "Settings: {}")
        return defect

    # Rendering.

    def log(self) -> Log:
        rows = [self._row(call) for call in self.calls]
        return Log(rows, self.defects, self.form)

    def _row(self, call: Call) -> Row:
        row: Row = {"timestamp": call.at.timestamp(), "model": "m"}
        if self.named_sessions:
            row["session_id"] = f"s-{call.session}"
        if self.named_users:
            row["user"] = f"u-{call.user}"
        head: list[str] = []
        tail: list[str] = []
        system = self._filled("system", call, head, tail)
        turns = self._turns(call)
        if self.form == "chat":
            row["tools"] = self._tools(call, head, tail)
            role, thinking, task = turns[0]
            turns[0] = (role, thinking, "\n".join([*head, task]))
            row["messages"] = self._messages(call, system, turns, tail)
        elif self.form == "plain":
            row["prompt"] = self._plain(call, "\n".join([system, *head]), turns, tail)
        else:
            row |= self._with_ids(call, system, turns)
        return row

    def _filled(self, place: str, call: Call, head: list[str], tail: list[str]) -> str:
        """The text with the value of each mark. A mended source moves it behind what all share: in
        front of the conversation (`head`), or to the end of the prompt if it always changes."""
        text = self.texts[place]
        marked = [defect for defect in self.defects if defect.mark and defect.mark in text]
        for defect in sorted(marked, key=lambda each: text.index(each.mark)):
            value = defect.value(call)
            if self.repaired and defect.kind == "white_space":
                value = defect.value(self.calls[0])
            elif self.repaired and defect.kind not in ("key_order", "template_version"):
                (tail if defect.frequency == "request" else head).append(value)
                value = ""
            defect.segments |= self._segments(place)
            at = text.index(defect.mark)
            defect.offsets[call.number] = at + (len(_HEADER) if self.form == "plain" else 0)
            text = text.replace(defect.mark, value)
        return text

    def _segment(self, place: str) -> str:
        if self.form == "plain":
            return "text"
        if place == "system":
            return "system[0]"
        return f"tools[{place.removeprefix('tool ')}].description"

    def _segments(self, place: str) -> set[str]:
        """Where it may be said to stand: of tools in any order, in each."""
        if place != "system" and "tool_order" in self.kinds:
            return {f"tools[{number}].description" for number in range(len(TOOLS))}
        return {self._segment(place)}

    def _turns(self, call: Call) -> list[tuple[str, str, str]]:
        """Role, thinking and text of every message behind the system prompt."""
        session = self.recorded[self.picked[call.session]]
        keeps = "thinking_removed" in self.kinds
        turns = [("user", "", session.task)]
        for number, (answer, output) in enumerate(session.steps[: call.turn]):
            stays = keeps and (self.repaired or number == call.turn - 1)
            thinking = THOUGHTS[(call.session + number) % len(THOUGHTS)] if stays else ""
            turns += [("assistant", thinking, answer), ("user", "", output)]
        return turns

    def _messages(
        self, call: Call, system: str, turns: Sequence[tuple[str, str, str]], tail: list[str]
    ) -> list[Row]:
        messages: list[Row] = [{"role": "system", "content": system}]
        for number, (role, thinking, text) in enumerate(turns, 1):
            thought = f"<think>\n{thinking}\n</think>\n\n" if thinking else ""
            messages.append({"role": role, "content": thought + text})
            if role == "assistant":
                self._thought_at(call, f"messages[{number}]", 0, number // 2 - 1)
        if tail:
            messages[-1]["content"] = "\n".join([str(messages[-1]["content"]), *tail])
        return messages

    def _plain(
        self, call: Call, system: str, turns: Sequence[tuple[str, str, str]], tail: list[str]
    ) -> str:
        text = _HEADER + system
        for number, (role, thinking, said) in enumerate(turns):
            text += f"\n<|{role}|>\n"
            if role == "assistant":
                self._thought_at(call, "text", len(text), number // 2)
            text += (f"<think>\n{thinking}\n</think>\n\n" if thinking else "") + said
        return "\n".join([text, *tail])

    def _thought_at(self, call: Call, segment: str, offset: int, answer: int) -> None:
        """The thinking of the answer before the last is there no more."""
        for defect in self.defects:
            if defect.kind == "thinking_removed":
                defect.segments.add(segment)
                if answer <= max(call.turn - 2, 0):
                    defect.offsets[call.number] = offset

    def _tools(self, call: Call, head: list[str], tail: list[str]) -> list[Row]:
        tools = [dict(tool) for tool in TOOLS]
        for number, tool in enumerate(tools):
            tool["description"] = self._filled(f"tool {number}", call, head, tail)
        for defect in self.defects:
            if defect.kind == "key_order" and defect.mark.startswith("tool "):
                self._shuffle_keys(tools, defect, call)
        for defect in self.defects:
            if defect.kind == "tool_order":
                self._shuffle_tools(tools, defect, call)
        return [{"type": "function", "function": tool} for tool in tools]

    def _shuffle_tools(self, tools: list[Row], defect: Defect, call: Call) -> None:
        if self.repaired:
            tools.sort(key=lambda tool: str(tool["name"]))
            return
        random.Random(f"{defect.mark} {owner(defect.frequency, call)}").shuffle(tools)
        defect.segments |= {f"tools[{number}]" for number in range(len(tools))}
        defect.offsets[call.number] = 0

    def _shuffle_keys(self, tools: list[Row], defect: Defect, call: Call) -> None:
        _, number, salt = defect.mark.split()
        tool = tools[int(number)]
        properties = dict(tool["parameters"]["properties"])  # type: ignore[index]
        order = list(properties)
        if self.repaired:
            order.sort()
        else:
            random.Random(f"{salt} {owner(defect.frequency, call)}").shuffle(order)
        tool["parameters"] = {
            "type": "object",
            "properties": {key: properties[key] for key in order},
        }
        places = range(len(TOOLS)) if "tool_order" in self.kinds else [int(number)]
        defect.segments |= {f"tools[{place}].parameters" for place in places}
        defect.offsets[call.number] = 0

    # Ids: a small tokenizer of this module's own, whose joins differ as real ones do.

    def _with_ids(self, call: Call, system: str, turns: Sequence[tuple[str, str, str]]) -> Row:
        joined = "tokenizer_join" in self.kinds and not self.repaired
        text, ids = _HEADER + system, ids_of(_HEADER + system)
        newest: tuple[int, int] | None = None
        for role, _, said in turns:
            head = f"\n<|{role}|>\n"
            joins = said.find("\n\n") if role == "assistant" else -1
            if role == "assistant":
                before = len(ids) + len(ids_of(head)) + len(ids_of(said[: max(joins, 0)]))
                newest = (len(text) + len(head) + joins, before) if joins >= 0 else None
            text += head + said
            if role == "assistant" and not joined:
                ids += ids_of(head) + generated_ids(said)
            else:
                ids += ids_of(head) + ids_of(said)
        text += "\n<|assistant|>\n"
        answer = self.recorded[self.picked[call.session]].steps
        said = answer[call.turn][0] if call.turn < len(answer) else ""
        row: Row = {"prompt": text, "prompt_token_ids": ids + ids_of("\n<|assistant|>\n")}
        if said:
            row |= {"output": said, "output_token_ids": generated_ids(said)}
        for defect in self.defects:
            defect.segments.add("text")
            if newest is not None:
                defect.offsets[call.number], defect.tokens[call.number] = newest
        return row
