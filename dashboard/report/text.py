"""Text from outside inside our sentences: one line, printable, bounded. Renderers still escape."""

LONGEST_SENTENCE = 400


def told(text: object, longest: int = LONGEST_SENTENCE) -> str:
    """A sentence that may hold names from outside; '' for None."""
    if text is None:
        return ""
    line = "".join(
        c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(str(text).split())
    )
    return line if len(line) <= longest else line[: longest - 1] + "…"
