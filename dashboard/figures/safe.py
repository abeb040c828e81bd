"""Text from outside, made harmless.

Tenant, route, template, replica and model names are whatever a caller sent. Plotly reads a
subset of HTML in every label and hover; Streamlit reads Markdown in headings, captions and
help. Names go through here before they reach either. (Tables show plain text as it is.)
"""

from queries.on_call import words
from queries.on_call.words import NOT_GIVEN

__all__ = ["NOT_GIVEN", "chart_text", "code_span", "plain"]

_LONGEST = 60


def plain(text: object) -> str:
    """A name on one line, shorter than where a screen has a whole line for it."""
    return words.plain(text, _LONGEST)


def chart_text(text: object) -> str:
    """A name for Plotly, which decodes entities and would otherwise obey tags."""
    return plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def code_span(text: object, longest: int = _LONGEST) -> str:
    """A name inside Streamlit Markdown.

    Only a code span is left alone by everything Streamlit does to text: links are made even
    from escaped addresses. Backticks cannot be escaped inside one, so they become quotes.
    """
    return f"`{words.plain(text, longest).replace('`', chr(0x2019))}`"
