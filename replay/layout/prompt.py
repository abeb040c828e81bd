"""A prompt with its text, in the segments its structure names."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Segment:
    """A named part of a prompt: `system[1]`, `tools[3].parameters`, `messages[4]`, `text`.

    `lead` is what rendering puts before the text (role markers and the like); it is part of the
    prompt and never volatile. `role` groups segments of one kind: tools, system, user, assistant.
    `unit` names what moves as a whole, the tool whose field it is; else it is empty.
    """

    name: str
    role: str
    text: str
    lead: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Prompt:
    """One request's prompt. `at`: seconds since the epoch, None where the log tells no time.

    `label` names its template where the log does, `source` is its file and line. `answer` is what
    the request generated, as the segments a history would hold. Ids are there only where the log
    has them for all.
    """

    segments: tuple[Segment, ...]
    at: float | None = None
    session: str | None = None
    user: str | None = None
    label: str = ""
    reported_tokens: int | None = None
    source: str = ""
    answer: tuple[Segment, ...] = ()
    token_ids: tuple[int, ...] | None = None
    answer_ids: tuple[int, ...] | None = None

    def with_texts(self, texts: dict[int, str]) -> "Prompt":
        """The same with other text in some segments, given by their place."""
        changed = tuple(
            replace(segment, text=texts[number]) if number in texts else segment
            for number, segment in enumerate(self.segments)
        )
        return replace(self, segments=changed)
