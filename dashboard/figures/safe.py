"""Text from outside, made harmless.

Tenant, route, template, replica and model names are whatever a caller sent. Plotly reads a
subset of HTML in every label and hover; Streamlit reads Markdown in headings, captions and
help. Names go through here before they reach either. (Tables show plain text as it is.)
"""

NOT_GIVEN = "(not given)"
_LONGEST = 60


def plain(text: object) -> str:
    """A name on one line and of bounded length; '' and None are "(not given)".

    Control and direction characters are replaced, so that a name cannot break or reorder
    the line it stands in.
    """
    if text is None or text == "":
        return NOT_GIVEN
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def chart_text(text: object) -> str:
    """A name for Plotly, which decodes entities and would otherwise obey tags."""
    return plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def code_span(text: object) -> str:
    """A name inside Streamlit Markdown.

    Only a code span is left alone by everything Streamlit does to text: links are made even
    from escaped addresses. Backticks cannot be escaped inside one, so they become quotes.
    """
    return f"`{plain(text).replace('`', chr(0x2019))}`"
