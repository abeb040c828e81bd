"""Text from outside inside our sentences: one line, printable, bounded. Renderers still escape."""

from queries.on_call.words import plain

LONGEST_SENTENCE = 400


def told(text: object, longest: int = LONGEST_SENTENCE) -> str:
    """A sentence that may hold names from outside; '' for None."""
    line = "" if text is None else " ".join(str(text).split())
    return plain(line, longest) if line else ""
